"""Test groups of dead jobs: their numbers, their jobs, and how they change."""

from collections.abc import Callable
from typing import Any

import pytest

from windlass.core.states import Reason, State
from windlass.engine.contract import (
    MIN_RECORD_MS,
    Buried,
    ChangeCode,
    DeadLabel,
    DeadTally,
    Filter,
    Plan,
    Retried,
    Revival,
    Succeeded,
    pages,
)
from windlass.errors import EngineError
from windlass.testing.contract.machine import all_pages
from windlass.testing.contract.place import OPTIONS
from windlass.testing.contract.world import START_MS, World, claim_jobs


def bury(world: World, fingerprint: str = "aa", session: str = "worker@v1", **fields: Any) -> str:
    id = world.put(**fields)
    plan = Plan(labels=("gpu",))
    (claim,) = claim_jobs(world.engine, session, world.nonce(), plan, 1).claims
    world.finish(
        Buried(
            id=id,
            token=claim.token,
            reason=Reason.EXHAUSTED,
            error=b"boom",
            fingerprint=fingerprint,
        )
    )
    return id


def tally(**fields: Any) -> DeadTally:
    usual: dict[str, Any] = {
        "fingerprint": "aa",
        "release": "v1",
        "queue": "queue",
        "task": "task",
        "number": 1,
        "first_ms": START_MS,
        "last_ms": START_MS,
    }
    return DeadTally(**{**usual, **fields})


def numbers(world: World) -> dict[tuple[str, str], int]:
    """Fingerprint and release -> number of dead jobs."""
    found = world.engine.dead_tallies().tallies
    return {(one.fingerprint, one.release): one.number for one in found}


def listed(world: World, limit: int = 100, **fields: Any) -> list[str]:
    filter = Filter(**fields)
    return [record.id for record in all_pages(world.engine, filter, limit)]


def test_groups_have_a_number_the_first_and_the_last_death(world: World) -> None:
    bury(world)
    world.advance(10)
    last = bury(world, queue="queue+gpu")
    other = bury(world, "ab", "worker")
    found = world.engine.dead_tallies()
    assert found.tallies == (
        tally(number=2, last_ms=START_MS + 10, example=last),
        tally(
            fingerprint="ab",
            release="",
            first_ms=START_MS + 10,
            last_ms=START_MS + 10,
            example=other,
        ),
    )
    assert not found.more
    assert world.get(last).fingerprint == "aa"
    assert [one.example for one in world.engine.dead_tallies(["ab", "none"]).tallies] == [other]


def test_a_group_is_of_one_release_queue_and_task(world: World) -> None:
    for session, queue, task in (
        ("one@v1", "a", "t"),
        ("two@v1", "a", "t"),
        ("one@v2", "a", "t"),
        ("one@v1", "b", "t"),
        ("one@v1", "a", "u"),
    ):
        bury(world, session=session, queue=queue, task=task)
    found = world.engine.dead_tallies().tallies
    assert [(one.number, one.release, one.queue, one.task) for one in found] == [
        (2, "v1", "a", "t"),
        (1, "v1", "a", "u"),
        (1, "v1", "b", "t"),
        (1, "v2", "a", "t"),
    ]


def test_the_largest_groups_come_first_and_others_are_left_out(world: World) -> None:
    for fingerprint, number in (("a1", 1), ("a2", 3), ("a3", 2)):
        for _ in range(number):
            bury(world, fingerprint)
    found = world.engine.dead_tallies(limit=2)
    assert [(one.fingerprint, one.number) for one in found.tallies] == [("a2", 3), ("a3", 2)]
    assert found.more
    assert not world.engine.dead_tallies(limit=3).more


def _retry(world: World, id: str) -> None:
    assert world.engine.revive([Revival(id=id)]) == [ChangeCode.DONE]


def _edit(world: World, id: str) -> None:
    assert world.engine.revive([Revival(id=id, payload=b"[1]")]) == [ChangeCode.DONE]


def _discard(world: World, id: str) -> None:
    assert world.engine.discard([id]) == [ChangeCode.DONE]


def _expire(world: World, id: str) -> None:
    """The retention of all dead jobs ends, but only this one was logged."""
    world.advance(max(OPTIONS.dead_ttl_ms, MIN_RECORD_MS))
    assert world.engine.tend([id]).purged == 1


@pytest.mark.parametrize("leave", [_retry, _edit, _discard, _expire])
def test_a_job_leaves_its_group(world: World, leave: Callable[[World, str], None]) -> None:
    first = bury(world)
    world.advance(5)
    second = bury(world)
    leave(world, first)
    (left,) = world.engine.dead_tallies().tallies
    assert left == tally(first_ms=START_MS + 5, last_ms=START_MS + 5, example=second)
    assert listed(world, fingerprint="aa") == [second]
    assert world.engine.check() == []
    leave(world, second) if leave is not _expire else world.engine.discard([second])
    assert world.engine.dead_tallies().tallies == ()


