"""`app.access_tokens`: create, check, list and revoke; roles and scopes; the cache of checks."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from tests.contract.variants import fresh_url
from windlass import AccessTokenNotFound, DuplicateAccessToken, Windlass
from windlass.access_tokens import KIND, RIGHTS, AccessToken, Right, Role, TokenCache
from windlass.engine.contract import DocumentChange

HOUR_MS = 3_600_000


@pytest.fixture(params=["sqlite-file", "redis", "redis-4", "postgres"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Windlass]:
    with Windlass(fresh_url(request.param, tmp_path)) as app:
        yield app


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Windlass]:
    """An app for tests in which the engine does not matter."""
    with Windlass(f"sqlite:///{tmp_path}/local.db?durability=normal") as app:
        yield app


# --------------------------------------------------------------------------------------- the life


def test_a_token_is_checked_by_its_text(app: Windlass) -> None:
    token, text = app.access_tokens.create(name="deploy", role="operator", queues=["mail*", "web"])
    assert re.fullmatch(r"wl_[0-9a-z]{12}_[0-9a-z]{52}", text)
    assert (token.name, token.role, token.queues) == ("deploy", Role.OPERATOR, ("mail*", "web"))
    assert text.startswith(f"wl_{token.id}_")
    assert text.endswith(token.ends_with)
    assert len(token.ends_with) == 4
    assert token.expires_at is None
    assert abs(datetime.now(UTC) - token.created_at) < timedelta(minutes=1)
    assert app.access_tokens.check(text) == token
    assert asyncio.run(app.access_tokens.acheck(text)) == token
    assert app.access_tokens.list() == (token,)


def test_the_secret_is_not_stored(app: Windlass) -> None:
    token, text = app.access_tokens.create(name="deploy", role=Role.ADMIN)
    [document] = app.engine.list_documents(KIND)
    assert document.key == token.id
    assert text.rpartition("_")[2] not in document.body.decode()
    assert text not in repr(token)


def test_another_text_is_refused(app: Windlass) -> None:
    _, text = app.access_tokens.create(name="one", role="worker")
    _, other = app.access_tokens.create(name="two", role="worker")
    secret = other.rpartition("_")[2]
    for wrong in (
        f"{text.rpartition('_')[0]}_{secret}",  # the secret of another token
        f"wl_{'0' * 12}_{text.rpartition('_')[2]}",  # an unknown id
        text[:-1] + ("0" if text[-1] != "0" else "1"),
    ):
        assert app.access_tokens.check(wrong) is None


@pytest.mark.parametrize(
    "text", ["", "wl_", "hunter2", "wl_abc_def", f"wl_{'0' * 12}_{'A' * 52}", "é" * 67, "x" * 10**6]
)
def test_a_malformed_text_asks_no_engine(text: str) -> None:
    app = Windlass("redis://127.0.0.1:1/0")  # where nothing listens
    assert app.access_tokens.check(text) is None
    assert TokenCache().check(app, text) is None


def test_an_expired_token_is_refused(app: Windlass) -> None:
    token, text = app.access_tokens.create(name="brief", role="producer", expires="1h")
    assert token.expires_at == token.created_at + timedelta(hours=1)
    app.engine.clock_offset_ms += HOUR_MS - 60_000
    assert app.access_tokens.check(text) == token
    app.engine.clock_offset_ms += 60_000
    assert app.access_tokens.check(text) is None
    assert app.access_tokens.list() == (token,), "it is listed until it is revoked"
    at = datetime.now(UTC) + timedelta(days=30)
    dated, _ = app.access_tokens.create(name="dated", role="producer", expires=at)
    assert dated.expires_at is not None
    assert abs(dated.expires_at - at) < timedelta(milliseconds=1)


def test_a_revoked_token_is_refused(app: Windlass) -> None:
    tokens = app.access_tokens
    first, one = tokens.create(name="one", role="producer")
    second, two = tokens.create(name="two", role="producer")
    third, three = tokens.create(name="three", role="producer")
    assert tokens.revoke("one") == first.id
    assert tokens.revoke(second.id) == second.id
    assert (tokens.check(one), tokens.check(two)) == (None, None)
    assert tokens.check(three) == third
    assert tokens.list() == (third,)
    for gone in ("one", second.id, "never", "0" * 12):
        with pytest.raises(AccessTokenNotFound, match=f"no access token {gone} in "):
            tokens.revoke(gone)


def test_coroutines_do_the_same(app: Windlass) -> None:
    async def live() -> None:
        tokens = app.access_tokens
        assert not await tokens.aexist()
        token, text = await tokens.acreate(name="deploy", role="admin")
        assert await tokens.aexist()
        assert await tokens.acheck(text) == token
        assert await TokenCache().acheck(app, text) == token
        assert await tokens.alist() == (token,)
        await tokens.arevoke("deploy")
        assert not await tokens.aexist()

    asyncio.run(live())


def test_a_name_is_used_once(app: Windlass) -> None:
    token, _ = app.access_tokens.create(name="deploy", role="admin")
    with pytest.raises(DuplicateAccessToken, match=rf"already an access token deploy \({token.id}"):
        app.access_tokens.create(name="deploy", role="admin")
    app.access_tokens.revoke("deploy")
    app.access_tokens.create(name="deploy", role="admin")


def test_two_tokens_with_one_name_are_revoked_by_id(local: Windlass) -> None:
    """Two processes may create them at the same moment."""
    token, text = local.access_tokens.create(name="deploy", role="admin")
    [document] = local.engine.list_documents(KIND)
    copy = DocumentChange(kind=KIND, key="0" * 12, expected="", revision="copy", body=document.body)
    assert local.engine.change_documents([copy]) == [True]
    with pytest.raises(DuplicateAccessToken, match="2 access tokens have the name deploy"):
        local.access_tokens.revoke("deploy")
    local.access_tokens.revoke("0" * 12)
    assert local.access_tokens.check(text) == token


def test_many_tokens_are_listed_in_pages(local: Windlass) -> None:
    from windlass import access_tokens

    for number in range(7):
        local.access_tokens.create(name=f"token{number}", role="worker")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(access_tokens, "_PAGE", 3)
        assert len(local.access_tokens.list()) == 7


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b'{"name":"x","role":"king","digest":"","ends_with":"","created_ms":1,"format":1}',
        b'{"name":"x","role":"admin","digest":"D","ends_with":"","created_ms":1,"format":2}',
    ],
)
def test_an_unreadable_token_is_not_accepted(
    local: Windlass, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Such as one of a newer version, with limits that are not known here."""
    _, text = local.access_tokens.create(name="x", role="admin")
    [document] = local.engine.list_documents(KIND)
    digest = msgspec.json.decode(document.body)["digest"].encode()
    change = DocumentChange(
        kind=KIND,
        key=document.key,
        expected=document.revision,
        revision="next",
        body=body.replace(b'"D"', b'"%b"' % digest),
    )
    assert local.engine.change_documents([change]) == [True]
    assert local.access_tokens.check(text) is None
    assert local.access_tokens.list() == ()
    assert "access token" in caplog.text
    assert local.access_tokens.revoke(document.key) == document.key


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"name": ""}, "name must be 1 to 64 characters"),
        ({"name": "a b"}, "found 'a b'"),
        ({"name": "-a"}, "name must be"),
        (
            {"role": "king"},
            "role must be one of producer, worker, viewer, operator, admin, found 'king'",
        ),
        ({"queues": ["a b"]}, "queues must be names or patterns such as .* found 'a b'"),
        ({"queues": ["mail?"]}, "queues must be"),
        ({"queues": [f"q{number}" for number in range(101)]}, "at most 100 .* found 101"),
        ({"expires": 0}, "expires must be in the future"),
        ({"expires": datetime(2020, 1, 1, tzinfo=UTC)}, "expires must be in the future"),
        ({"expires": "soon"}, "expires must be seconds as a number"),
    ],
)
def test_what_makes_no_sense_is_refused(
    local: Windlass, wrong: dict[str, object], words: str
) -> None:
    given: dict[str, object] = {"name": "deploy", "role": "admin", **wrong}
    with pytest.raises(ValueError, match=words):
        local.access_tokens.create(**given)  # type: ignore[arg-type]  # wrong on purpose
    assert local.access_tokens.list() == ()


