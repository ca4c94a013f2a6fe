"""Several partitions: the places of jobs, and the merged results of operations over all of them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import pytest
from msgspec.structs import replace

from tests.engine.conftest import OpenRedis, new_job
from tests.redis_server import RedisServer
from tests.soon import is_once
from windlass import QueueFull, Windlass
from windlass.core.ids import moved_id, partition_of
from windlass.core.queues.settings import task_key
from windlass.core.states import State
from windlass.engine.contract import (
    BITE,
    Batch,
    Beat,
    NewJob,
    Plan,
    Pulse,
    PutCode,
    QueueChange,
    SessionCommand,
    Succeeded,
    UniqueKey,
    Unroutable,
    Waiter,
    WakeUp,
)
from windlass.engine.redis import encode, keys
from windlass.engine.redis import partitions as placing
from windlass.engine.redis.client.server import RedisCall, Reply
from windlass.engine.redis.engine import RedisEngine
from windlass.engine.redis.partitions import Partitions
from windlass.errors import EngineError
from windlass.testing.contract.world import claim_jobs


@pytest.fixture
def engine(server: RedisServer, open_redis: OpenRedis) -> RedisEngine:
    return open_redis(server.url(partitions=4))


#: The original, whatever other tests put in its place.
ANY_OF = placing.any_of
#: The lease of the engines that `open_redis` opens.
LEASE_S = 2.0


def made(engine: RedisEngine, key: str | None = None) -> NewJob:
    return new_job(id=engine.new_id("t", "q", key), idempotency_key=key)


def test_a_batch_stays_together_and_the_next_goes_elsewhere(engine: RedisEngine) -> None:
    seen = []
    for _ in range(4):
        jobs = [made(engine) for _ in range(5)]
        (partition,) = {partition_of(job.id) for job in jobs}
        seen.append(partition)
        engine.put(jobs)
    assert sorted(seen) == [0, 1, 2, 3]


def test_producers_that_live_for_one_job_leave_no_partition_empty(
    server: RedisServer, open_redis: OpenRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placing, "any_of", ANY_OF)
    url = server.url(partitions=4)
    begun = {partition_of(open_redis(url).new_id("t", "q", None)) for _ in range(99)}
    assert begun == {0, 1, 2, 3}


def test_a_key_leads_to_one_partition(engine: RedisEngine) -> None:
    for key in ("a", "b", "c"):
        jobs = [made(engine, key) for _ in range(5)]
        codes = [placed.code for job in jobs for placed in engine.put([job])]
        assert codes == [PutCode.CREATED, *[PutCode.EXISTING] * 4]


def test_a_key_at_the_wrong_place_is_refused(engine: RedisEngine) -> None:
    partitions = Partitions(4)
    right = partitions.of_key("t", "key")
    wrong = next(f"id-{n}" for n in range(99) if partitions.of_id(f"id-{n}") != right)
    with pytest.raises(EngineError, match=r"Engine\.new_id"):
        engine.put([new_job(id=wrong, idempotency_key="key")])


def test_a_copy_at_the_wrong_place_is_refused(engine: RedisEngine) -> None:
    """Another job with its key would not find it."""
    unique = UniqueKey(key="key")
    right = new_job(id=engine.new_id("t", "q", None, "key"), unique=unique)
    engine.put([right])
    (copy,) = engine.read_copies([right.id])
    assert copy is not None
    wrong = moved_id(right.id, (partition_of(right.id) + 1) % 4)
    assert engine.copied_id(wrong, "t", "key") == right.id
    with pytest.raises(EngineError, match=r"Engine\.copied_id"):
        engine.put_copies([replace(copy, record=replace(copy.record, id=wrong))])


def test_any_id_has_a_place_that_never_changes() -> None:
    """These numbers decide where jobs are stored: if they change, jobs are not found again."""
    places = [Partitions(4).of_id(f"job-{number}") for number in range(8)]
    assert places == [1, 3, 1, 3, 0, 2, 0, 2]
    assert {Partitions(1).of_id(id) for id in ("x", "job-1")} == {0}


def test_an_id_made_for_more_partitions_has_a_place(engine: RedisEngine) -> None:
    wide = RedisEngine(engine._address.__class__(host="h", partitions=1024), engine._options)
    for _ in range(50):
        job = made(wide)
        engine.put([job])
        assert engine.get([job.id]) != [None]


def test_unroutable_jobs_are_adopted_in_every_partition(engine: RedisEngine) -> None:
    """The first partition has more than one batch: a claim may begin with any partition."""
    for _ in range(4):  # each in the next partition
        engine.put([made(engine) for _ in range(BITE + 1)])
    batches = [claim_jobs(engine, "worker", f"nonce-{number}", Plan(), 500) for number in range(2)]
    held = [Unroutable(id=one.id, token=one.token) for each in batches for one in each.claims]
    engine.finish(held)
    assert len(held) == 4 * (BITE + 1)
    assert engine.adopt(["t", "other"]) == 4 * BITE
    assert engine.adopt(["t", "other"]) == 4
    assert engine.check() == []


@pytest.mark.parametrize("reached", range(4))
def test_a_pause_that_reached_one_partition_is_listed(engine: RedisEngine, reached: int) -> None:
    """A caller may die between two partitions. What waits there must not wait unseen."""
    pause = QueueChange(paused=True)
    for name in ("q", task_key("t")):
        engine._ask(reached, "queue", encode.of_change(name, pause, 4))
    assert [(record.queue, record.paused) for record in engine.queues()] == [("q", True)]
    assert engine.paused_tasks() == ["t"]
    engine.resume_task("t")
    engine.change_queue("q", QueueChange(paused=False))
    assert (engine.queues(), engine.paused_tasks()) == ([], [])


def test_many_partitions_adopt_few_each(server: RedisServer, open_redis: OpenRedis) -> None:
    engine = open_redis(server.url(partitions=64))
    for _ in range(2):
        engine.put([made(engine) for _ in range(20)])
    claims = claim_jobs(engine, "worker", "nonce", Plan(), 100).claims
    engine.finish([Unroutable(id=one.id, token=one.token) for one in claims])
    each = 4 * BITE // 64
    assert [engine.adopt(["t"]) for _ in range(3)] == [2 * each, 40 - 2 * each, 0]


@pytest.mark.parametrize("owns_sessions", [True, False])
def test_a_repeated_claim_leases_nothing_in_partitions_that_do_not_know_it(
    server: RedisServer, open_redis: OpenRedis, owns_sessions: bool
) -> None:
    engine = open_redis(server.url(partitions=4), owns_sessions=owns_sessions)
    engine.put([new_job(number) for number in range(12)])
    first = claim_jobs(engine, "worker", "nonce-1", Plan(), 5)
    again = claim_jobs(engine, "worker", "nonce-1", Plan(), 12)
    assert (len(first.claims), again.claims) == (5, first.claims)


@pytest.mark.parametrize("owns_sessions", [True, False])
@pytest.mark.parametrize("queues", [(), ("q", "other")])
def test_a_busy_session_that_one_object_owns_needs_few_calls(
    server: RedisServer,
    open_redis: OpenRedis,
    queues: tuple[str, ...],
    owns_sessions: bool,
) -> None:
    """One call to claim, in the partition of the jobs that it ends. With several queues, or with
    other engine objects that may repeat a claim, all partitions are asked first."""
    engine = open_redis(server.url(partitions=4), owns_sessions=owns_sessions)
    partitions, made = Partitions(4), engine._claimer._make_call
    busy = partitions.of_session("worker")
    engine.put([new_job(id=id) for id in ids_in(partitions, busy, 100)])
    calls: list[str] = []

    def count(partition: int, name: str, packed: Sequence[bytes]) -> RedisCall:
        calls.append(name)
        return made(partition, name, packed)

    plan = Plan(queues=queues)
    first = engine.turn("worker", (), "nonce-1", plan, 10).batch.claims
    engine._claimer._make_call = count
    outcomes = [Succeeded(id=claim.id, token=claim.token) for claim in first]
    assert len(engine.turn("worker", outcomes, "nonce-2", plan, 10).batch.claims) == 10
    assert calls.count("turn") <= (1 if owns_sessions and not queues else 5)
    asked_first = "prepare" if queues else "nonce"
    assert calls.count(asked_first) == (0 if owns_sessions and not queues else 4)


@pytest.mark.parametrize("queues", [(), ("q",), ("other", "q")])
def test_objects_that_make_the_same_claim_at_once_find_the_same_jobs(
    server: RedisServer, open_redis: OpenRedis, queues: tuple[str, ...]
) -> None:
    """Both have asked all partitions for the nonce before one of them leases."""
    url = server.url(partitions=4)
    first, second = open_redis(url), open_redis(url)
    for _ in range(8):
        first.put([made(first)])
    plan = Plan(queues=queues)
    found: list[Batch] = []
    run = first._claimer._run

    def run_late(calls: Sequence[RedisCall]) -> list[Reply]:
        """After the first replies, the other object makes the claim."""
        replies = run(calls)
        if not found:
            found.append(claim_jobs(second, "worker", "nonce-1", plan, 5))
        return replies

    first._claimer._run = run_late
    batch = claim_jobs(first, "worker", "nonce-1", plan, 5)
    assert {claim.id for claim in batch.claims} == {claim.id for claim in found[0].claims}
    assert len(batch.claims) == 5
    assert first.stats().queues["q"][State.RUNNING] == 5


def test_a_released_nonce_is_used_up_where_the_session_is_not_known(
    server: RedisServer, open_redis: OpenRedis
) -> None:
    """A delayed claim, by another engine object, arrives after its release."""
    url = server.url(partitions=4)
    releasing, delayed = open_redis(url), open_redis(url)
    releasing.put([new_job(number) for number in range(12)])
    releasing.release("worker", "nonce-1")
    assert claim_jobs(delayed, "worker", "nonce-1", Plan(), 12).claims == ()
    assert len(claim_jobs(delayed, "worker", "nonce-2", Plan(), 12).claims) == 12


def test_a_put_wakes_as_many_waiters_as_it_has_jobs(
    server: RedisServer, open_redis: OpenRedis
) -> None:
    url = server.url(partitions=4)
    producer = open_redis(url)
    producer.stats()
    waiters = [open_redis(url) for _ in range(3)]
    for waiter in waiters:
        waiter.stats()

    def wait(engine: RedisEngine) -> bool:
        """Whether it was woken, and did not only poll."""
        ready.wait()
        return bool(engine.wait([Waiter("worker", Plan(queues=("q",)))], 500))

    def are_two_woken() -> bool:
        with ThreadPoolExecutor() as pool:
            woken = [pool.submit(wait, waiter) for waiter in waiters]
            ready.wait()
            time.sleep(0.1)  # nothing shows that the others are registered
            producer.put([made(producer), made(producer)])
            return sum(one.result() for one in woken) == 2

    ready = threading.Barrier(4)
    assert is_once(are_two_woken)


def test_a_woken_session_leaves_the_lists_of_all_partitions(
    server: RedisServer, open_redis: OpenRedis
) -> None:
    """Otherwise the other partitions spend their next wake-ups on it."""
    namespace = "stale"
    engine = open_redis(server.url(namespace=namespace, partitions=4))
    engine.beat([Beat(session="idle")])
    waiters = [Waiter("idle", Plan())]
    assert engine.wait(waiters, 10) == []
    engine.put([new_job(1)])
    assert engine.wait(waiters, 5_000) == [WakeUp("idle")]
    assert engine.wait([], 0) == []
    engine.wait([Waiter("other", Plan(queues=("q",)))], 0)  # the next registration
    registered = [
        server.tell("HVALS", keys.key(namespace, partition, "waiters")) for partition in range(4)
    ]
    assert not [names for names in registered if b"idle" in names]


def test_a_waiter_looks_when_the_lease_of_another_worker_ends(
    server: RedisServer, open_redis: OpenRedis
) -> None:
    """Its next renewal would be later: with four partitions there is one every four seconds."""
    url = server.url(partitions=4)
    engine, waiting = open_redis(url), open_redis(url)
    engine.put([new_job(1)])
    assert claim_jobs(engine, "silent", "nonce", Plan(), 1).claims
    engine.beat([Beat(session="silent")])
    silent_since = time.monotonic()
    woken: list[WakeUp] = []
    while not woken and time.monotonic() < silent_since + 10:
        engine.beat([Beat(session="living")])
        woken = waiting.wait([Waiter("idle", Plan())], 300)
    assert woken == [WakeUp("idle")]
    assert time.monotonic() - silent_since < LEASE_S + 1.0


@pytest.mark.parametrize("owns_sessions", [True, False])
def test_a_partition_that_never_runs_dry_does_not_starve_the_others(
    server: RedisServer, open_redis: OpenRedis, owns_sessions: bool
) -> None:
    engine = open_redis(server.url(partitions=4), owns_sessions=owns_sessions)
    partitions = Partitions(4)
    busy = partitions.of_session("worker")
    engine.put([new_job(id=id) for id in ids_in(partitions, busy, 200)])
    (waiting,) = ids_in(partitions, (busy + 1) % 4, 1)
    engine.put([new_job(id=waiting)])
    claimed: list[str] = []
    for number in range(100):
        batch = claim_jobs(engine, "worker", f"{number:08x}", Plan(), 1)
        claimed += [claim.id for claim in batch.claims]
    assert waiting in claimed


def ids_in(partitions: Partitions, partition: int, number: int) -> list[str]:
    ids = (f"id-{n}" for n in range(100_000))
    return list(islice((id for id in ids if partitions.of_id(id) == partition), number))


# ------------------------------------------------------------------------------------- sessions


def test_a_heartbeat_is_one_round_trip(
    engine: RedisEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it lists, and whatever its reply has to say."""
    partitions = Partitions(4)
    ids = [id for number in range(4) for id in ids_in(partitions, number, 2)]
    engine.put([new_job(id=id) for id in ids])
    claims = [claim_jobs(engine, "worker", f"{n:08x}", Plan(), 4).claims for n in range(3)]
    held = tuple(claim.id for batch in claims for claim in batch)
    assert sorted(held) == sorted(ids)
    engine.command(["worker"], SessionCommand.QUIET)
    engine.cancel(ids[:1])
    for _ in range(2):  # then its script is known, and no call opens again
        engine.beat([Beat(session="worker")])
    sent: list[int] = []
    run = engine._server.run

    def note(calls: Sequence[RedisCall], deadline: float) -> list[Reply]:
        sent.append(len(calls))
        return run(calls, deadline)

    monkeypatch.setattr(engine._server, "run", note)
    (pulse,) = engine.beat([Beat(session="worker", info=b"me", nonces=(), held=(*held, "lost"))])
    assert (pulse.lost, pulse.cancel) == (("lost",), (ids[0],))
    assert pulse.command is SessionCommand.QUIET
    assert sent == [4]