def test_a_job_that_dies_again_is_in_its_latest_group_alone(world: World) -> None:
    id = bury(world)
    _retry(world, id)
    assert world.get(id).fingerprint == ""
    (claim,) = world.claim("worker@v2", limit=1).claims
    outcome = Buried(id=id, token=claim.token, reason=Reason.REJECTED, error=b"", fingerprint="ab")
    assert world.engine.finish([outcome, outcome]) == ["ok", "repeated"]
    assert numbers(world) == {("ab", "v2"): 1}


def test_only_a_death_has_a_group(world: World) -> None:
    world.put_many(3)
    one, two, three = world.claim("worker@v1").claims
    world.engine.cancel([three.id])
    world.engine.finish(
        [
            Succeeded(id=one.id, token=one.token),
            Retried(id=two.id, token=two.token, delay_ms=1, error=b"boom"),
            Buried(
                id=three.id,
                token=three.token,
                reason=Reason.EXHAUSTED,
                error=b"",
                fingerprint="aa",
            ),
        ]
    )
    assert world.get(three.id).state is State.CANCELLED
    assert world.get(three.id).fingerprint == ""
    assert world.engine.dead_tallies().tallies == ()


def test_a_stale_death_changes_no_group(world: World) -> None:
    id = world.put()
    stale = world.take()
    world.engine.release("worker", stale.token)
    (claim,) = world.claim("worker@v2", limit=1).claims
    died: dict[str, Any] = {"id": id, "reason": Reason.EXHAUSTED, "error": b""}
    world.engine.finish([Buried(**died, token=stale.token, fingerprint="aa")])
    assert world.engine.dead_tallies().tallies == ()
    world.engine.finish([Buried(**died, token=claim.token, fingerprint="ab")])
    assert numbers(world) == {("ab", "v2"): 1}


def test_jobs_of_a_fingerprint_are_listed_latest_first(world: World) -> None:
    ids: list[str] = []
    for session in ("one@v1", "one@v2", "one@v1"):
        world.advance(1)
        ids.append(bury(world, session=session, task=f"t{len(ids) % 2}"))
        bury(world, "ab")
    for limit in (1, 2, 10):
        assert listed(world, limit, fingerprint="aa") == ids[::-1]
    assert listed(world, state=State.DEAD, fingerprint="aa", release="v1") == [ids[2], ids[0]]
    assert listed(world, fingerprint="aa", task="t1") == [ids[1]]
    assert listed(world, fingerprint="aa", queue="other") == []
    assert listed(world, state=State.READY, fingerprint="aa") == []
    assert listed(world, fingerprint="a") == []
    assert len(listed(world, release="v2")) == 1


def test_a_page_of_a_group_reads_nothing_of_other_groups(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A budget of some records is enough to find one job among many others."""
    wanted = bury(world, "ab")
    for _ in range(12):
        bury(world)
    monkeypatch.setattr(pages, "SCAN_BUDGET", 3)
    page = world.engine.find(Filter(fingerprint="ab"), None, 2)
    assert ([record.id for record in page.records], page.cursor) == ([wanted], None)


def test_dead_jobs_get_another_fingerprint(world: World) -> None:
    id, other = bury(world, ""), world.put()
    label = DeadLabel(id=id, finished_ms=START_MS, fingerprint="ab")
    late = DeadLabel(id=id, finished_ms=START_MS + 1, fingerprint="ff")
    waiting = DeadLabel(id=other, finished_ms=START_MS, fingerprint="ff")
    unknown = DeadLabel(id=world.new().id, finished_ms=START_MS, fingerprint="ff")
    assert world.engine.label_dead([label, late, waiting, unknown, label]) == [
        *("done", "refused", "refused", "unknown", "done"),
    ]
    assert numbers(world) == {("ab", "v1"): 1}
    assert world.get(id).fingerprint == "ab"
    assert world.engine.check() == []


@pytest.mark.parametrize("fingerprint", ["a\0b", "x" * 65, "A", "a b"])
def test_a_fingerprint_that_is_none_is_refused(world: World, fingerprint: str) -> None:
    with pytest.raises(EngineError, match="at most 64 hexadecimal digits"):
        bury(world, fingerprint)
    label = DeadLabel(id=world.new().id, finished_ms=0, fingerprint=fingerprint)
    with pytest.raises(EngineError, match="at most 64 hexadecimal digits"):
        world.engine.label_dead([label])
