"""Redis 6.2 or newer, and Valkey: jobs in partitions that a cluster could own."""
