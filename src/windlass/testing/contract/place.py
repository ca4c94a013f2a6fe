"""What the author of an engine gives to the suite: a place for jobs, and how to open it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from windlass.engine.contract import Capability, Engine, EngineOptions

#: What engines are opened with; the suite knows these numbers.
OPTIONS: Final = EngineOptions(lease_ms=30_000, dead_ttl_ms=7 * 24 * 60 * 60 * 1000)


class Place:
    """One place, empty at first, and every engine object that was opened on it.

    `make` opens a further engine object on this place, with the options given; `capabilities` are
    those that the engine has there, and tests that need others are left out; `on_removal` is called
    when the place is not needed any more."""

    def __init__(
        self,
        make: Callable[[EngineOptions], Engine],
        capabilities: frozenset[Capability],
        on_removal: Callable[[], None] = lambda: None,
    ) -> None:
        self._make = make
        self._on_removal = on_removal
        self.capabilities = capabilities
        self.opened: list[Engine] = []

    def open(self, options: EngineOptions = OPTIONS) -> Engine:
        """A further engine object, independent of the others; where a place cannot be opened
        twice, the one that there is."""
        if self.opened and Capability.MANY_PROCESSES not in self.capabilities:
            return self.opened[0]
        engine = self._make(options)
        self.opened.append(engine)
        return engine

    def shutdown(self) -> None:
        """As at the end of the process."""
        for engine in self.opened:
            engine.shutdown()
        self.opened.clear()

    def remove(self) -> None:
        self.shutdown()
        self._on_removal()
