"""Test the audit trail: entries get the engine's time, repeats change nothing, the oldest go."""

from __future__ import annotations

import pytest

from windlass.core.ids import new_id
from windlass.engine.contract import (
    BATCH,
    MAX_AUDIT,
    MAX_AUDIT_BYTES,
    AuditEntry,
    Capability,
)
from windlass.errors import EngineError
from windlass.testing.contract.world import START_MS, World


def entry(number: int, body: bytes = b"") -> AuditEntry:
    return AuditEntry(id=f"{number:08}", body=body or b"entry %d" % number)


def ids_in(world: World, before: str = "", limit: int = 100) -> list[int]:
    return [int(one.id) for one in world.engine.list_audit(before, limit)]


def test_an_entry_has_the_time_of_the_engine(world: World) -> None:
    body = bytes(range(256))
    given = AuditEntry(id=new_id(START_MS), body=body, at_ms=5)
    world.engine.add_audit([given])
    world.advance(1_000)
    second = AuditEntry(id=new_id(START_MS + 9), body=b"")
    world.engine.add_audit([second])
    assert world.engine.list_audit() == [
        AuditEntry(id=second.id, body=b"", at_ms=START_MS + 1_000),
        AuditEntry(id=given.id, body=body, at_ms=START_MS),
    ]
    assert world.engine.check() == []


def test_a_known_entry_does_not_change(world: World) -> None:
    world.engine.add_audit([entry(1, b"first"), entry(1, b"other")])
    before = world.engine.list_audit()
    world.advance(1_000)
    world.engine.add_audit([entry(1, b"later")])
    assert world.engine.list_audit() == before
    assert [one.body for one in before] == [b"first"]


def test_entries_are_listed_from_the_newest_in_pages(world: World) -> None:
    numbers = [5, 3, 9, 1, 7, 2, 8]
    world.engine.add_audit([entry(number) for number in numbers])
    assert ids_in(world) == sorted(numbers, reverse=True)
    listed: list[int] = []
    while page := ids_in(world, f"{listed[-1]:08}" if listed else "", limit=3):
        listed += page
    assert listed == sorted(numbers, reverse=True)
    assert ids_in(world, "00000004") == [3, 2, 1]
    assert ids_in(world, "00000003x") == [3, 2, 1]
    assert ids_in(world, "00000003\0") == ids_in(world, "00000003\0x") == [3, 2, 1]
    assert ids_in(world, limit=0) == ids_in(world, "0") == []


def test_many_entries_are_added_and_listed_at_once(world: World) -> None:
    number = 2 * BATCH + 1
    world.engine.add_audit([entry(at) for at in range(number)])
    assert ids_in(world, limit=2 * number) == list(range(number))[::-1]
    world.engine.add_audit([])


@pytest.mark.parametrize(
    "wrong",
    [
        AuditEntry(id="", body=b""),
        AuditEntry(id="a b", body=b""),
        AuditEntry(id="a\0b", body=b""),
        AuditEntry(id="x" * 200, body=b""),
        AuditEntry(id="large", body=b"x" * (MAX_AUDIT_BYTES + 1)),
    ],
)
def test_an_entry_that_cannot_be_stored_is_refused(world: World, wrong: AuditEntry) -> None:
    with pytest.raises(EngineError, match="audit entry"):
        world.engine.add_audit([entry(1), wrong])
    assert world.engine.list_audit() == []
    largest = AuditEntry(id="large", body=b"x" * MAX_AUDIT_BYTES)
    world.engine.add_audit([largest])
    assert world.engine.list_audit()[0].body == largest.body


def test_the_oldest_entries_go(world: World) -> None:
    for at in range(0, MAX_AUDIT, 10_000):
        world.engine.add_audit([entry(number) for number in range(at, at + 10_000)])
    assert ids_in(world, "00000001") == [0]
    world.engine.add_audit([entry(MAX_AUDIT + number) for number in range(3)])
    assert ids_in(world, "00000005") == [4, 3]
    assert ids_in(world, limit=1) == [MAX_AUDIT + 2]
    assert len(ids_in(world, limit=2 * MAX_AUDIT)) == MAX_AUDIT
    assert world.engine.check() == []


@pytest.mark.needs(Capability.DURABLE)
def test_audit_entries_survive_a_restart(world: World) -> None:
    world.engine.add_audit([entry(1)])
    before = world.engine.list_audit()
    world.reopen()
    assert world.engine.list_audit() == before
