"""What a worker says of itself when the engine has answered: where, what, and what is unusual."""

from __future__ import annotations

from collections.abc import Sequence
from logging import getLogger

from windlass.core.counting import Count
from windlass.worker.control import Ready

log = getLogger("windlass.worker")

#: So many tasks are named.
NAMED_TASKS = 20


def show_banner(app: str, location: str, ready: Ready) -> None:
    log.info("ready: %s, %s", location, Count(len(ready.tasks), "task"))
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
    for name, variable in ready.overruled.items():
        log.warning(
            "%s is not heeded: the code of the app says %s, which comes first", variable, name
        )


def _shortened(names: Sequence[str]) -> str:
    named, others = sorted(names)[:NAMED_TASKS], len(names) - NAMED_TASKS
    return ", ".join([*named, *([f"and {others} more"] if others > 0 else [])])
