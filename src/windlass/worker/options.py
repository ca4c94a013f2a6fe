"""What a worker is told when it starts."""

from __future__ import annotations

import msgspec

from windlass.errors import SettingError


class WorkerOptions(msgspec.Struct, frozen=True):
    """The app to serve, and how much of this machine to use for it."""

    app: str  # module:attribute
    queues: tuple[str, ...] = ()  # in strict order; every queue when empty
    processes: int = 1
    slots: int = 10  # jobs at a time in each process
    url: str | None = None  # instead of the app's own
    burst: bool = False  # end when there is nothing left to do

    def __post_init__(self) -> None:
        for name in ("processes", "slots"):
            if getattr(self, name) < 1:
                raise SettingError(
                    f"A worker needs at least 1 for {name}, found {getattr(self, name)}. "
                    f"Give {name}=1 or more."
                )
