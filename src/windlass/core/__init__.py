"""The pure core: no input or output, no clock, no threads.

What is decided here is decided the same way in every engine and every worker: states and what may
happen to a job, how calls and results are stored, ids, durations.
"""
