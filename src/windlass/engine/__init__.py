"""The storage of jobs: the contract for all engines, and the engines."""
