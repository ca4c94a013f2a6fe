"""Test pages of jobs: their order, their filters and their cursors."""

import re
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from windlass.core.states import Hold, Reason, State
from windlass.engine.contract import (
    MIN_RECORD_MS,
    Buried,
    Capability,
    Filter,
    Page,
    Released,
    Retried,
    Succeeded,
    Unroutable,
    pages,
)
from windlass.errors import EngineError
from windlass.testing.contract.machine import all_pages
from windlass.testing.contract.place import OPTIONS
from windlass.testing.contract.world import START_MS, World


def find(world: World, filter: Filter = Filter(), limit: int = 100) -> list[str]:  # noqa: B008 frozen
    """Read all pages; return the ids."""
    return [record.id for record in all_pages(world.engine, filter, limit)]


def bury(world: World, **fields: object) -> str:
    world.put(**fields)
    claim = world.take()
    world.finish(Buried(id=claim.id, token=claim.token, reason=Reason.REJECTED, error=b"no"))
    return claim.id


def succeed(world: World, *, result: bytes | None = None, ttl_ms: int = 0) -> str:
    world.put()
    claim = world.take()
    world.finish(Succeeded(id=claim.id, token=claim.token, result=result, result_ttl_ms=ttl_ms))
    return claim.id


def park(world: World, **fields: object) -> str:
    """A ready job that is held as unroutable."""
    id = world.put(**fields)
    world.finish(Unroutable(id=id, token=world.take().token))
    return id


def cancel(world: World) -> str:
    id = world.put()
    world.engine.cancel([id])
    return id


def suspect(world: World, **fields: object) -> str:
    """A ready job that must run alone."""
    id = world.put(**fields)
    world.finish(Released(id=id, token=world.take().token, started=True, alone=True))
    return id


def retry(world: World, delay_ms: int) -> str:
    id = world.put()
    world.finish(Retried(id=id, token=world.take().token, delay_ms=delay_ms, error=b"boom"))
    return id


def one_of_each(world: World) -> dict[str, list[str]]:
    """Two jobs in every index; index -> ids in the order of `find`."""
    dead, cancelled, succeeded = [], [], []
    for _ in range(2):
        world.advance(1)
        dead.append(bury(world))
        cancelled.append(cancel(world))
        succeeded.append(succeed(world))
    due = [world.put(run_in_ms=90_000), retry(world, 80_000)]
    parked = [park(world, task="b"), park(world, task="a")]
    suspects = [suspect(world, queue="b"), suspect(world, queue="a")]
    world.put(queue="c")
    world.put(queue="c")
    running = [world.take("worker-2").id, world.take("worker-1").id]
    ready = [world.put(queue="b"), world.put(queue="a")]
    indexes = (running, ready, suspects, parked, due, dead, cancelled, succeeded)
    return {
        index: ids[::-1] for index, ids in zip(pages.indexes_for(Filter()), indexes, strict=True)
    }


# --------------------------------------------------------------------------------------- order


@pytest.mark.parametrize("limit", [1, 3, 100])
def test_pages_go_from_state_to_state(world: World, limit: int) -> None:
    indexes = one_of_each(world)
    assert find(world, limit=limit) == [id for ids in indexes.values() for id in ids]