def test_a_command_that_reached_only_some_partitions_counts(engine: RedisEngine) -> None:
    partitions = Partitions(4)
    engine.put([new_job(id=id) for n in range(4) for id in ids_in(partitions, n, 1)])
    assert len(claim_jobs(engine, "worker", "nonce", Plan(), 4).claims) == 4

    def command(number: int, command: SessionCommand) -> None:
        engine._ask(number, "command", [command.encode(), b"worker"])

    command(2, SessionCommand.QUIET)
    command(1, SessionCommand.STOP)
    assert engine.beat([Beat(session="worker")])[0].command is SessionCommand.STOP
    assert [record.command for record in engine.sessions()] == [SessionCommand.STOP]
    assert engine.command(["worker"], SessionCommand.QUIET) == [True]
    assert engine.beat([Beat(session="worker")])[0].command is SessionCommand.QUIET


def test_a_session_that_is_dead_in_one_partition_gets_no_commands(engine: RedisEngine) -> None:
    partitions = Partitions(4)
    engine.put([new_job(id=id) for n in range(4) for id in ids_in(partitions, n, 1)])
    assert len(claim_jobs(engine, "worker", "nonce", Plan(), 4).claims) == 4
    engine._ask(1, "close", encode.of_texts(("worker", "suspect", "ended")))
    assert engine.command(["worker"], SessionCommand.STOP) == [False]
    assert engine.beat([Beat(session="worker")]) == [Pulse(session="worker", alive=False)]


