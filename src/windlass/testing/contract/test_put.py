"""Test puts: stored fields, due times, repeated ids and idempotency keys."""

from typing import Any, Final

import pytest
from msgspec.structs import replace

from windlass.core.durations import LATEST_MS, MAX_DURATION_MS
from windlass.core.ids import check_id, partition_of
from windlass.core.states import Counters, Hold, State
from windlass.core.unique import Until
from windlass.engine.contract import (
    BATCH_BYTES,
    IDEMPOTENCY_MS,
    Capability,
    JobRecord,
    Placed,
    PutCode,
    Succeeded,
    UniqueKey,
)
from windlass.errors import EngineError
from windlass.testing.contract.place import OPTIONS
from windlass.testing.contract.world import START_MS, World


def test_stores_what_was_given(world: World) -> None:
    new = world.new(
        task="mail.send", queue="mail", priority=-7, payload=b"\x00\xff", expires_in_ms=500
    )
    assert world.engine.put([new]) == [Placed(new.id, PutCode.CREATED)]
    assert world.get(new.id) == JobRecord(
        id=new.id,
        task="mail.send",
        queue="mail",
        priority=-7,
        state=State.READY,
        hold=Hold.NONE,
        reason=None,
        counters=Counters(),
        created_ms=START_MS,
        expires_ms=START_MS + 500,
        payload=b"\x00\xff",
    )


@pytest.mark.parametrize("key", [None, "key"])
def test_the_engine_makes_ids(world: World, key: str | None) -> None:
    """Check that two ids for one key differ, and map to the same partition."""
    ids = [world.engine.new_id("task", "queue", key) for _ in range(2)]
    assert len({check_id(id) for id in ids}) == 2
    placed = [world.engine.put([world.new(id=id, idempotency_key=key)])[0] for id in ids]
    assert [item.id for item in placed] == (ids if key is None else [ids[0]] * 2)


def test_the_engine_makes_many_ids_for_one_put(world: World) -> None:
    """Check that the ids differ, and map to the partition of a single id made at the same time."""
    single = world.engine.new_id("task", "queue", None)
    ids = world.engine.new_ids(3, "task", "queue")
    assert len({check_id(id) for id in [*ids, single]}) == 4
    assert {partition_of(id) for id in ids} == {partition_of(single)}
    placed = world.engine.put([world.new(id=id) for id in ids])
    assert placed == [Placed(id, PutCode.CREATED) for id in ids]
    assert world.engine.new_ids(0, "task", "queue") == []


def test_nothing_is_put(world: World) -> None:
    assert world.engine.put([]) == []


TOO_LATE: Final[list[dict[str, Any]]] = [
    {"run_after_ms": LATEST_MS + 1},
    {"expires_ms": LATEST_MS + 1},
    {"run_in_ms": MAX_DURATION_MS + 1},
    {"expires_in_ms": MAX_DURATION_MS + 1},
    {"unique": UniqueKey(key="key", period_ms=MAX_DURATION_MS + 1)},
    {"run_after_ms": 1 << 63},
]


@pytest.mark.parametrize("fields", TOO_LATE, ids=lambda fields: next(iter(fields)))
def test_instants_beyond_the_latest_are_refused(world: World, fields: dict[str, Any]) -> None:
    """Reject the job in every engine, even in one that could store it, and store nothing."""
    good = world.new(id=world.new(**fields).id)
    with pytest.raises(EngineError, match=rf"Expected {_named(fields)} of job .* at most \d+"):
        world.engine.put([good, world.new(**fields)])
    assert world.ids() == []


def _named(fields: dict[str, Any]) -> str:
    (name,) = fields
    return "period_ms" if name == "unique" else str(name)


def test_the_latest_instants_are_kept(world: World) -> None:
    scheduled = world.put(run_after_ms=LATEST_MS, expires_ms=LATEST_MS)
    distant = world.put(run_in_ms=MAX_DURATION_MS, expires_in_ms=MAX_DURATION_MS)
    assert (world.get(scheduled).due_ms, world.get(scheduled).expires_ms) == (LATEST_MS, LATEST_MS)
    assert world.get(distant).due_ms == world.now_ms + MAX_DURATION_MS
    assert world.claim().claims == ()


def test_an_unknown_id_is_nowhere(world: World) -> None:
    assert world.engine.get(["nowhere", world.put(), "nowhere"])[::2] == [None, None]


