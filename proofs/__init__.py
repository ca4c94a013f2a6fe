"""Proofs of what windlass promises: real processes and signals, counted outcomes. `make proofs`."""