def test_one_name_is_no_list(local: Windlass) -> None:
    with pytest.raises(TypeError, match=r"write \['mail'\]"):
        local.access_tokens.create(name="deploy", role="admin", queues="mail")


# ------------------------------------------------------------------------------------------ rights


def token_of(role: Role, *queues: str) -> AccessToken:
    return AccessToken(
        id="0" * 12,
        name="x",
        role=role,
        queues=queues,
        created_at=datetime.now(UTC),
        expires_at=None,
        ends_with="abcd",
    )


def test_roles_have_these_rights() -> None:
    may = {role: {right for right in Right if token_of(role).may(right)} for role in Role}
    assert may[Role.PRODUCER] == {Right.ENQUEUE, Right.READ_JOBS}
    assert may[Role.WORKER] == {Right.WORK}
    assert may[Role.VIEWER] == {
        Right.READ_JOBS,
        Right.LIST_JOBS,
        Right.READ_STATS,
        Right.READ_AUDIT,
    }
    assert may[Role.OPERATOR] == set(Right) - {Right.WORK, Right.MANAGE_TOKENS}
    assert may[Role.ADMIN] == set(Right)
    assert set(RIGHTS) == set(Right)


@pytest.mark.parametrize(
    ("scopes", "queue", "allowed"),
    [
        ((), "anything", True),
        (("mail",), "mail", True),
        (("mail",), "mailing", False),
        (("mail*",), "mailing", True),
        (("web", "*.eu"), "shop.eu", True),
        (("web", "*.eu"), "shopXeu", False),
        (("*",), "anything", True),
    ],
)
def test_scopes_are_names_or_patterns(scopes: tuple[str, ...], queue: str, allowed: bool) -> None:
    assert token_of(Role.PRODUCER, *scopes).may_use(queue) is allowed


