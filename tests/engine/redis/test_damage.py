"""An index entry that points to no job, or that is missing, stops nothing else: the entry is
dropped and counted, `check` reports the rest, and `repair` fixes it."""

from __future__ import annotations

import random
import struct
import threading
from collections.abc import Iterator, Sequence
from itertools import count

import msgspec
import pytest

from tests.engine.conftest import OpenRedis, repair_all
from tests.redis_server import RedisServer
from windlass.core.history import ENQUEUED, HOUR_MS, MINUTE_MS
from windlass.core.states import Reason, State
from windlass.engine.contract import (
    IDEMPOTENCY_MS,
    Beat,
    Buried,
    Claim,
    Filter,
    JobChange,
    NewJob,
    Plan,
    QueueChange,
    Repaired,
    Retried,
    Revival,
    ScheduleChange,
    Succeeded,
    UniqueKey,
    Unroutable,
    Waiter,
)
from windlass.engine.redis import keys
from windlass.engine.redis.client import scripts
from windlass.engine.redis.engine import RedisEngine
from windlass.testing.contract.world import OUTCOMES, claim_jobs

GHOST = b"ghost"
RANK_AND_PLACE = b"\0\0\0\0" + b"\0\0\0\0\0\0\0"
JOBS = 20


class Place:
    """An engine, and direct access to its keys."""

    def __init__(self, engine: RedisEngine, namespace: str) -> None:
        self.engine = engine
        self._namespace = namespace
        self._nonces = (f"{number:032x}" for number in count(1))

    def tell(self, command: bytes, name: str, *words: bytes) -> object:
        server, key = self.engine._server, keys.key(self._namespace, 0, name).encode()
        (reply,) = server.ask([scripts.pack(command, key, *words)], server.deadline())
        return reply

    def put(self, number: int = JOBS, **fields: object) -> list[str]:
        jobs = [self._new(fields) for _ in range(number)]
        self.engine.put(jobs)
        return [job.id for job in jobs]

    def _new(self, fields: dict[str, object]) -> NewJob:
        given: dict[str, object] = {"task": "t", "queue": "q", "payload": b"x", **fields}
        unique = given.get("unique")
        key = unique.key if isinstance(unique, UniqueKey) else None
        idempotency = given.get("idempotency_key")
        new_id = self.engine.new_id("t", "q", str(idempotency) if idempotency else None, key)
        return convert({"id": new_id, **given})

    def claim(self, limit: int = 100, session: str = "s", plan: Plan | None = None) -> list[Claim]:
        batch = claim_jobs(self.engine, session, next(self._nonces), plan or Plan(), limit)
        return list(batch.claims)

    def run_all(self) -> list[str]:
        """Claim and end all jobs; return their ids."""
        ran: list[str] = []
        for _ in range(20):
            claims = self.claim()
            self.engine.finish([success(claim) for claim in claims])
            ran += [claim.id for claim in claims]
            self.engine.tend()
        return ran

    def repair(self, *, change: bool) -> Repaired:
        """Run all batches of a repair."""
        return repair_all(self.engine, change=change)


def convert(fields: dict[str, object]) -> NewJob:
    """Make a job from fields that vary from test to test."""
    unique = fields.pop("unique", None)
    job = msgspec.convert(fields, NewJob)
    return msgspec.structs.replace(job, unique=unique)


def success(claim: Claim, result_ttl_ms: int = 1_000) -> Succeeded:
    return Succeeded(id=claim.id, token=claim.token, result=b"1", result_ttl_ms=result_ttl_ms)


@pytest.fixture
def place(server: RedisServer, open_redis: OpenRedis, request: pytest.FixtureRequest) -> Place:
    namespace = f"damage-{random.SystemRandom().getrandbits(40):x}"
    return Place(open_redis(server.url(namespace=namespace)), namespace)


def entry(command: bytes, name: str, *words: bytes) -> tuple[bytes, str, tuple[bytes, ...]]:
    return command, name, words


