"""`app.audit`: entries, their order, redaction, and how long details are cut."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.contract.variants import fresh_url
from windlass import Windlass
from windlass.audit_log import PAGE
from windlass.core.ids import new_id
from windlass.core.redaction import REDACTED
from windlass.engine.contract import MAX_AUDIT_BYTES, AuditEntry


@pytest.fixture(params=["sqlite-file", "redis", "redis-4", "postgres"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Windlass]:
    with Windlass(fresh_url(request.param, tmp_path)) as app:
        yield app


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Windlass]:
    """An app for tests in which the engine does not matter."""
    with Windlass(f"sqlite:///{tmp_path}/local.db?durability=normal") as app:
        yield app


def test_an_entry_says_who_changed_what(app: Windlass) -> None:
    id = app.audit.add(
        actor="cli:ann@host", action="queue.pause", subject="mail", details={"count": 3}
    )
    [record] = app.audit.list()
    assert (record.id, record.actor, record.action) == (id, "cli:ann@host", "queue.pause")
    assert (record.subject, record.details, record.outcome) == ("mail", {"count": 3}, "ok")
    assert abs(datetime.now(UTC) - record.at) < timedelta(minutes=1)


def test_times_are_those_of_the_engine(app: Windlass) -> None:
    app.engine.clock_offset_ms += 86_400_000
    app.audit.add(actor="a", action="b")
    [record] = app.audit.list()
    assert record.at > datetime.now(UTC) + timedelta(hours=23)


def add_numbered(app: Windlass, number: int, actor: str = "a") -> None:
    """Entries of as many milliseconds."""
    body = msgspec.json.encode({"actor": actor, "action": "x", "subject": str(number)})
    app.engine.add_audit([AuditEntry(id=new_id(1_000 + number), body=body)])


def test_the_newest_come_first_and_pages_follow(app: Windlass) -> None:
    for number in range(10):
        add_numbered(app, number)
    assert [one.subject for one in app.audit.list(limit=4)] == ["9", "8", "7", "6"]
    before = app.audit.list(limit=4)[-1].id
    assert [one.subject for one in app.audit.list(before=before, limit=3)] == ["5", "4", "3"]
    assert len(app.audit.list(limit=50)) == 10
    assert app.audit.list(limit=0) == []


def test_more_than_a_page_is_listed(local: Windlass) -> None:
    for number in range(PAGE + 5):
        add_numbered(local, number)
    assert len(local.audit.list(limit=PAGE + 3)) == PAGE + 3
    assert len(local.audit.list(limit=PAGE * 3)) == PAGE + 5


def test_coroutines_do_the_same(app: Windlass) -> None:
    async def live() -> None:
        await app.audit.aadd(actor="token:deploy", action="job.cancel", outcome="refused")
        [record] = await app.audit.alist()
        assert (record.actor, record.outcome) == ("token:deploy", "refused")
        assert await app.audit.afind(actor="token:*") == [record]
        assert await app.audit.afind(actor="cli:*") == []

    asyncio.run(live())


def test_entries_are_found_by_actor_and_time(app: Windlass) -> None:
    add_numbered(app, 1, "cli:ann@one")
    app.engine.clock_offset_ms += 3_600_000
    add_numbered(app, 2, "cli:bob@one")
    add_numbered(app, 3, "cli:ann@one")

    def subjects(**choice: Any) -> list[str]:
        return [one.subject for one in app.audit.find(**choice)]

    assert subjects(actor="cli:ann@one") == ["3", "1"]
    assert subjects(actor="cli:ann") == []
    assert subjects(actor="cli:*@one", limit=2) == ["3", "2"]
    since = datetime.now(UTC) + timedelta(minutes=30)
    assert subjects(since=since) == ["3", "2"]
    assert subjects(since=since, actor="cli:ann*") == ["3"]
    assert subjects(since=since + timedelta(hours=1)) == []


def test_a_search_ends_at_older_entries(local: Windlass, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windlass.audit_log.PAGE", 2)
    for number in range(20):
        add_numbered(local, number)
    local.engine.clock_offset_ms += 3_600_000
    add_numbered(local, 20)
    real, calls = local.engine.list_audit, []

    def noted(before: str, limit: int) -> Any:
        calls.append(before)
        return real(before, limit)

    monkeypatch.setattr(local.engine, "list_audit", noted)
    since = datetime.now(UTC) + timedelta(minutes=30)
    assert [one.subject for one in local.audit.find(since=since)] == ["20"]
    assert len(calls) == 2, "a page with it, and a page of older ones"


def test_a_search_passes_over_pages_without_a_hit(local: Windlass) -> None:
    add_numbered(local, 0, "rare")
    for number in range(1, PAGE + 10):
        add_numbered(local, number)
    assert [one.subject for one in local.audit.find(actor="rare")] == ["0"]


# ----------------------------------------------------------------------------------------- details


def stored(app: Windlass, details: dict[str, Any]) -> Any:
    app.audit.add(actor="a", action="b", details=details)
    [entry] = app.engine.list_audit(limit=1)
    assert len(entry.body) <= MAX_AUDIT_BYTES
    return app.audit.list(limit=1)[0].details


def test_details_are_redacted(tmp_path: Path) -> None:
    with Windlass(f"sqlite:///{tmp_path}/jobs.db", redact=["iban"]) as app:
        found = stored(app, {"to": {"IBAN": "DE1", "name": "ann"}, "password": "p"})
    assert found == {"to": {"IBAN": REDACTED, "name": "ann"}, "password": "p"}


def test_long_details_are_cut(local: Windlass) -> None:
    found = stored(local, {"ids": [f"{number:026}" for number in range(1_000)], "why": "x" * 5_000})
    assert found["ids"][0] == "0" * 26
    assert found["ids"][98:] == [f"{98:026}", "... 900 more", f"{999:026}"]
    assert found["why"] == "x" * 997 + "..."
    wide = stored(local, {f"key{number}": "é" * 200 for number in range(200)})
    assert wide["key0"] == "é" * 37 + "..."
    assert wide["..."] == 190
    deep: Any = "x"
    for _ in range(5):
        deep = [deep] * 10
    assert set(stored(local, {"deep": deep})) == {"left_out"}


def test_many_ids_keep_their_number_and_the_last_one(local: Windlass) -> None:
    """As many as one request may have do not fit."""
    ids = [f"{number:026}" for number in range(500)]
    assert stored(local, {"ids": ids})["ids"] == [*ids[:249], "... 250 more", ids[-1]]
    assert stored(local, {"ids": ids[:270]})["ids"] == ids[:270]


def test_long_names_are_cut(local: Windlass) -> None:
    local.audit.add(actor="\0" * 5_000, action="b" * 5_000, subject="\1" * 5_000, outcome="o" * 999)
    [record] = local.audit.list()
    assert {len(record.actor), len(record.action), len(record.subject)} == {256}


def test_an_unreadable_entry_does_not_hide_the_others(local: Windlass) -> None:
    add_numbered(local, 1)
    local.engine.add_audit([AuditEntry(id=new_id(2_000), body=b"\xff")])
    unreadable, readable = local.audit.list()
    assert (unreadable.action, readable.subject) == ("(unreadable)", "1")
