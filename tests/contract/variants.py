"""The engines and settings on which the contract is checked: one line for each.

A variant names a place and the capabilities of its engine. Tests skip a variant only by capability
(`@pytest.mark.needs`), and one test compares the declared capabilities with the engine's own.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Final

import psycopg
import pytest

from tests.postgres_databases import borrow_database
from tests.postgres_server import shared_server as shared_postgres
from tests.redis_server import shared_server as shared_redis
from windlass.engine.contract import Capability
from windlass.engine.url import open_engine
from windlass.testing.contract.place import Place

#: What an engine has that shares no database with its callers.
EVERYTHING: Final = frozenset(Capability) - {Capability.TRANSACTIONAL}

#: name -> URL and capabilities. {folder} is a fresh folder; {redis} is a fresh namespace and
#: {postgres} a fresh database, on servers that are started for them.
VARIANTS: Final[dict[str, tuple[str, frozenset[Capability]]]] = {
    "sqlite-file": ("sqlite:///{folder}/jobs.db", EVERYTHING - {Capability.HANDOFF}),
    "sqlite-file-normal": (
        "sqlite:///{folder}/jobs.db?durability=normal",
        EVERYTHING - {Capability.HANDOFF},
    ),
    "sqlite-memory": ("sqlite:///:memory:", frozenset({Capability.STRICT_ORDER})),
    "redis": ("{redis}", EVERYTHING),
    "redis-4": (
        "{redis}&partitions=4",
        EVERYTHING - {Capability.STRICT_ORDER, Capability.HANDOFF},
    ),
    "postgres": ("{postgres}", frozenset(Capability) - {Capability.HANDOFF}),
}


def parametrize(metafunc: pytest.Metafunc, argument: str, names: Iterable[str] = VARIANTS) -> None:
    """Run a test on the variants with the needed capabilities."""
    if argument not in metafunc.fixturenames:
        return
    marks = metafunc.definition.iter_markers("needs")
    needed = frozenset(capability for mark in marks for capability in mark.args)
    able = [name for name in names if needed <= VARIANTS[name][1]]
    metafunc.parametrize(argument, able, indirect=True)


def fresh_url(name: str, folder: Path) -> str:
    """A fresh place for a variant; a file is in the folder, and a database ends with the test."""
    url = VARIANTS[name][0]
    redis = shared_redis().url() if "{redis}" in url else ""
    postgres = shared_postgres().url(borrow_database()) if "{postgres}" in url else ""
    return url.format(folder=folder, redis=redis, postgres=postgres)


class Variant(Place):
    """One place, in the folder or at the url; at a fresh one when none is given."""

    def __init__(self, name: str, folder: Path, url: str = "") -> None:
        self.name = name
        self.folder = folder
        self.url = url or fresh_url(name, folder)
        super().__init__(
            partial(open_engine, self.url),
            VARIANTS[name][1],
            connect=partial(psycopg.connect, self.url),
        )