# --------------------------------------------------------------------------------- a full queue


@pytest.fixture
def app(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Windlass]:
    """An app with a queue for two jobs in each of four partitions; calls begin with the first."""
    monkeypatch.setattr(placing, "any_of", lambda number: 0)
    monkeypatch.setattr(Partitions, "advance", lambda self: None)
    with Windlass(server.url(partitions=4)) as app:
        app.task(name="load", queue="imports")(load)
        app.queue("imports").set(max_waiting=8)
        yield app


def load(number: int) -> None: ...


@pytest.mark.parametrize("way", ["enqueue", "aenqueue", "enqueue_many", "aenqueue_many"])
def test_a_queue_is_full_when_all_partitions_are(app: Windlass, way: str) -> None:
    task = app.tasks["load"]
    made = []
    for number in range(8):
        match way:
            case "enqueue":
                made.append(task.enqueue(number))
            case "aenqueue":
                made.append(asyncio.run(task.aenqueue(number)))
            case "enqueue_many":
                made += task.enqueue_many([(number,)])
            case _:
                made += asyncio.run(task.aenqueue_many([(number,)]))
    assert Counter(partition_of(job.id) for job in made) == {0: 2, 1: 2, 2: 2, 3: 2}
    assert {job.info().task for job in made} == {"load"}
    with pytest.raises(QueueFull):
        task.enqueue(9)


def test_a_batch_that_one_partition_has_no_room_for_goes_on_in_the_next(app: Windlass) -> None:
    with pytest.raises(QueueFull) as caught:
        app.tasks["load"].enqueue_many((number,) for number in range(9))
    assert caught.value.__notes__ == ["8 jobs were enqueued before this."]


def test_a_job_with_a_key_has_the_room_of_its_partition_alone(app: Windlass) -> None:
    keys = [key for key in map(str, range(99)) if Partitions(4).of_key("load", key) == 1][:3]
    *fit, last = (app.tasks["load"].using(idempotency_key=key) for key in keys)
    for task in fit:
        task.enqueue(1)
    with pytest.raises(QueueFull):
        last.enqueue(1)


def test_only_some_of_very_many_partitions_are_tried(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placing, "any_of", lambda number: 0)
    monkeypatch.setattr(Partitions, "advance", lambda self: None)
    with Windlass(server.url(partitions=16)) as app:
        task = app.task(name="load", queue="imports")(load)
        app.queue("imports").set(max_waiting=16)
        for number in range(8):
            task.enqueue(number)
        with pytest.raises(QueueFull):
            task.enqueue(9)
