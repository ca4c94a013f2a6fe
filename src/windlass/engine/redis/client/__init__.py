"""The client of a Redis server: connection pool, retry loop and scripts."""
