"""What windlass can do, measured: `make bench`."""
