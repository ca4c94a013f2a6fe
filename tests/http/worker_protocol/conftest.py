"""Fixtures for the worker protocol: remote workers, and further instances on the same engine.

A test runs on SQLite. A test that takes `each_engine` runs on all engines, also on several
partitions of Redis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.contract.variants import fresh_url
from tests.http.client import Client, LoopThread
from tests.http.worker_protocol.remote import Remote, add_remote_tasks
from windlass import Windlass
from windlass.http import ApiOptions, create_api

Instance = Callable[..., Client]

ENGINES = [
    "sqlite-file-normal",
    "redis",
    pytest.param("redis-4", marks=pytest.mark.slow),
    "postgres",
]


@pytest.fixture
def engine_name() -> str:
    return "sqlite-file-normal"


@pytest.fixture
def engine_url(engine_name: str, tmp_path: Path) -> str:
    return fresh_url(engine_name, tmp_path)


@pytest.fixture
def app(engine_url: str) -> Iterator[Windlass]:
    with Windlass(engine_url) as app:
        add_remote_tasks(app)
        yield app


@pytest.fixture
def instance(engine_url: str, loop: LoopThread) -> Iterator[Instance]:
    """Make a further instance of the API with an app and an engine object of its own."""
    with ExitStack() as stack:

        def make(options: ApiOptions | None = None) -> Client:
            app = stack.enter_context(Windlass(engine_url))
            add_remote_tasks(app)

            async def create() -> Client:
                api = create_api(app, options)
                running = api.running()
                await running.__aenter__()
                stack.callback(lambda: loop.run(running.__aexit__(None, None, None)))
                return Client(api, loop)

            return loop.run(create())

        yield make


@pytest.fixture
def remote(client: Client) -> Remote:
    """A worker with one slot for all tasks of the tests."""
    return Remote.begin(client)
