"""Checks of access tokens at the same time share one call of the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tests.http.client import Client, LoopThread
from windlass import Windlass
from windlass.access_tokens import AccessToken, TokenCache
from windlass.engine.contract import Document
from windlass.errors import EngineUnavailable
from windlass.http.token_checks import TokenChecks

MANY = 20


class Reads:
    """Counts the reads of documents of an engine, and lets them fail on demand."""

    def __init__(self, app: Windlass, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        self.error: Exception | None = None
        self._real = app.engine.get_documents
        monkeypatch.setattr(app.engine, "get_documents", self._read)

    def _read(self, kind: str, keys: Sequence[str]) -> list[Document | None]:
        self.sizes.append(len(keys))
        if self.error is not None:
            raise self.error
        return self._real(kind, keys)


@pytest.fixture
def reads(app: Windlass, monkeypatch: pytest.MonkeyPatch) -> Reads:
    return Reads(app, monkeypatch)


def make_tokens(app: Windlass) -> list[str]:
    return [app.access_tokens.create(name=f"viewer-{at}", role="viewer")[1] for at in range(MANY)]


def check_all(
    app: Windlass, loop: LoopThread, texts: Sequence[str]
) -> list[AccessToken | BaseException | None]:
    checks = TokenChecks(TokenCache())

    async def ask() -> list[AccessToken | BaseException | None]:
        asked = [checks.check(app, text) for text in texts]
        return await asyncio.gather(*asked, return_exceptions=True)

    return loop.run(ask())


def test_many_tokens_are_one_read(app: Windlass, loop: LoopThread, reads: Reads) -> None:
    texts = make_tokens(app)
    reads.sizes.clear()
    found = check_all(app, loop, [*texts, texts[0]])
    names = [one.name for one in found if isinstance(one, AccessToken)]
    assert names == [*(f"viewer-{at}" for at in range(MANY)), "viewer-0"]
    assert reads.sizes == [MANY]


def test_each_text_has_its_own_answer(app: Windlass, loop: LoopThread) -> None:
    """The secret of one token is not accepted with the id of another."""
    first, second, revoked, *_ = make_tokens(app)
    app.access_tokens.revoke("viewer-2")
    mixed = first[:-8] + second[-8:]
    found = check_all(app, loop, [first, mixed, "nonsense", revoked, second])
    assert [one.name if isinstance(one, AccessToken) else one for one in found] == [
        *("viewer-0", None, None, None, "viewer-1")
    ]


def test_all_callers_learn_of_an_outage(app: Windlass, loop: LoopThread, reads: Reads) -> None:
    texts = make_tokens(app)
    reads.error = EngineUnavailable("gone")
    found = check_all(app, loop, texts)
    assert [type(one) for one in found] == [EngineUnavailable] * MANY


def test_the_streams_of_an_instance_check_together(
    app: Windlass, client: Client, reads: Reads
) -> None:
    texts = make_tokens(app)[:5]
    streams = [client.with_token(text).stream("/v1/events") for text in texts]
    for stream in streams:
        stream.__enter__()
        stream.next()
    try:
        for stream in streams:
            stream.next()  # of a snapshot that all of them have seen
        reads.sizes.clear()
        for stream in streams:
            stream.next()
        assert max(reads.sizes) == len(texts)
    finally:
        for stream in streams:
            stream.leave()
