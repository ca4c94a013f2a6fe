"""The options of a worker."""

from __future__ import annotations

from typing import Final

import msgspec

from windlass.core.queues.labels import MAX_WORKER_LABELS, read_labels
from windlass.core.queues.plans import read_tiers
from windlass.errors import SettingError

#: The switch interval of every process of a worker. With Python's default of 5 ms, one thread that
#: computes delays each step of the other threads by that time.
SWITCH_INTERVAL_S: Final = 0.0005


class WorkerOptions(msgspec.Struct, frozen=True):
    """The app to serve, and how much of this machine to use for it."""

    app: str  # module:attribute
    queues: tuple[
        str, ...
    ] = ()  # strict tiers: "critical", "default:5,low:1"; every queue when empty
    processes: int = 1
    slots: int = 10  # jobs at a time in each process
    url: str | None = None  # overrides the url of the app
    burst: bool = False  # end when there is nothing left to do
    # Limits that make the supervisor replace a child; None is without a limit.
    max_jobs: int | None = None
    max_age_ms: int | None = None
    max_memory: int | None = None  # in bytes
    labels: tuple[str, ...] = ()  # what jobs may require of this worker
    log_level: str | None = None  # instead of the app's own

    def __post_init__(self) -> None:
        try:
            read_tiers(self.queues)
        except ValueError as error:
            raise SettingError(f"The queues of a worker cannot be read: {error}.") from error
        try:
            read_labels(self.labels, most=MAX_WORKER_LABELS)
        except ValueError as error:
            raise SettingError(f"The labels of a worker cannot be read: {error}.") from error
        for name in ("processes", "slots", "max_jobs", "max_age_ms", "max_memory"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise SettingError(
                    f"A worker needs at least 1 for {name}, found {value}. Give {name}=1 or more."
                )
