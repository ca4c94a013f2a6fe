"""What a worker says of itself when it is ready: where, what, and how it differs from the usual."""

from __future__ import annotations

from collections.abc import Sequence
from logging import getLogger

from windlass.worker.control import Ready

log = getLogger("windlass.worker")

#: So many tasks are named.
NAMED_TASKS = 20


def show_banner(app: str, location: str, ready: Ready) -> None:
    log.info("ready: %s, %d tasks", location, len(ready.tasks))
    if ready.tasks:
        log.info("tasks: %s", _shortened(ready.tasks))
    else:
        log.warning(
            "the app %s knows no task: name the modules that declare them in its setting include",
            app,
        )
    for pattern in ready.idle_routes:
        log.warning("no task of this app has a name that the route %s is for", pattern)
    if ready.unusual:
        log.info("settings: %s", ", ".join(map("=".join, ready.unusual.items())))


def _shortened(names: Sequence[str]) -> str:
    named, others = sorted(names)[:NAMED_TASKS], len(names) - NAMED_TASKS
    return ", ".join([*named, *([f"and {others} more"] if others > 0 else [])])