@pytest.mark.parametrize(
    ("run_after_ms", "run_in_ms", "due_ms"),
    [
        (None, 1, START_MS + 1),
        (START_MS + 1, 0, START_MS + 1),
        (START_MS + 5, 9, START_MS + 9),
        (START_MS + 9, 5, START_MS + 9),
        (START_MS - 1, 5, START_MS + 5),
        (None, 10 * 365 * 24 * 3600 * 1000, START_MS + 10 * 365 * 24 * 3600 * 1000),
    ],
)
def test_a_due_time_to_come(
    world: World, run_after_ms: int | None, run_in_ms: int, due_ms: int
) -> None:
    record = world.get(world.put(run_after_ms=run_after_ms, run_in_ms=run_in_ms))
    assert (record.state, record.due_ms) == (State.SCHEDULED, due_ms)


@pytest.mark.parametrize("run_after_ms", [None, 0, START_MS - 1, START_MS])
def test_a_due_time_that_has_passed(world: World, run_after_ms: int | None) -> None:
    record = world.get(world.put(run_after_ms=run_after_ms))
    assert (record.state, record.due_ms) == (State.READY, None)


@pytest.mark.parametrize(("at_ms", "in_ms"), [(START_MS + 5, 9), (START_MS + 9, 5)])
def test_the_earlier_expiry_holds(world: World, at_ms: int, in_ms: int) -> None:
    record = world.get(world.put(expires_ms=at_ms, expires_in_ms=in_ms))
    assert record.expires_ms == START_MS + 5


def test_a_known_id_is_left_as_it_is(world: World) -> None:
    id = world.put(payload=b"first")
    before = world.everything()
    again = world.new(id=id, task="other", queue="other", payload=b"second", priority=9)
    assert world.engine.put([again]) == [Placed(id, PutCode.CREATED)]
    assert world.everything() == before


def test_a_known_id_does_not_bind_a_key(world: World) -> None:
    id = world.new(idempotency_key="key").id
    world.put(id=id)
    world.put(id=id, idempotency_key="key")
    (placed,) = world.engine.put([world.new(idempotency_key="key")])
    assert placed.code is PutCode.CREATED


def test_an_id_repeated_within_a_batch(world: World) -> None:
    first, second = world.new(payload=b"first"), world.new()
    again = world.new(id=first.id, payload=b"again")
    placed = world.engine.put([first, again, second])
    assert placed == [Placed(job.id, PutCode.CREATED) for job in (first, first, second)]
    assert world.get(first.id).payload == b"first"
    assert world.engine.stats().queues == {"queue": {State.READY: 2}}


def test_a_known_key_gives_its_job(world: World) -> None:
    id = world.put(idempotency_key="key", fingerprint="same")
    before = world.everything()
    again = world.new(idempotency_key="key", fingerprint="same")
    assert world.engine.put([again]) == [Placed(id, PutCode.EXISTING)]
    assert world.everything() == before


def test_a_known_key_with_other_arguments(world: World) -> None:
    id = world.put(idempotency_key="key", fingerprint="one")
    other = world.new(idempotency_key="key", fingerprint="two")
    neighbour = world.new()
    assert world.engine.put([other, neighbour]) == [
        Placed(id, PutCode.CONFLICT),
        Placed(neighbour.id, PutCode.CREATED),
    ]
    assert world.engine.get([other.id]) == [None]
    assert world.get(neighbour.id).state is State.READY


@pytest.mark.needs(Capability.MANY_PROCESSES)
@pytest.mark.parametrize("unique", [None, UniqueKey(key="unique", until=Until.START)])
def test_a_key_is_remembered_for_as_long_as_its_producer_wants(
    world: World, unique: UniqueKey | None
) -> None:
    engine = world.variant.open(replace(OPTIONS, idempotency_ms=5_000))
    world.move_clock(world.now_ms)
    job = world.new(idempotency_key="key", unique=unique)
    plain = world.new()
    assert [placed.code for placed in engine.put([job, plain])] == [PutCode.CREATED] * 2
    world.claim()
    world.advance(4_999)
    again = world.new(idempotency_key="key", unique=unique)
    assert world.engine.put([again]) == [Placed(job.id, PutCode.EXISTING)]
    world.advance(1)
    assert world.engine.put([again]) == [Placed(again.id, PutCode.CREATED)]
    world.advance(IDEMPOTENCY_MS - 1)
    late = world.new(idempotency_key="key", unique=unique)
    assert engine.put([late]) == [Placed(again.id, PutCode.EXISTING)]