#: what -> an entry that points to no job
GHOSTS = {
    "ready": entry(b"ZADD", "ready", b"0", b"0q\0" + RANK_AND_PLACE + GHOST),
    "ready, too short": entry(b"ZADD", "ready", b"0", b"0q\0x"),
    "ready, a suspect": entry(b"ZADD", "ready", b"0", b"1q\0" + RANK_AND_PLACE + GHOST),
    "ready, a line of its own": entry(b"ZADD", "ready", b"0", b"0a\0" + RANK_AND_PLACE + GHOST),
    "ready, no line": entry(b"ZADD", "ready", b"0", b"0q"),
    "lines": entry(b"ZADD", "lines", b"0", b"0\0\0" + b"\0" * 12 + b"nowhere"),
    "lines, twice": entry(b"ZADD", "lines", b"0", b"0\0\0" + b"\0" * 12 + b"q"),
    "due": entry(b"ZADD", "due", b"1", b"\0" * 7 + GHOST),
    "due, too short": entry(b"ZADD", "due", b"1", b"x"),
    "parked": entry(b"ZADD", "parked", b"0", b"t\0" + b"\0" * 7 + GHOST),
    "held": entry(b"ZADD", "held", b"0", b"s\0" + b"0" * 32 + b"\0" + GHOST),
    "held, too short": entry(b"ZADD", "held", b"0", b"s\0x"),
    "asked": entry(b"ZADD", "asked", b"0", b"s\0" + GHOST),
    "keep": entry(b"ZADD", "keep", b"1", GHOST),
    "cancelled": entry(b"ZADD", "cancelled", b"1", GHOST),
    "dead": entry(b"ZADD", "dead", b"1", GHOST),
    "deaths": entry(b"ZADD", "deaths", b"0", b"aa\0v1\0q\0t\0" + b"\0" * 6 + GHOST),
    "deaths, too short": entry(b"ZADD", "deaths", b"0", b"aa\0v1"),
    "dead_groups": entry(b"ZADD", "dead_groups", b"3", b"aa\0v1\0q\0t"),
    "unique": entry(b"ZADD", "unique", b"0", b"1:tk\0" + b"0" + GHOST),
    "steps": entry(b"ZADD", "steps", b"0", GHOST + b"\0charge\0receipt"),
    "steps, too short": entry(b"ZADD", "steps", b"0", GHOST),
    "lease": entry(b"ZADD", "lease", b"1", GHOST),
    "key_expiry": entry(b"ZADD", "key_expiry", b"1", GHOST),
    "schedule_names": entry(b"ZADD", "schedule_names", b"0", GHOST),
    "schedule_due": entry(b"ZADD", "schedule_due", b"1", GHOST),
    "body": entry(b"HSET", "body", GHOST, b"x"),
    "counter": entry(b"HSET", "count", b"q\0ready", b"99"),
    "counter of nothing": entry(b"HSET", "count", b"ghost\0dead", b"3"),
    "settings": entry(b"HSET", "meta", b"queues", b"7"),
    "sentinel": entry(b"ZREM", "dead", b""),
}


@pytest.mark.parametrize("what", GHOSTS)
def test_a_ghost_stops_nothing_and_is_removed(place: Place, what: str) -> None:
    command, name, words = GHOSTS[what]
    old = place.claim(session="early")
    early = place.put(1)
    (claim,) = place.claim(session="early")
    place.engine.finish([success(claim)])
    ids = place.put()
    place.engine.change_schedules([a_schedule()])
    assert place.engine.check() == []
    place.tell(command, name, *words)
    assert place.engine.check()

    unique = place.put(1, unique=UniqueKey(key="k"))
    assert place.put(1, unique=UniqueKey(key="k")) != unique  # an id of ours, not stored
    place.engine.adopt(["t"])
    place.engine.beat([Beat(session="s", nonces=(), newest="f" * 32), Beat(session="early")])
    assert place.engine.due_schedules().records[0].name == "nightly"
    assert len(place.engine.list_schedules()) == 1
    assert len(place.engine.find(Filter()).records) == JOBS + 2
    place.engine.find(Filter(state=State.DEAD))
    place.engine.stats()
    assert sorted(place.run_all()) == sorted([*ids, *unique])
    place.engine.close("early", [], "ended")
    place.engine.clock_offset_ms = IDEMPOTENCY_MS * 30
    for _ in range(3):
        place.engine.tend()
    assert place.engine.get([*early, *ids]) == [None] * (JOBS + 1)
    assert not old

    would = place.repair(change=False)
    assert place.repair(change=False) == would
    place.repair(change=True)
    assert place.engine.check() == []
    assert place.repair(change=True) == Repaired()


