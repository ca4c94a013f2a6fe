"""Proofs of the guarantees: real processes and signals, counted outcomes. `make proofs`."""
