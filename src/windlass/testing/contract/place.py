"""The part that the author of an engine provides: a place for jobs, and a way to open it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from windlass.engine.contract import Capability, Engine, EngineOptions

#: Options of the engines. The suite relies on these numbers.
OPTIONS: Final = EngineOptions(lease_ms=30_000, dead_ttl_ms=7 * 24 * 60 * 60 * 1000)


class Place:
    """One place for jobs, empty at first, and all engine objects opened on it.

    `make` opens another engine object on this place, with the given options. `capabilities` are the
    capabilities of the engine; tests that need others are skipped. The suite calls `on_removal`
    when it no longer needs the place. With `Capability.TRANSACTIONAL`, `connect` opens a blocking
    connection of a caller to the database of the place, on which no transaction has begun."""

    def __init__(
        self,
        make: Callable[[EngineOptions], Engine],
        capabilities: frozenset[Capability],
        on_removal: Callable[[], None] = lambda: None,
        connect: Callable[[], Any] | None = None,
    ) -> None:
        self._make = make
        self._on_removal = on_removal
        self._connect = connect
        self.capabilities = capabilities
        self.opened: list[Engine] = []

    def open(self, options: EngineOptions = OPTIONS) -> Engine:
        """Open another engine object, independent of the others. If a place cannot be opened twice,
        return the existing object."""
        if self.opened and Capability.MANY_PROCESSES not in self.capabilities:
            return self.opened[0]
        engine = self._make(options)
        self.opened.append(engine)
        return engine

    def connect(self) -> Any:
        """Open a connection of a caller."""
        assert self._connect is not None, "a place with transactions of callers has connect="
        return self._connect()

    def shutdown(self) -> None:
        """Shut down all engine objects, as at the end of the process."""
        for engine in self.opened:
            engine.shutdown()
        self.opened.clear()

    def remove(self) -> None:
        self.shutdown()
        self._on_removal()