def test_a_key_twice_within_a_batch(world: World) -> None:
    jobs = [world.new(idempotency_key="key", fingerprint=text) for text in ("a", "a", "b")]
    placed = world.engine.put(jobs)
    assert [item.id for item in placed] == [jobs[0].id] * 3
    assert [item.code for item in placed] == [PutCode.CREATED, PutCode.EXISTING, PutCode.CONFLICT]


def test_a_key_belongs_to_its_task(world: World) -> None:
    one = world.new(task="one", idempotency_key="key")
    two = world.new(task="two", idempotency_key="key")
    assert [placed.id for placed in world.engine.put([one, two])] == [one.id, two.id]


def test_a_key_is_remembered_when_its_job_is_gone(world: World) -> None:
    id = world.put(idempotency_key="key")
    claim = world.take()
    world.finish(Succeeded(id=id, token=claim.token))
    world.advance(IDEMPOTENCY_MS - 1)
    world.engine.tend()
    assert world.engine.get([id]) == [None]
    again = world.new(idempotency_key="key")
    assert world.engine.put([again]) == [Placed(id, PutCode.EXISTING)]


def test_the_key_of_a_discarded_job_is_free(world: World) -> None:
    """Check that the caller may enqueue a job again after an operator removed it."""
    id = world.put(idempotency_key="key", fingerprint="one")
    world.put(idempotency_key="other")
    world.engine.cancel([id])
    world.engine.discard([id])
    again = world.new(idempotency_key="key", fingerprint="two")
    assert world.engine.put([again]) == [Placed(again.id, PutCode.CREATED)]
    other = world.engine.put([world.new(idempotency_key="other")])
    assert [placed.code for placed in other] == [PutCode.EXISTING]


def test_a_key_is_forgotten_in_time(world: World) -> None:
    world.put(idempotency_key="key", fingerprint="one")
    world.advance(IDEMPOTENCY_MS)
    again = world.new(idempotency_key="key", fingerprint="two")
    assert world.engine.put([again]) == [Placed(again.id, PutCode.CREATED)]
    repeated = world.new(idempotency_key="key", fingerprint="two")
    assert world.engine.put([repeated]) == [Placed(again.id, PutCode.EXISTING)]


def test_a_job_that_goes_leaves_a_key_that_is_another_jobs_by_now(world: World) -> None:
    first = world.put(idempotency_key="key")
    world.advance(IDEMPOTENCY_MS)
    world.engine.tend()
    second = world.put(idempotency_key="key")
    world.engine.cancel([first])
    world.engine.discard([first])
    assert world.engine.put([world.new(idempotency_key="key")]) == [
        Placed(second, PutCode.EXISTING)
    ]


@pytest.mark.parametrize(
    "payload", [b"", b"\x00", bytes(range(256)), "ä🙂".encode(), b"x" * (1 << 20)]
)
def test_a_payload_comes_back_unchanged(world: World, payload: bytes) -> None:
    id = world.put(payload=payload)
    assert world.get(id).payload == payload
    assert world.take().payload == payload


def test_more_bytes_than_a_batch_has(world: World) -> None:
    payloads = [bytes([number]) * (BATCH_BYTES // 3) for number in range(7)]
    jobs = [world.new(payload=payload) for payload in payloads]
    assert [placed.id for placed in world.engine.put(jobs)] == [job.id for job in jobs]
    assert [world.get(job.id).payload for job in jobs] == payloads
    assert {placed.code for placed in world.engine.put(jobs)} == {PutCode.CREATED}


def test_names_of_any_kind(world: World) -> None:
    names = ["a'b", 'a"b', "a b", "ä🙂", "%_*", "a:b/c", "{a}", "x" * 200]
    for name in names:
        world.put(task=name, queue=name, idempotency_key=name)
    for name in names:
        (claim,) = world.claim(queues=(name,)).claims
        assert (claim.task, claim.queue) == (name, name)


def test_an_id_may_have_64_characters(world: World) -> None:
    id = world.put(id="0_-" + "z" * 61)
    assert world.take().id == id
