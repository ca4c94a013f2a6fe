"""All routes of the API, in the order of the reference."""

from __future__ import annotations

from typing import Final

from windlass.http.resources import (
    alerts,
    audit,
    dead_letters,
    events,
    history,
    job_cancel,
    job_edit,
    jobs,
    lost_workers,
    me,
    metrics,
    new_jobs,
    operations,
    queues,
    scale,
    schedules,
    server,
    stats,
    tasks,
    tokens,
    workers,
)
from windlass.http.routes import Route, routes_in
from windlass.http.worker_protocol import claims, sessions

#: Paths without parameters come first where a parameter could match them too.
ROUTES: Final[tuple[Route, ...]] = tuple(
    routes_in(
        new_jobs,
        job_cancel,
        jobs,
        job_edit,
        tasks,
        dead_letters,
        queues,
        schedules,
        lost_workers,
        workers,
        sessions,
        claims,
        stats,
        alerts,
        history,
        scale,
        events,
        operations,
        audit,
        tokens,
        me,
        metrics,
        server,
    )
)
