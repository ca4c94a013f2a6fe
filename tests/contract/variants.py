"""The engines and settings that the contract is checked on: one line for each.

A variant names a place and what its engine can do there. Tests are left out of a variant by
capability alone (`@pytest.mark.needs`), and one test holds the declared capabilities against the
engine's own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from tests.redis_server import shared_server
from windlass.engine.contract import Capability, Engine, EngineOptions
from windlass.engine.url import open_engine

EVERYTHING: Final = frozenset(Capability)
OPTIONS: Final = EngineOptions(lease_ms=30_000, dead_ttl_ms=7 * 24 * 60 * 60 * 1000)

#: name -> URL, in which {folder} is a fresh folder and {redis} a fresh namespace on a server that
#: is started for it, and capabilities.
VARIANTS: Final[dict[str, tuple[str, frozenset[Capability]]]] = {
    "sqlite-file": ("sqlite:///{folder}/jobs.db", EVERYTHING),
    "sqlite-file-normal": ("sqlite:///{folder}/jobs.db?durability=normal", EVERYTHING),
    "sqlite-memory": ("sqlite:///:memory:", frozenset({Capability.STRICT_ORDER})),
    "redis": ("{redis}", EVERYTHING),
    "redis-4": ("{redis}&partitions=4", EVERYTHING - {Capability.STRICT_ORDER}),
}


def parametrize(metafunc: pytest.Metafunc, argument: str, names: Iterable[str] = VARIANTS) -> None:
    """Run a test on those of the variants that can do what it needs."""
    if argument not in metafunc.fixturenames:
        return
    marks = metafunc.definition.iter_markers("needs")
    needed = frozenset(capability for mark in marks for capability in mark.args)
    able = [name for name in names if needed <= VARIANTS[name][1]]
    metafunc.parametrize(argument, able, indirect=True)


def fresh_url(name: str, folder: Path) -> str:
    """A place of its own for a variant; a file is in the folder."""
    url = VARIANTS[name][0]
    redis = shared_server().url() if "{redis}" in url else ""
    return url.format(folder=folder, redis=redis)


@dataclass
class Variant:
    """One place, and every engine object that was opened on it."""

    name: str
    folder: Path
    url: str = ""  # of the place; a fresh one when none is given
    opened: list[Engine] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.url = self.url or fresh_url(self.name, self.folder)

    @property
    def capabilities(self) -> frozenset[Capability]:
        return VARIANTS[self.name][1]

    def open(self) -> Engine:
        """A further engine object, independent of the others; where a place cannot be opened
        twice, the one that there is."""
        if self.opened and Capability.MANY_PROCESSES not in self.capabilities:
            return self.opened[0]
        engine = open_engine(self.url, OPTIONS)
        self.opened.append(engine)
        return engine

    def shutdown(self) -> None:
        for engine in self.opened:
            engine.shutdown()
        self.opened.clear()