@pytest.mark.parametrize(
    "what", ["ready", "due", "keep", "cancelled", "dead", "held", "parked", "asked", "lines"]
)
def test_ghosts_are_counted(place: Place, what: str) -> None:
    place.put()
    place.claim(1)
    command, name, words = GHOSTS[what]
    place.tell(command, name, *words)
    place.engine.adopt(["t"])
    place.engine.beat([Beat(session="s", nonces=(), newest="f" * 32)])
    place.run_all()
    assert place.engine.stats().totals["orphans"] >= 1


def test_no_repair_is_needed_where_nothing_is_wrong(place: Place) -> None:
    live(place)
    assert place.engine.check() == []
    assert place.repair(change=False) == Repaired()
    assert place.repair(change=True) == Repaired()


def test_an_entry_of_a_job_that_runs_does_not_start_it_again(place: Place) -> None:
    (id,) = place.put(1)
    (member,) = members(place, "ready")
    (claim,) = place.claim()
    place.tell(b"ZADD", "ready", b"0", member)
    others = place.put(3)
    place.engine.tend()  # lists the line again
    assert sorted(other.id for other in place.claim()) == sorted(others)
    place.engine.finish([success(claim)])
    (record,) = place.engine.get([id])
    assert record is not None
    assert record.state is State.SUCCEEDED


@pytest.mark.parametrize("what", ["ready", "ready, too short", "ready, no line"])
def test_a_job_can_be_put_while_a_session_waits(
    place: Place, server: RedisServer, open_redis: OpenRedis, what: str
) -> None:
    """The hand-off examines the jobs that come before the new one."""
    waiting = open_redis(server.url(namespace=place._namespace))
    place.engine.beat([Beat(session="idle", info=b"here")])
    assert waiting.wait([Waiter("idle", Plan(), "1" * 32)], 1) == []
    command, name, words = GHOSTS[what]
    place.tell(command, name, *words)
    (id,) = place.put(1)
    place.engine.tend()  # lists the line again
    assert id in [claim.id for claim in place.claim()] or place.engine.sessions()[0].held == (id,)


def test_emptying_a_queue_leaves_what_runs(place: Place) -> None:
    place.put(1)
    (member,) = members(place, "ready")
    (claim,) = place.claim()
    place.tell(b"ZADD", "ready", b"0", member)
    place.put(2)
    assert place.engine.purge("q").number == 2
    assert [record.id for record in place.engine.find(Filter()).records] == [claim.id]


def test_a_job_without_a_body_is_given_out_to_be_buried(place: Place) -> None:
    (id,) = place.put(1, payload=b"x" * 2_000)
    place.tell(b"HDEL", "body", id.encode())
    assert "has no body" in "".join(place.engine.check())
    (claim,) = place.claim()
    assert claim.payload == b""
    buried = Buried(id=id, token=claim.token, reason=Reason.UNDECODABLE, error=b"empty")
    place.engine.finish([buried])
    (record,) = place.engine.get([id])
    assert record is not None
    assert (record.state, record.payload) == (State.DEAD, b"")
    assert "gets an empty one" in place.repair(change=True).fixed[0]
    assert place.engine.check() == []


def test_lines_that_were_lost_are_found_by_upkeep(place: Place) -> None:
    ids = [id for number in range(50) for id in place.put(1, queue=f"q{number}")]
    for entry in members(place, "lines"):
        place.tell(b"ZREM", "lines", entry)
    assert place.claim() == []
    assert "not listed in lines" in "".join(place.engine.check())
    assert sorted(place.run_all()) == sorted(ids)


