"""The worker: a lean supervisor, and the children in which jobs run.

`supervisor` owns the processes and never imports user code; `upkeep` speaks to the engine for it.
`child` is what it starts: `pump` claims and reports, `line` hands claims to `runners`, and
`execution` runs one job and decides its fate. `control` and `slots` join the two sides.
"""
