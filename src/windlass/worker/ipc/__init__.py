"""How a supervisor and its children speak: channel, shared memory, wake-up sockets."""