def members(place: Place, name: str) -> list[bytes]:
    found = place.tell(b"ZRANGE", name, b"0", b"-1")
    assert isinstance(found, list)
    return [member for member in found if member]


def a_schedule() -> ScheduleChange:
    return ScheduleChange(
        name="nightly", expected="", revision="r", due_ms=1_000, note=b"n", body=b"body"
    )


@pytest.mark.parametrize("index", ["parked", "due"])
@pytest.mark.parametrize("is_lost", [True, False])
def test_held_jobs_of_a_paused_task_are_repaired(place: Place, index: str, is_lost: bool) -> None:
    """Their entries are lost, or have become entries of ready jobs too."""
    engine = place.engine
    ids = place.put(3, task="paused")
    engine.pause_task("paused")
    assert not place.claim(9)
    before = engine.get(ids)
    for member in members(place, index):
        place.tell(b"ZREM", index, member) if is_lost else place.tell(
            b"ZADD", "ready", b"0", member
        )
    assert engine.check()
    assert place.repair(change=True).fixed
    assert engine.check() == []
    assert engine.get(ids) == before
    assert not place.claim(9)
    assert engine.resume_task("paused") == 3
    assert sorted(place.run_all()) == sorted(ids)


# ------------------------------------------------------------------------------------ anything


def live(place: Place) -> None:
    """Jobs in every state and index."""
    engine = place.engine
    engine.change_queue("aged", QueueChange(ageing_ms=60_000))
    engine.change_queue("shut", QueueChange(paused=True))
    for queue in ("q", "aged", "shut", "q+gpu"):
        place.put(5, queue=queue)
    place.put(3, run_in_ms=3_600_000)
    place.put(1, unique=UniqueKey(key="k"))
    place.put(1, idempotency_key="i")
    claims = place.claim(8, session="busy")
    one, two, three, *_ = claims
    engine.finish(
        [
            success(one),
            Buried(
                id=two.id,
                token=two.token,
                reason=Reason.REJECTED,
                error=b"no",
                fingerprint="aa",
            ),
            Unroutable(id=three.id, token=three.token),
        ]
    )
    engine.cancel([claims[4].id, *place.put(1)])
    engine.change_schedules([a_schedule()])


#: Indexes and counters: all that follows from records.
DERIVED = [
    *("ready", "lines", "due", "parked", "held", "asked", "keep", "cancelled", "dead", "unique"),
    *("lease", "key_expiry", "schedule_names", "schedule_due", "count", "deaths", "dead_groups"),
]


@pytest.mark.parametrize("seed", range(12))
def test_anything_that_follows_from_records_can_be_repaired(place: Place, seed: int) -> None:
    live(place)
    engine, rng = place.engine, random.Random(seed)
    before = engine.stats().queues
    records = engine.get([record.id for record in engine.find(Filter(), limit=100).records])
    for _ in range(12):
        damage(place, rng)
    place.repair(change=True)
    assert engine.check() == []
    assert place.repair(change=True) == Repaired()
    assert engine.stats().queues == before
    found = engine.get([record.id for record in engine.find(Filter(), limit=100).records])
    assert found == records
    engine.change_queue("shut", QueueChange(paused=False))
    ready = sum(states.get(State.READY, 0) for states in before.values())
    held = before["q"].get(State.READY, 0) and 1  # the unroutable one
    ran = [*place.run_all(), *(claim.id for claim in place.claim(plan=Plan(labels=("gpu",))))]
    assert len(ran) == ready - held


def damage(place: Place, rng: random.Random) -> None:
    name = rng.choice(DERIVED)
    if name == "count":
        field = rng.choice([b"q\0ready", b"aged\0running", b"none\0dead", b"q+gpu\0ready"])
        place.tell(b"HINCRBY", name, field, b"%d" % rng.choice([-2, 1, 40]))
        return
    there = members(place, name)
    if rng.random() < 0.5 and there:
        place.tell(b"ZREM", name, rng.choice(there))
    elif there and rng.random() < 0.5:
        place.tell(b"ZADD", name, b"1", rng.choice(there) + b"x")
    else:
        place.tell(b"ZADD", name, b"1", rng.randbytes(rng.randrange(1, 20)))


