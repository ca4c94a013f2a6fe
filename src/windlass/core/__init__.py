"""The pure core: no input or output, no clock, no threads.

Rules that all engines and workers share: the states of a job, the stored form of calls and
results, ids, durations.
"""
