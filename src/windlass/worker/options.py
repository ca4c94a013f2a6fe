"""The options of a worker."""

from __future__ import annotations

from typing import Final

import msgspec

from windlass.core.queues.labels import MAX_WORKER_LABELS, read_labels
from windlass.core.queues.plans import read_tiers
from windlass.errors import SettingError

#: The largest number of children that a worker may scale up to: each child is a process with its
#: own memory and connections.
MAX_AUTOSCALE: Final = 100
#: The switch interval of every process of a worker. With Python's default of 5 ms, one thread that
#: computes delays each step of the other threads by that time.
SWITCH_INTERVAL_S: Final = 0.0005


#: The address of metrics, if only a port is given.
LOOPBACK: Final = "127.0.0.1"


def read_address(text: str) -> tuple[str, int]:
    """Read HOST:PORT, [IPV6]:PORT or :PORT, which is a port of this machine alone."""
    host, colon, port = text.rpartition(":")
    is_bare = ":" in host and not (host.startswith("[") and host.endswith("]"))
    is_port = port.isascii() and port.isdigit() and int(port) <= 65535
    if not colon or not is_port or is_bare:
        raise ValueError(
            "expected HOST:PORT such as 127.0.0.1:9464, [::1]:9464 or :9464, with a port from 0 to "
            f"65535, found {text!r}"
        )
    return host.strip("[]") or LOOPBACK, int(port)


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
    metrics: str | None = None  # where to serve metrics, as in 127.0.0.1:9464
    # Scale the number of children between `processes` and this number; None is without scaling.
    most_processes: int | None = None

    def __post_init__(self) -> None:
        try:
            read_tiers(self.queues)
        except ValueError as error:
            raise SettingError(f"The queues of a worker cannot be read: {error}.") from error
        try:
            read_labels(self.labels, most=MAX_WORKER_LABELS)
        except ValueError as error:
            raise SettingError(f"The labels of a worker cannot be read: {error}.") from error
        if self.metrics is not None:
            try:
                read_address(self.metrics)
            except ValueError as error:
                raise SettingError(f"The address of metrics cannot be read: {error}.") from error
        for name in ("processes", "slots", "max_jobs", "max_age_ms", "max_memory"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise SettingError(
                    f"A worker needs at least 1 for {name}, found {value}. Give {name}=1 or more."
                )
        if self.most_processes is not None:
            self._check_scaling(self.most_processes)

    def _check_scaling(self, most: int) -> None:
        if not self.processes <= most <= MAX_AUTOSCALE:
            raise SettingError(
                f"A worker scales up to most_processes={most} children, expected at least "
                f"processes={self.processes} and at most {MAX_AUTOSCALE}. Give another number."
            )
        if self.burst:
            raise SettingError(
                "A burst has a fixed number of children, found burst=True with most_processes="
                f"{most}. Leave one of them out."
            )

    @property
    def most_children(self) -> int:
        """The largest number of shared children, and of solo children."""
        return self.most_processes or self.processes