# ------------------------------------------------------------------------------ while workers run


def churn(place: Place, stop: threading.Event) -> Iterator[Sequence[str]]:
    number = 0
    while not stop.is_set():
        number += 1
        yield place.put(3, queue=f"churn{number % 7}")
        claims = place.claim(2, session="churner")
        place.engine.finish([success(claim) for claim in claims])
        place.engine.purge(f"churn{(number + 3) % 7}")


def test_counters_are_exact_though_workers_go_on(
    place: Place, server: RedisServer, open_redis: OpenRedis
) -> None:
    for at in range(6):
        place.put(400, queue=f"q{at}")
    url = server.url(namespace=place._namespace)
    other = Place(open_redis(url), place._namespace)
    stop, is_under_way = threading.Event(), threading.Event()

    def work() -> None:
        for _ in churn(other, stop):
            is_under_way.set()

    worker = threading.Thread(target=work)
    worker.start()
    try:
        assert is_under_way.wait(10)
        for _ in range(5):
            place.tell(b"HINCRBY", "count", b"q1\0ready", b"7")
            fixed = place.repair(change=True).fixed
            assert [text for text in fixed if "Line q1 counts" in text], fixed
            assert not [text for text in fixed if "churn" in text], fixed
    finally:
        stop.set()
        worker.join()
    assert place.engine.check() == []
    assert place.repair(change=True) == Repaired()


class Churn:
    """Changes of every kind, at random, of jobs that may be in any state."""

    def __init__(self, place: Place, seed: int) -> None:
        self.place = place
        self.engine = place.engine
        self.rng = random.Random(seed)
        self.ids: list[str] = []

    def some(self) -> list[str]:
        """Some jobs, with the one that was counted last."""
        counted = self.place.tell(b"HGET", "meta", b"recounted")
        assert isinstance(counted, bytes)
        last = [id for id in self.ids if counted.endswith(id.encode())]
        return [*last, *self.rng.sample(self.ids, 20)]

    def put(self) -> None:
        queue = self.rng.choice(["q", "r", "q+gpu"])
        self.ids += self.place.put(5, queue=queue, run_in_ms=self.rng.choice([0, 0, 500, 90_000]))

    def run(self) -> None:
        """Claim jobs, and end most of them, each in another way."""
        plan = Plan(labels=("gpu",), suspects=self.rng.random() < 0.2)
        for claim in self.place.claim(10, session=self.rng.choice("abc"), plan=plan):
            kind = self.rng.choice([*OUTCOMES])
            outcome = OUTCOMES[kind](claim.id, claim.token)
            if isinstance(outcome, Succeeded):
                outcome = msgspec.structs.replace(
                    outcome, result_ttl_ms=self.rng.choice([500, 10**8])
                )
            self.engine.finish([outcome])

    def cancel(self) -> None:
        self.engine.cancel(self.some())

    def revive(self) -> None:
        self.engine.revive([Revival(id=id) for id in self.some()])

    def discard(self) -> None:
        self.engine.discard(self.some())

    def change(self) -> None:
        run_in_ms, queue = self.rng.choice([None, 0, 7_000]), self.rng.choice([None, "r"])
        changes = [JobChange(id=id, run_in_ms=run_in_ms, queue=queue) for id in self.some()]
        self.engine.change_jobs(changes)

    def hold(self) -> None:
        """Claims hold the jobs of a paused task."""
        self.engine.pause_task("t")
        self.place.claim(5)
        if self.rng.random() < 0.5:
            self.engine.resume_task("t")

    def wait(self) -> None:
        """Results expire, and jobs become due."""
        self.engine.clock_offset_ms += 1_000
        self.engine.tend()

    def step(self) -> None:
        """Change something, as a process with some other retention."""
        self.engine._limits[1] = self.rng.choice([b"700000", b"90000000"])
        kinds = (self.put, self.run, self.cancel, self.revive, self.discard, self.change)
        self.rng.choice([*kinds, self.run, self.hold, self.wait, self.wait])()


