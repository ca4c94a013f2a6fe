"""Fixtures for the tests of the HTTP API: an app with tasks, its API in this process, and callers.

`client` is a caller on this machine while the API is open. `caller(role, *queues)` makes an access
token and returns a caller that sends it; from then on the API is closed to callers without one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.app.hand import Hand
from tests.http.client import Client, LoopThread
from tests.http.shop import add_tasks
from windlass import Windlass
from windlass.access_tokens import TokenCache
from windlass.http import ApiOptions, WindlassApi, access, create_api

Caller = Callable[..., Client]

#: How long an instance believes in a token, in seconds: tests wait for the end of this time.
TOKEN_S = 0.05


@pytest.fixture(autouse=True)
def short_token_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a revoked token end soon."""
    monkeypatch.setattr(access, "TokenCache", partial(TokenCache, ttl_s=TOKEN_S))
    monkeypatch.setattr(access, "_NO_TOKENS_S", TOKEN_S)


@pytest.fixture
def engine_url(tmp_path: Path) -> str:
    """The engine of the tests; tests on another engine override this fixture."""
    return f"sqlite:///{tmp_path}/jobs.db?durability=normal"


@pytest.fixture
def app(engine_url: str) -> Iterator[Windlass]:
    with Windlass(engine_url) as app:
        add_tasks(app)
        yield app


@pytest.fixture
def hand(app: Windlass) -> Hand:
    return Hand(app)


@pytest.fixture
def options() -> ApiOptions:
    return ApiOptions()


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    loop = LoopThread()
    yield loop
    loop.close()


@pytest.fixture
def api(app: Windlass, options: ApiOptions, loop: LoopThread) -> Iterator[WindlassApi]:
    """The API, as if a server ran it."""

    async def make() -> WindlassApi:
        return create_api(app, options)

    api = loop.run(make())
    running = api.running()
    loop.run(running.__aenter__())
    yield api
    loop.run(running.__aexit__(None, None, None))


@pytest.fixture
def client(api: WindlassApi, loop: LoopThread) -> Client:
    return Client(api, loop)


@pytest.fixture
def caller(app: Windlass, client: Client) -> Caller:
    def make(role: str, *queues: str) -> Client:
        name = "-".join([role, *queues]).replace("*", "any")
        known = {token.name for token in app.access_tokens.list()}
        number = sum(one == name or one.startswith(f"{name}.") for one in known)
        unique = f"{name}.{number}" if number else name
        _, text = app.access_tokens.create(name=unique, role=role, queues=queues)
        return client.with_token(text)

    return make
