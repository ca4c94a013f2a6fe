"""Fixtures and settings for all tests.

Removes the user's own settings, gives hypothesis its profiles, and excludes the tests themselves
from garbage collection. `app` is an app on a SQLite file, and `hand` acts as its worker.
"""

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.app.hand import Hand
from tests.postgres_databases import give_back_all
from windlass import Windlass

# No deadline: a shared machine stalls for longer than any example takes, and the timeout of the
# test catches a hang. The slow tests use the other profile.
settings.register_profile("windlass", deadline=None, print_blob=True, max_examples=40)
settings.register_profile("thorough", parent=settings.get_profile("windlass"), max_examples=200)
settings.load_profile("windlass")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "needs(*capabilities): run only on engines that have these capabilities"
    )
    for name in [name for name in os.environ if name.startswith(("WINDLASS_", "PG"))]:
        del os.environ[name]


def pytest_collection_finish() -> None:
    """Freeze the garbage collector: thousands of tests live to the end, and would slow down every
    collection."""
    gc.collect()
    gc.freeze()


def pytest_runtest_logfinish() -> None:
    """Let the next test have the databases of the last one."""
    give_back_all()


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Windlass]:
    with Windlass(f"sqlite:///{tmp_path}/jobs.db?durability=normal") as app:
        yield app


@pytest.fixture
def hand(app: Windlass) -> Hand:
    return Hand(app)