def fill(churn: Churn) -> None:
    """Put more jobs into every index than one batch counts."""
    place, engine, number = churn.place, churn.engine, 1100
    for kind in ("succeeded", "buried", "unroutable", None):
        ids = place.put(number, queue="fill")
        claims = [claim for _ in range(3) for claim in place.claim(500, session="filler")]
        engine.finish([OUTCOMES[kind](claim.id, claim.token) for claim in claims if kind])
        churn.ids += ids
    cancelled = place.put(number)
    engine.cancel(cancelled)
    churn.ids += [*cancelled, *place.put(number), *place.put(number, run_in_ms=3_600_000)]


@pytest.mark.parametrize("seed", range(4))
def test_counters_are_exact_whatever_changes_between_two_batches(place: Place, seed: int) -> None:
    churn = Churn(place, seed)
    fill(churn)
    cursor: str | None = None
    is_counting, batches = False, 0
    while True:
        repaired = place.engine.repair(cursor, change=True)
        assert repaired.fixed == repaired.left == ()
        cursor = repaired.cursor
        if cursor is None:
            break
        is_counting = place.tell(b"HGET", "meta", b"recounted") is not None
        batches += is_counting
        for _ in range(6 if is_counting else 0):
            churn.step()
    assert batches > 10
    assert place.engine.check() == []


def test_a_recount_counts_successes_that_end_early(place: Place) -> None:
    """A job that is kept for a shorter time comes before those that were counted already."""
    place.put(600)
    while claims := place.claim(100):
        place.engine.finish([success(claim, 24 * 60 * 60 * 1000) for claim in claims])
    place.put(1)
    (late,) = place.claim()
    bite, is_done = place.engine.repair(change=True), False
    while bite.cursor is not None:
        position = bite.cursor.split(":", 2)[2]
        if not is_done and position.startswith("5 ") and len(position) > len("5 -inf  "):
            place.engine.finish([success(late)])  # after some of `keep` were counted
            is_done = True
        bite = place.engine.repair(bite.cursor, change=True)
    assert is_done
    assert place.engine.stats().queues == {"q": {State.SUCCEEDED: 601}}
    assert place.engine.check() == []


def test_attempts_and_starts_have_thirty_two_bits(place: Place) -> None:
    (id,) = place.put(1)
    (claim,) = place.claim()
    stored = place.tell(b"HGET", "job", id.encode())
    assert isinstance(stored, bytes)
    run_at, many = len(stored) - int.from_bytes(stored[-2:]), (1 << 24) + 7
    changed = stored[:run_at] + struct.pack(">II", many, many) + stored[run_at + 8 :]
    place.tell(b"HSET", "job", id.encode(), changed)
    retried = Retried(id=id, token=claim.token, delay_ms=0, error=b"boom")
    place.engine.finish([retried])
    (record,) = place.engine.get([id])
    assert record is not None
    assert (record.counters.attempt, record.counters.starts) == (many, many)


def test_the_list_of_counters_of_enqueued_jobs_is_rebuilt(place: Place) -> None:
    """No job is counted twice in the history."""
    place.put(3)
    place.put(2, task="other")
    place.engine.tend()
    place.tell(b"HDEL", "meta", b"pair_names")
    assert place.engine.stats().enqueued == {}
    assert "2 queues and tasks count enqueued jobs, but others are listed." in place.engine.check()
    assert len(place.repair(change=False).fixed) == len(place.repair(change=True).fixed) == 1
    assert place.engine.check() == []
    assert place.engine.stats().enqueued == {("q", "t"): 3, ("q", "other"): 2}
    place.put(1)
    place.engine.clock_offset_ms += MINUTE_MS
    place.engine.tend()
    measures = place.engine.history(HOUR_MS).measures
    assert sum(row.counts[ENQUEUED] for row in measures) == 6
