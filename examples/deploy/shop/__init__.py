"""A small shop: `web` takes orders and enqueues, a worker runs what is in `tasks`."""
