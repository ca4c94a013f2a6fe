"""The worker: a supervisor process, and the child processes in which jobs run.

1. `supervisor` owns the processes and never imports user code.
2. `child` is the process that a supervisor starts: `fetch` claims and reports, `run` executes.
3. `maintenance` is what a supervisor does for the whole queue, beside its heartbeats.
4. `ipc` joins the two sides, `logs` is the log of both.
5. `embedded` is a worker inside another process: `with app.worker(): ...`.
"""
