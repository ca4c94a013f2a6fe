"""How throughput and claim latency change with the backlog and the number of queues."""
