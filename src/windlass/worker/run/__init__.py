"""Running: from a claimed job to its outcome, in threads and on the event loop."""