# ------------------------------------------------------------------------------------------- cache


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def seen(local: Windlass, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids of all tokens that are read."""
    ids: list[str] = []
    real = local.engine.get_documents

    def noted(kind: str, keys: list[str]) -> object:
        ids.extend(keys)
        return real(kind, keys)

    monkeypatch.setattr(local.engine, "get_documents", noted)
    return ids


def test_a_check_is_remembered_for_a_moment(local: Windlass, seen: list[str]) -> None:
    clock = Clock()
    cache = TokenCache(clock=clock)
    token, text = local.access_tokens.create(name="deploy", role="admin")
    for clock.now in (0.0, 0.5, 0.99):
        assert cache.check(local, text) == token
    assert len(seen) == 1
    clock.now = 1.0
    assert cache.check(local, text) == token
    assert len(seen) == 2


def test_a_revoked_token_stops_within_the_time_of_the_cache(local: Windlass) -> None:
    clock = Clock()
    cache = TokenCache(clock=clock)
    token, text = local.access_tokens.create(name="deploy", role="admin")
    assert cache.check(local, text) == token
    local.access_tokens.revoke("deploy")
    clock.now = 1.0
    assert cache.check(local, text) is None
    renewed, other = local.access_tokens.create(name="deploy", role="admin")
    assert cache.check(local, other) == renewed


def test_the_time_counts_from_before_the_call(
    local: Windlass, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow answer is old when it arrives."""
    clock = Clock()
    cache = TokenCache(clock=clock)
    token, text = local.access_tokens.create(name="deploy", role="admin")
    real = local.engine.get_documents

    def slow(kind: str, keys: list[str]) -> object:
        clock.now += 0.8
        return real(kind, keys)

    monkeypatch.setattr(local.engine, "get_documents", slow)
    assert cache.check(local, text) == token
    monkeypatch.undo()
    local.access_tokens.revoke("deploy")
    clock.now = 1.1
    assert cache.check(local, text) is None


def test_unknown_tokens_are_remembered_too(local: Windlass, seen: list[str]) -> None:
    cache = TokenCache(clock=Clock())
    unknown = f"wl_{'0' * 12}_{'0' * 52}"
    assert cache.check(local, unknown) is None
    assert cache.check(local, unknown) is None
    assert len(seen) == 1


def test_the_cache_is_bounded_and_unknown_tokens_displace_no_valid_one(
    local: Windlass, seen: list[str]
) -> None:
    cache = TokenCache(size=3, clock=Clock())
    token, text = local.access_tokens.create(name="deploy", role="admin")
    assert cache.check(local, text) == token
    seen.clear()
    for number in range(10):
        cache.check(local, f"wl_{number:012}_{'0' * 52}")
    assert len(seen) == 10
    assert cache.check(local, text) == token
    assert len(seen) == 10, "still remembered"
    assert len(cache._invalid) == 3
    others = [local.access_tokens.create(name=f"n{number}", role="admin")[1] for number in range(4)]
    for other in others:
        cache.check(local, other)
    assert len(cache._valid) == 3
