"""The log lines of a worker at its start: engine, tasks, settings and likely mistakes."""

from __future__ import annotations

from collections.abc import Sequence
from logging import getLogger

from windlass.core.quantities import Count
from windlass.core.queues.labels import queue_of
from windlass.core.queues.plans import describe_tiers, read_tiers
from windlass.engine.contract import Engine
from windlass.worker.ipc.channel import Ready
from windlass.worker.logs.events import LogEvent, LoggedValue, listed
from windlass.worker.options import WorkerOptions

log = getLogger("windlass.worker")

#: The most tasks to list.
NAMED_TASKS = 20


def log_start(options: WorkerOptions) -> None:
    log.info(
        LogEvent.WORKER_STARTED,
        options.app,
        _processes(options),
        options.slots,
        _tiers(options.queues),
        listed(options.labels, ", labels "),
    )


def _processes(options: WorkerOptions) -> LoggedValue:
    least, most = options.processes, options.most_processes
    return LoggedValue(least, str(least) if most is None else f"{least}..{most}")


def _tiers(queues: Sequence[str]) -> LoggedValue:
    words = f"queues {describe_tiers(queues)}" if queues else "every queue"
    return LoggedValue(list(queues), words)


def show_banner(
    options: WorkerOptions, engine: Engine, ready: Ready, *, is_ready: bool = True
) -> None:
    if is_ready:
        log.info(LogEvent.WORKER_READY, engine.location, Count(len(ready.tasks), "task"))
    if ready.tasks:
        log.info(LogEvent.WORKER_TASKS, _first(ready.tasks))
    else:
        log.warning(LogEvent.NO_TASKS, options.app)
    for pattern in ready.idle_routes:
        log.warning(LogEvent.IDLE_ROUTE, pattern)
    if ready.unusual:
        words = ", ".join(map("=".join, ready.unusual.items()))
        log.info(LogEvent.WORKER_SETTINGS, LoggedValue(ready.unusual, words))
    for name, variable in ready.overruled.items():
        log.warning(LogEvent.VARIABLE_OVERRULED, variable, name)
    if ready.tasks:
        _warn_of_idle_queues(options.queues, engine, ready.queues)


def _warn_of_idle_queues(served: Sequence[str], engine: Engine, queues: Sequence[str]) -> None:
    """Warn of queues without tasks and jobs: they may be misspelt. A caller may choose any queue,
    so ask the engine too."""
    named = [queue for tier in read_tiers(served) for queue in tier.queues]
    idle = [queue for queue in named if queue not in queues]
    used = {queue_of(line) for line in engine.stats().queues} if idle else set()
    for queue in idle:
        if queue not in used:
            log.warning(LogEvent.IDLE_QUEUE, queue, listed(queues))


def _first(names: Sequence[str]) -> LoggedValue:
    named, others = sorted(names)[:NAMED_TASKS], len(names) - NAMED_TASKS
    return LoggedValue(named, ", ".join([*named, *([f"and {others} more"] if others > 0 else [])]))
