"""The worker: a supervisor process, and the child processes in which jobs run.

1. `supervisor` owns the processes and never imports user code.
2. `child` is the process that a supervisor starts: `fetch` claims and reports, `run` executes.
3. `maintenance` is the heartbeat, and the work that a supervisor does for all workers.
4. `ipc` connects supervisor and children, `logs` is the log of both.
5. `embedded` is a worker in the process of the app: `with app.worker(): ...`.
"""
