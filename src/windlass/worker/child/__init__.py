"""A child: the process in which jobs run, put together from `fetch` and `run`."""