@pytest.mark.parametrize("state", State)
def test_a_page_of_one_state_reads_no_other(
    world: World, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The budget suffices for the jobs of the state, but not for the others."""
    indexes = one_of_each(world)
    due = {State.SCHEDULED: indexes["due"][1:], State.RETRYING: indexes["due"][:1]}
    wanted = due.get(
        state, [id for index in pages.indexes_for(Filter(state=state)) for id in indexes[index]]
    )
    if state is not State.READY:
        world.put_many(20)
    if state is not State.CANCELLED:
        world.engine.cancel(world.put_many(20))
    monkeypatch.setattr(pages, "SCAN_BUDGET", 12)
    page = world.engine.find(Filter(state=state))
    assert [record.id for record in page.records] == wanted
    assert page.cursor is None


def test_ready_jobs_are_listed_as_they_start(world: World) -> None:
    """By priority in each line, and line by line: queues by name, then by their labels."""
    expected = []
    for queue in ("a", "a+gpu", "a+gpu+large", "a-b", "b"):
        low, high = world.put(queue=queue, priority=-1), world.put(queue=queue, priority=1)
        expected += [high, low]
    assert find(world) == expected
    assert find(world, limit=1) == expected
    assert find(world, Filter(queue="a"), limit=2) == expected[:6]
    assert find(world, Filter(queue="b", state=State.READY)) == expected[8:]


@pytest.mark.needs(Capability.STRICT_ORDER)
def test_ready_jobs_of_one_priority_are_listed_as_they_were_put(world: World) -> None:
    ids = world.put_many(7)
    assert find(world, limit=3) == ids
    assert [world.take().id for _ in ids] == ids


def test_a_ready_job_of_a_queue_is_found_behind_many_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the lines of the queue are read."""
    for queue in ("a", "b-c", "c"):
        world.put_many(20, queue=queue)
    ids = {world.put(queue="b"), world.put(queue="b+gpu"), suspect(world, queue="b")}
    monkeypatch.setattr(pages, "SCAN_BUDGET", 12)
    page = world.engine.find(Filter(queue="b", state=State.READY))
    assert {record.id for record in page.records} == ids
    assert page.cursor is None


def test_waiting_jobs_are_listed_by_their_due_time(world: World) -> None:
    late, soon = world.put(run_in_ms=3_000), world.put(run_in_ms=1_000)
    middle = retry(world, 2_000)
    assert find(world, limit=1) == [soon, middle, late]
    assert find(world, Filter(state=State.SCHEDULED), limit=1) == [soon, late]
    assert find(world, Filter(state=State.RETRYING)) == [middle]


@pytest.mark.parametrize("make", [bury, cancel, succeed])
def test_ended_jobs_are_listed_latest_first(world: World, make: object) -> None:
    assert callable(make)
    ids = []
    for _ in range(5):
        world.advance(1)
        ids.append(make(world))
    assert find(world, limit=2) == ids[::-1]


def test_ended_jobs_are_listed_by_the_next_visit_of_the_purge(world: World) -> None:
    """With different retentions that is not the order of their ends, as documented."""
    long = succeed(world, result=b"result", ttl_ms=2 * MIN_RECORD_MS)
    world.advance(1)
    short = succeed(world)
    assert find(world) == [long, short]


def test_jobs_of_one_instant_are_listed_once(world: World) -> None:
    """The cursor points between jobs that ended, or are due, at the same instant."""
    due = world.put_many(7, run_in_ms=1_000)
    ended = [bury(world) for _ in range(7)]
    for limit in (1, 2, 3, 100):
        assert sorted(find(world, Filter(state=State.SCHEDULED), limit)) == sorted(due)
        assert sorted(find(world, Filter(state=State.DEAD), limit)) == sorted(ended)


# --------------------------------------------------------------------------------------- cursor


def test_a_cursor_is_safe_in_a_url_and_belongs_to_its_filter(world: World) -> None:
    one_of_each(world)
    page = world.engine.find(Filter(), None, 1)
    cursors = []
    while page.cursor is not None:
        cursors.append(page.cursor)
        page = world.engine.find(Filter(), page.cursor, 1)
    assert len(set(cursors)) == len(cursors) == 15
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+", cursor) for cursor in cursors)
    with pytest.raises(EngineError, match="Expected the cursor of a page"):
        world.engine.find(Filter(state=State.DEAD), cursors[0])


@pytest.mark.parametrize(
    "cursor", ["", "nowhere", "nowhere.AAAA", "dead.x", "dead.\u00e4", "due.e30"]
)
def test_another_text_is_refused_as_a_cursor(world: World, cursor: str) -> None:
    world.put(run_in_ms=1)
    bury(world)
    with pytest.raises(EngineError, match="Expected the cursor of a page"):
        world.engine.find(Filter(), cursor)


@pytest.mark.parametrize("filter", [Filter(), Filter(state=State.READY), Filter(queue="queue")])
def test_a_full_last_page_has_no_cursor(world: World, filter: Filter) -> None:
    world.put_many(4)
    first = world.engine.find(filter, None, 2)
    assert first.cursor is not None
    assert world.engine.find(filter, first.cursor, 2).cursor is None


def test_jobs_that_stay_are_listed_once_while_others_come_and_go(world: World) -> None:
    """The job at the cursor itself is among those that go."""
    kinds: dict[State, Callable[[], str]] = {
        State.READY: world.put,
        State.SCHEDULED: lambda: world.put(run_in_ms=1_000),
        State.DEAD: lambda: bury(world),
    }
    for state, make in kinds.items():
        ids = [make() for _ in range(8)]
        first = world.engine.find(Filter(state=state), None, 4)
        gone = [record.id for record in first.records[1:]]
        world.engine.discard(gone) if state is State.DEAD else world.engine.cancel(gone)
        make()
        second = world.engine.find(Filter(state=state), first.cursor, 100)
        later = {record.id for record in second.records}
        assert {*(record.id for record in first.records), *later} >= set(ids)
        assert later.isdisjoint(record.id for record in first.records)
        world.engine.cancel([id for id in ids if id not in gone])


def test_a_page_reads_a_bounded_number_of_jobs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A short or even empty page has a cursor, and all pages together have every job."""
    world.put_many(60, task="other")
    ids = world.put_many(2, priority=-1)
    monkeypatch.setattr(pages, "SCAN_BUDGET", 20)
    page = world.engine.find(Filter(task="task"), limit=1)
    assert page.records == ()
    assert page.cursor is not None
    assert sorted(find(world, Filter(task="task"), limit=1)) == sorted(ids)


# --------------------------------------------------------------------------------------- filters


def test_every_part_of_a_filter_must_hold(world: World) -> None:
    for task in ("t", "u"):
        for queue in ("a", "b"):
            world.put(task=task, queue=queue)
    world.put(task="t", queue="a", run_in_ms=10)

    def found(filter: Filter) -> list[tuple[str, str, str]]:
        records = world.engine.find(filter).records
        return [(record.task, record.queue, record.state.value) for record in records]

    assert len(found(Filter())) == 5
    assert found(Filter(state=State.SCHEDULED)) == [("t", "a", "scheduled")]
    assert found(Filter(task="t", queue="b")) == [("t", "b", "ready")]
    assert found(Filter(task="u", state=State.READY)) == [("u", "a", "ready"), ("u", "b", "ready")]
    assert found(Filter(task="t", queue="a", state=State.READY)) == [("t", "a", "ready")]
    assert found(Filter(task="none")) == []
    assert world.engine.find(Filter(state=State.DEAD, task="t")) == Page((), None)


def test_held_jobs_are_found_behind_many_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, other = park(world), world.put(task="paused")
    world.engine.pause_task("paused")
    assert world.claim().claims == ()
    world.put_many(40)
    monkeypatch.setattr(pages, "SCAN_BUDGET", 12)
    for hold, id in ((Hold.UNROUTABLE, held), (Hold.PAUSED, other)):
        page = world.engine.find(Filter(hold=hold))
        assert ([record.id for record in page.records], page.cursor) == ([id], None)
    assert world.engine.find(Filter(hold=Hold.PAUSED, state=State.DEAD)) == Page((), None)


def test_suspects_are_found_behind_many_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [world.put(), world.put()]
    assert len(world.claim(limit=2).claims) == 2
    world.engine.close("worker", ids, "died")
    world.put_many(40)
    monkeypatch.setattr(pages, "SCAN_BUDGET", 12)
    page = world.engine.find(Filter(suspects=True))
    assert (sorted(one.id for one in page.records), page.cursor) == (sorted(ids), None)
    assert world.engine.find(Filter(suspects=True, state=State.DEAD)) == Page((), None)
    assert world.engine.find(Filter(suspects=True, task="none")) == Page((), None)


def test_jobs_are_chosen_by_their_creation(world: World) -> None:
    made: dict[int, set[str]] = {}
    for at_ms in (START_MS, START_MS + 1_000, START_MS + 2_000):
        world.move_clock(at_ms)
        made[at_ms] = {bury(world), succeed(world), world.put(run_in_ms=90_000)}
    for since_ms in (None, *made):
        for until_ms in (None, *made):
            wanted = [
                ids
                for at_ms, ids in made.items()
                if (since_ms or 0) <= at_ms < (until_ms or at_ms + 1)
            ]
            filter = Filter(since_ms=since_ms, until_ms=until_ms)
            assert set(find(world, filter, limit=2)) == set().union(*wanted)


@pytest.mark.parametrize("state", [State.DEAD, State.CANCELLED, State.SUCCEEDED])
def test_jobs_that_ended_before_an_instant_are_not_read_for_later_ones(
    world: World, monkeypatch: pytest.MonkeyPatch, state: State
) -> None:
    """A job cannot have ended before it was created."""
    made = {State.DEAD: bury, State.CANCELLED: cancel, State.SUCCEEDED: succeed}[state]
    for _ in range(40):
        made(world)
    world.advance(2 * OPTIONS.dead_ttl_ms)
    new = made(world)
    monkeypatch.setattr(pages, "SCAN_BUDGET", 20)
    page = world.engine.find(Filter(state=state, since_ms=world.now_ms))
    assert [record.id for record in page.records] == [new]
    assert page.cursor is None


def test_a_page_has_no_bodies(world: World) -> None:
    id = bury(world)
    other = succeed(world, result=b"result", ttl_ms=10)
    found = {record.id: record for record in world.engine.find(Filter()).records}
    assert found[id] == replace(world.get(id), payload=b"", failures=())
    assert found[other] == replace(world.get(other), payload=b"", result=None)
    assert found[other].has_result
