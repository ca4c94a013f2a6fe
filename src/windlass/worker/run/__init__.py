"""Run claimed jobs, in threads and on the event loop, and produce their outcomes."""
