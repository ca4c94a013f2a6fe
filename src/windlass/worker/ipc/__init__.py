"""Communication of a supervisor and its children: channel, shared memory, wake-up sockets."""
