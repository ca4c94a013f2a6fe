"""Scenarios whose calls are recorded, so that each script is called with real arguments, and at
least once removes the last member of every key that it removes members from.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec
from msgspec.structs import replace

from tests.engine.redis.slots import Node, name_of
from windlass.core.history import KEEP_HOURS_MS, KEEP_MINUTES_MS, MINUTE_MS, WIDTH
from windlass.core.states import Reason, State
from windlass.core.unique import OnConflict
from windlass.engine.contract import (
    GONE_SESSION_MS,
    IDEMPOTENCY_MS,
    UNKNOWN_NONCE_MS,
    AuditEntry,
    Beat,
    Buried,
    Claim,
    DeadLabel,
    DocumentChange,
    Filter,
    JobChange,
    Measure,
    NewStep,
    Outcome,
    Plan,
    Progressed,
    QueueChange,
    Released,
    Retried,
    Revival,
    ScheduleChange,
    SessionCommand,
    Snoozed,
    Step,
    Succeeded,
    UniqueKey,
    Unroutable,
    Waiter,
)
from windlass.engine.redis import encode
from windlass.engine.redis.engine import RedisEngine
from windlass.testing.contract.place import OPTIONS
from windlass.testing.contract.test_check import live_a_life
from windlass.testing.contract.world import LEASE_MS, World, retry_jobs

#: script -> the keys that it can leave with only their sentinel. `idle` and `waiters` are listed
#: where a job can become ready: the last idle session is woken. `watch` is listed where a job ends.
EMPTIES: Final[dict[str, set[str]]] = {
    "add_audit": set(),
    "adopt": {"due", "parked", "idle", "waiters"},
    "audit": set(),
    "beat": {"asked", "held", "idle", "waiters", "watch"},
    "cancel": {"due", "lines", "parked", "ready", "watch"},
    "change": {"body", "due", "lines", "parked", "ready", "idle", "waiters"},
    "change_documents": {"document"},
    "check": set(),
    "close": {"asked", "held", "lease", "idle", "waiters", "watch"},
    "command": set(),
    "copies": set(),
    "discard": {
        *("body", "cancelled", "count", "dead", "extra", "job", "key_expiry", "keys"),
        *("dead_groups", "deaths", "steps", "unique", "watch"),
    },
    "documents": set(),
    "ends": set(),
    "examine": set(),
    "find": set(),
    "find_deaths": set(),
    "fire": {"due", "lines", "parked", "ready", "schedule_due", "idle", "waiters", "watch"},
    "get": set(),
    "history": set(),
    "holders": set(),
    "infos": set(),
    "introductions": set(),
    "label": set(),
    "list_holders": set(),
    "list_keys": set(),
    "open": set(),
    "nonce": set(),
    "prepare": {"asked", "due", "held", "lease", "parked", "idle", "waiters", "watch"},
    "purge": {
        *("body", "count", "due", "extra", "job", "key_expiry", "keys", "lines", "parked"),
        *("ready", "steps", "unique", "watch"),
    },
    "put": {"idle", "waiters"},
    "put_any": {"body", "due", "lines", "parked", "ready", "steps", "idle", "waiters", "watch"},
    "put_copies": {"idle", "waiters"},
    "put_keys": set(),
    "put_steps": set(),
    "queue": {"lines", "idle", "waiters"},
    "repair": {
        *(
            "asked",
            "body",
            "cancelled",
            "count",
            "dead",
            "dead_groups",
            "deaths",
            "due",
            "held",
            "keep",
            "key_expiry",
            "lines",
        ),
        *("parked", "ready", "schedule", "schedule_due", "schedule_names", "unique"),
        *("steps", "idle", "waiters"),
    },
    "read_steps": set(),
    "record": set(),
    "release": {"asked", "held", "idle", "waiters", "watch"},
    "revive": {
        *("body", "cancelled", "dead", "dead_groups", "deaths", "extra", "idle", "waiters"),
    },
    "schedules": {"schedule_due", "schedule_names"},
    "sessions": set(),
    "stats": set(),
    "tallies": set(),
    "tend": {
        *("asked", "body", "cancelled", "count", "dead", "extra", "forget", "held", "job", "keep"),
        *("history", "key_expiry", "keys", "lease", "sessions", "unique", "idle", "waiters"),
        *("dead_groups", "deaths", "steps", "watch", "watch_until"),
    },
    "turn": {
        *("asked", "due", "extra", "held", "idle", "lease", "lines", "parked", "ready"),
        *("waiters", "watch"),
    },
    "wait": {"due", "idle", "waiters"},
    "unschedule": {"schedule", "schedule_due", "schedule_names"},
}


class Stage:
    """A world, sessions that wait for jobs, and callers that wait for the end of jobs."""

    def __init__(self, world: World, node: Node) -> None:
        self.world = world
        self.engine = world.engine
        self._node = node

    def tell(self, command: bytes, name: str, *words: bytes) -> None:
        """Change a key directly."""
        self._node.tell(command, name_of(name), *words)

    def members(self, name: str) -> list[bytes]:
        found = self._node.tell(b"ZRANGE", name_of(name), b"0", b"-1")
        return [member for member in found if member]

    def add_waiter(self) -> None:
        name = b"w:wake:worker\x000"
        waiting = msgspec.msgpack.encode((9_000_000_000_000, "0", [], [], ["session", ""]))
        self._node.tell(b"HSET", name_of("waiters"), name, waiting)
        self._node.tell(b"ZADD", name_of("idle"), b"0", b"0\0" + name)
        self.add_watcher()

    def add_watcher(self) -> None:
        """Register a caller that waits for the end of each job."""
        channels = msgspec.msgpack.encode(["w:wake:caller"])
        for id in self.world.ids():
            self._node.tell(b"HSET", name_of("watch"), id.encode(), channels)

    def run(self, session: str = "worker") -> Claim:
        """Put a job and claim it."""
        self.world.put()
        return self.world.take(session)


def every_move(stage: Stage) -> None:
    live_a_life(stage.world)
    stage.engine.migrate()


def everything_is_seen(stage: Stage) -> None:
    live_a_life(stage.world)
    stage.engine.check()
    stage.engine.examine()
    stage.world.everything()
    stage.engine.find(Filter(state=State.DEAD))
    stage.engine.get(["unknown", *stage.world.ids()])


def sessions_wait(stage: Stage) -> None:
    waiters = [Waiter("worker", Plan()), Waiter("other", Plan(queues=("q",), labels=("gpu",)))]
    stage.engine.wait(waiters, 1)
    stage.engine.wait(waiters[1:], 1)
    stage.add_waiter()
    stage.world.put()
    stage.engine.wait(waiters, 1)
    stage.engine.wait([], 1)


def sessions_wait_for_some_tasks(stage: Stage) -> None:
    plan = Plan(tasks=("mine", "task"))
    waiters = [Waiter("other", Plan(tasks=("other",))), Waiter("worker", plan)]
    for task in ("task", "foreign"):
        stage.engine.wait(waiters, 1)
        stage.world.put(task=task, run_in_ms=1)
        stage.world.put(task=task)
        stage.world.put(task=task, expires_in_ms=60_000)
    stage.world.advance(1)
    stage.engine.wait(waiters, 1)
    for queues in ((), ("queue", "other")):
        stage.engine.turn("worker", (), stage.world.nonce(), replace(plan, queues=queues), 1)
    stage.engine.wait([], 1)


def a_caller_waits_for_the_end(stage: Stage) -> None:
    """Without a connection for its wake-up."""
    engine, bury_it = stage.engine, Reason.REJECTED
    assert isinstance(engine, RedisEngine)
    dead, waiting = stage.run(), stage.world.put()
    engine.finish([Buried(id=dead.id, token=dead.token, reason=bury_it, error=b"no")])
    engine.ends([dead.id, waiting, "unknown"])
    for channel, watch_ms in ((b"w:wake:one", b"0"), (b"w:wake:other", b"0")):
        ids = [id.encode() for id in (dead.id, waiting, "unknown")]
        engine._run([engine._call(0, "ends", [channel, watch_ms, *ids])])
    engine.tend()
    leave_nothing(stage)


def a_job_is_put_twice(stage: Stage) -> None:
    job = stage.world.new(idempotency_key="key", fingerprint="one")
    stage.engine.put([job, job])
    stage.engine.put([stage.world.new(idempotency_key="key", fingerprint="other")])


def a_unique_job_is_met(stage: Stage) -> None:
    """By others with its key, in every waiting state, and when it has expired."""
    for wait in (stay_ready, be_scheduled, be_parked, be_expired):
        for on_conflict in OnConflict:
            wait(stage)
            stage.add_waiter()
            for run_in_ms in (1_000, 0, 0):
                stage.world.put(run_in_ms=run_in_ms, unique=unique(on_conflict))
            leave_nothing(stage)


def unique(on_conflict: OnConflict = OnConflict.RETURN, period_ms: int = 0) -> UniqueKey:
    return UniqueKey(key="key", period_ms=period_ms, on_conflict=on_conflict)


def stay_ready(stage: Stage) -> str:
    return stage.world.put(unique=unique())


def be_scheduled(stage: Stage) -> str:
    return stage.world.put(unique=unique(), run_in_ms=9)


def be_parked(stage: Stage) -> str:
    id = stage.world.put(unique=unique())
    claim = stage.world.take()
    progress = Progressed(id=id, token=claim.token, progress=b"half")
    stage.engine.finish([progress, Unroutable(id=id, token=claim.token)])
    return id


def be_expired(stage: Stage) -> str:
    return stage.world.put(unique=unique(), run_in_ms=9, expires_in_ms=0)


def a_unique_key_changes_hands(stage: Stage) -> None:
    one = stage.world.put(unique=unique(period_ms=9))
    stage.engine.cancel([one])
    stage.world.advance(9)
    other = stage.world.put(unique=unique())
    stage.engine.holders([("task", "key"), ("task", "other")])
    retry_jobs(stage.engine, [one])
    stage.engine.cancel([other])
    stage.engine.revive([Revival(id=one, payload=b"other"), Revival(id=other)])
    stage.engine.cancel([one])
    stage.engine.discard([other])
    stage.engine.discard([one])
    stage.world.put(unique=unique(period_ms=10 * OPTIONS.dead_ttl_ms))
    leave_nothing(stage)
    stage.world.advance(10 * OPTIONS.dead_ttl_ms)
    leave_nothing(stage)


WAYS_TO_END: Final = 6


def endings(claim: Claim) -> list[Outcome]:
    """Every way in which a claim can end."""
    id, token = claim.id, claim.token
    return [
        Succeeded(id=id, token=token, result=b"result", result_ttl_ms=1_000),
        Retried(id=id, token=token, delay_ms=1_000, error=b"boom"),
        Buried(id=id, token=token, reason=Reason.REJECTED, error=b"no"),
        Released(id=id, token=token, started=True),
        Snoozed(id=id, token=token, delay_ms=0),
        Unroutable(id=id, token=token),
    ]


def the_only_job_ends(stage: Stage) -> None:
    """In each way, cancelled or not, with a waiting caller; with the next job in the same call, and
    without."""
    for is_asked in (False, True):
        for number in range(WAYS_TO_END):
            claim = stage.run()
            stage.engine.finish([Progressed(id=claim.id, token=claim.token, progress=b"half")])
            if is_asked:
                stage.engine.cancel([claim.id])
            stage.add_waiter()
            stage.engine.finish([endings(claim)[number]] * 2)
            leave_nothing(stage)
            claim, nonce = stage.run(), stage.world.nonce()
            stage.world.put()
            stage.engine.turn("worker", [endings(claim)[number]], nonce, Plan(queues=("queue",)), 5)
            leave_nothing(stage)


def the_only_claim_is_given_back(stage: Stage) -> None:
    for is_asked in (False, True):
        for give_back in (release, beat_without_nonces, beat_without_jobs, close, crash, lose):
            claim = stage.run()
            if is_asked:
                stage.engine.cancel([claim.id])
            stage.add_waiter()
            give_back(stage, claim)
            leave_nothing(stage)


def release(stage: Stage, claim: Claim) -> None:
    stage.engine.release("worker", claim.token)


def beat_without_nonces(stage: Stage, claim: Claim) -> None:
    stage.world.advance(UNKNOWN_NONCE_MS)
    stage.engine.beat([Beat(session="worker", nonces=(), newest=claim.token)])


def beat_without_jobs(stage: Stage, claim: Claim) -> None:
    stage.world.advance(UNKNOWN_NONCE_MS)
    stage.engine.beat([Beat(session="worker", held=(), newest=claim.token)])


def close(stage: Stage, claim: Claim) -> None:
    stage.engine.close("worker", [], "ended")


def lose(stage: Stage, claim: Claim) -> None:
    stage.engine.beat([Beat(session="worker", info=b"it is me")])
    stage.engine.introductions("w")
    stage.engine.lose("worker", "its worker died")


def crash(stage: Stage, claim: Claim) -> None:
    stage.engine.close("worker", [claim.id], "killed")


def the_only_job_becomes_ready(stage: Stage) -> None:
    stage.world.put(run_in_ms=1_000)
    stage.world.advance(1_000)
    stage.world.claim()
    leave_nothing(stage)
    for offer in (stage.world.claim, lambda: stage.engine.adopt(["task", "other"])):
        claim = stage.run()
        stage.engine.finish([Unroutable(id=claim.id, token=claim.token)])
        stage.add_waiter()
        stage.world.advance(1_000)
        offer()
        leave_nothing(stage)


def the_only_job_is_changed(stage: Stage) -> None:
    id = stage.world.put(run_in_ms=1_000)
    for run_in_ms in (0, 1_000, 0):
        stage.add_waiter()
        stage.engine.change_jobs([JobChange(id=id, payload=b"p", run_in_ms=run_in_ms)])
    stage.engine.change_jobs([JobChange(id=id, queue="other")])
    stage.engine.finish([Unroutable(id=id, token=stage.world.take().token)])
    stage.add_waiter()
    stage.engine.change_jobs([JobChange(id=id, run_in_ms=0)])
    leave_nothing(stage)


def the_only_large_call_is_removed(stage: Stage) -> None:
    """With its job, or because the job gets a small one."""
    large = b"x" * 2_000
    id = stage.world.put(payload=large, run_in_ms=1_000)
    stage.engine.change_jobs([JobChange(id=id, payload=b"small")])
    stage.engine.change_jobs([JobChange(id=id, payload=large)])
    stage.engine.cancel([id])
    stage.engine.revive([Revival(id=id, payload=b"small")])
    stage.engine.change_jobs([JobChange(id=id, payload=large)])
    stage.engine.cancel([id])
    stage.engine.discard([id])
    stage.world.put(payload=large)
    stage.engine.purge("queue")
    for payload in (large, b"small"):
        stage.world.put(payload=payload, unique=unique(OnConflict.REPLACE))
    leave_nothing(stage)
    stage.world.put(payload=large)
    leave_nothing(stage)


def the_only_job_expires(stage: Stage) -> None:
    stage.world.put(expires_in_ms=0)
    stage.add_watcher()
    stage.world.claim()


def the_only_session_falls_silent(stage: Stage) -> None:
    for notice in (lambda: stage.world.claim("other", limit=0), stage.engine.tend):
        for is_asked in (False, True):
            claim = stage.run()
            if is_asked:
                stage.engine.cancel([claim.id])
            stage.world.pass_time(LEASE_MS)
            stage.add_waiter()
            notice()
            leave_nothing(stage)


def the_only_session_is_forgotten(stage: Stage) -> None:
    for notice in (lambda: stage.world.claim("other", limit=0), stage.engine.tend):
        stage.engine.release("worker", stage.world.nonce())
        stage.engine.close("worker", [], "ended")
        notice()
        stage.world.advance(GONE_SESSION_MS)
        stage.engine.tend()


def the_clock_goes_back(stage: Stage) -> None:
    stage.run()
    stage.world.advance(-10 * LEASE_MS)
    stage.engine.beat([Beat(session="worker")])


def an_operator_changes_the_only_job(stage: Stage) -> None:
    for change in (partial(retry_jobs, stage.engine), stage.engine.discard):
        for kill in (bury, cancel_ready, cancel_scheduled, cancel_parked, cancel_with_progress):
            id = kill(stage)
            stage.add_waiter()
            change([id, id, "unknown"])
            leave_nothing(stage)


def bury(stage: Stage) -> str:
    id = stage.world.put(idempotency_key="key")
    claim = stage.world.take()
    stage.engine.finish([Buried(id=id, token=claim.token, reason=Reason.REJECTED, error=b"no")])
    return id


def dead_jobs_are_grouped(stage: Stage) -> None:
    """Dead jobs get other fingerprints, and an entry of nothing is dropped."""
    id, engine = bury(stage), stage.engine
    label = DeadLabel(id=id, finished_ms=stage.world.now_ms, fingerprint="ab")
    engine.label_dead([label, label])
    engine.dead_tallies()
    engine.dead_tallies(["ab"])
    engine.find(Filter(fingerprint="ab"))
    stage.tell(b"ZADD", "deaths", b"0", b"aa\0\0queue\0task\0" + b"\0" * 6 + b"ghost")
    stage.tell(b"ZADD", "dead_groups", b"1", b"aa\0\0queue\0task")
    leave_nothing(stage)


def cancel_ready(stage: Stage) -> str:
    id = stage.world.put()
    stage.engine.cancel([id])
    return id


def cancel_scheduled(stage: Stage) -> str:
    id = stage.world.put(run_in_ms=1_000)
    stage.engine.cancel([id])
    return id


def cancel_parked(stage: Stage) -> str:
    claim = stage.run()
    stage.engine.finish([Unroutable(id=claim.id, token=claim.token)])
    stage.engine.cancel([claim.id])
    return claim.id


def cancel_with_progress(stage: Stage) -> str:
    claim = stage.run()
    progress = Progressed(id=claim.id, token=claim.token, progress=b"half")
    stage.engine.finish([progress, Released(id=claim.id, token=claim.token, started=True)])
    stage.engine.cancel([claim.id])
    return claim.id


def the_only_progress_is_dropped(stage: Stage) -> None:
    """When the job is retried."""
    claim = stage.run()
    progress = Progressed(id=claim.id, token=claim.token, progress=b"half")
    stage.engine.finish([progress, Released(id=claim.id, token=claim.token, started=True)])
    stage.world.take()


def the_only_result_is_dropped(stage: Stage) -> None:
    """Before its record, which is kept for longer."""
    claim = stage.run()
    token, ttl_ms = claim.token, 1_000
    stage.engine.finish([Succeeded(id=claim.id, token=token, result=b"r", result_ttl_ms=ttl_ms)])
    stage.world.advance(ttl_ms)
    stage.engine.tend()


def the_only_schedule_comes_and_goes(stage: Stage) -> None:
    world = stage.world
    for kind in (cancel_nothing, put_ready, put_scheduled, put_parked, put_running):
        ids = kind(stage)
        stage.add_waiter()
        job = world.new()
        made = ScheduleChange(
            name="s", expected="", revision="a", due_ms=world.now_ms, note=b"n", body=b"b"
        )
        paused = ScheduleChange(
            name="s", expected="a", revision="b", due_ms=None, note=b"n", cancelled=ids
        )
        fired = ScheduleChange(
            name="s",
            expected="b",
            revision="c",
            due_ms=9,
            note=b"n",
            watched=(job.id,),
            jobs=(job,),
        )
        for change in (made, paused, fired):
            stage.engine.change_schedules([change, change])
            stage.engine.due_schedules(skip=["other"])
            stage.engine.get_schedules(["s", "other"])
        stage.engine.change_schedules([made])
        stage.engine.list_schedules()
        stage.engine.check()
        for _ in range(2):
            stage.engine.remove_schedule("s")
        leave_nothing(stage)


def cancel_nothing(stage: Stage) -> tuple[str, ...]:
    return ()


def put_ready(stage: Stage) -> tuple[str, ...]:
    return (stage.world.put(),)


def put_scheduled(stage: Stage) -> tuple[str, ...]:
    return (stage.world.put(run_in_ms=1_000),)


def put_parked(stage: Stage) -> tuple[str, ...]:
    claim = stage.run()
    stage.engine.finish([Unroutable(id=claim.id, token=claim.token)])
    return (claim.id,)


def put_running(stage: Stage) -> tuple[str, ...]:
    return (stage.run().id, "unknown")


def documents_come_and_go(stage: Stage) -> None:
    def change(expected: str, revision: str, body: bytes | None) -> DocumentChange:
        return DocumentChange(
            kind="kind", key="key", expected=expected, revision=revision, body=body
        )

    steps = (("", "a", b"body"), ("a", "b", b"other"), ("a", "c", b"late"), ("b", "d", None))
    for step in steps:
        stage.engine.change_documents([change(*step)])
        stage.engine.get_documents("kind", ["key", "other"])
        stage.engine.list_documents("kind")


def the_only_step_comes_and_goes(stage: Stage) -> None:
    """Its job is discarded, purged, replaced, removed by the maintenance, and copied."""
    replacing = unique(on_conflict=OnConflict.REPLACE)
    for end in (discard_all, purge_all, replace_call, leave_nothing, copy_and_leave):
        id = stage.world.put(unique=replacing)
        claim = stage.world.take()
        for value in (b"receipt", b"late"):
            step = NewStep(id=id, token=claim.token, step=Step("charge", value))
            stage.engine.put_steps([step])
            stage.engine.read_steps(id, claim.token)
        stage.engine.put_steps([NewStep(id=id, token="stale", step=Step("mail", b""))])
        stage.engine.read_steps(id, "stale")
        stage.engine.finish([Released(id=id, token=claim.token, started=True)])
        end(stage)
        leave_nothing(stage)


def discard_all(stage: Stage) -> None:
    ids = stage.world.ids()
    stage.engine.cancel(ids)
    stage.engine.discard(ids)


def purge_all(stage: Stage) -> None:
    cursor = stage.engine.purge("queue").cursor
    while cursor is not None:
        cursor = stage.engine.purge("queue", cursor).cursor


def replace_call(stage: Stage) -> None:
    stage.world.put(unique=unique(on_conflict=OnConflict.REPLACE), payload=b"new")


def copy_and_leave(stage: Stage) -> None:
    put_copies(stage, again=True)


def entries_are_added(stage: Stage) -> None:
    """More than the limit, which is lowered by a direct call."""
    engine = stage.engine
    assert isinstance(engine, RedisEngine)
    for id in ("a", "b", "a"):
        engine.add_audit([AuditEntry(id=id, body=b"entry")])
    engine.list_audit()
    engine._run([engine._call(0, "add_audit", [b"1", b"c", b"entry"])])


def the_only_history_comes_and_goes(stage: Stage) -> None:
    counts = (1,) * WIDTH
    for number in (1, 1, 2):
        stage.engine.record("worker", number, [Measure(queue="q", task="t", counts=counts)])
    stage.engine.history(0)
    stage.engine.history(0, by_hour=True)
    for wait_ms in (KEEP_MINUTES_MS + MINUTE_MS, KEEP_HOURS_MS):
        stage.world.advance(wait_ms)
        stage.engine.tend()
    stage.world.put()
    stage.engine.tend()
    leave_nothing(stage)
    for wait_ms in (KEEP_MINUTES_MS + MINUTE_MS, KEEP_HOURS_MS, KEEP_HOURS_MS):
        stage.world.advance(wait_ms)
        stage.engine.tend()


def a_session_gets_commands(stage: Stage) -> None:
    stage.engine.beat([Beat(session="worker", info=b"me")])
    for command in (SessionCommand.QUIET, SessionCommand.RUN):
        stage.engine.command(["worker", "unknown"], command)
        stage.engine.infos(["worker", "unknown"])
        stage.engine.beat([Beat(session="worker", held=("lost",))])
    stage.engine.command(["worker"], SessionCommand.STOP)
    stage.engine.close("worker", [], "ended")
    stage.engine.command(["worker"], SessionCommand.RUN)


def more_than_one_bite(stage: Stage) -> None:
    jobs = [stage.world.new(queue="ab"[number % 2]) for number in range(510)]
    stage.engine.put(jobs)
    stage.world.claim()
    stage.world.claim()
    stage.engine.close("worker", [jobs[0].id, jobs[1].id], "killed")


def large_jobs_are_put_and_claimed(stage: Stage) -> None:
    """The first of them is noted, by each way in which a body is stored; then claims measure."""
    large = b"x" * 9_000
    stage.world.put_many(3, payload=large)
    for _ in range(2):
        stage.world.claim(most_bytes=10_000)
    leave_nothing(stage)
    stage.add_waiter()
    stage.world.put(payload=large)
    stage.world.put(unique=unique())
    stage.world.put(unique=unique(OnConflict.REPLACE), payload=large)
    leave_nothing(stage)


def a_claim_over_partitions_is_prepared(stage: Stage) -> None:
    """With one partition, a claim needs no preparation: so call the script directly."""
    stage.world.put(run_in_ms=1_000)
    stage.world.advance(1_000)
    prepare(stage)
    leave_nothing(stage)
    claim = stage.run()
    stage.engine.finish([Unroutable(id=claim.id, token=claim.token)])
    stage.add_waiter()
    stage.world.advance(1_000)
    prepare(stage)
    leave_nothing(stage)
    for is_asked in (False, True):
        claim = stage.run()
        if is_asked:
            stage.engine.cancel([claim.id])
        stage.world.pass_time(LEASE_MS)
        stage.add_waiter()
        prepare(stage)
        leave_nothing(stage)


def a_queue_is_paused_and_resumed(stage: Stage) -> None:
    stage.world.put()
    stage.engine.change_queue("queue", QueueChange(paused=True))
    stage.engine.change_queue("queue", QueueChange(paused=False))
    leave_nothing(stage)
    stage.engine.change_queue("queue", QueueChange(paused=True))
    stage.world.put()
    stage.world.claim()
    stage.add_waiter()
    stage.engine.change_queue("queue", QueueChange(paused=False))
    stage.engine.queues()
    leave_nothing(stage)


def copies_are_put(stage: Stage) -> None:
    """Next to their jobs, in every state, and in the place of their jobs."""
    live_a_life(stage.world)
    stage.world.put(unique=unique(period_ms=1_000), payload=b"long" * 1_000)
    put_copies(stage, again=False)
    leave_nothing(stage)
    for kind in (put_with_key, put_for_later, park, bury, cancel_with_progress, put_unique):
        kind(stage)
        put_copies(stage, again=True)
        leave_nothing(stage)


def put_unique(stage: Stage) -> None:
    stage.engine.cancel([stage.world.put(unique=unique(period_ms=1_000))])


def put_copies(stage: Stage, *, again: bool) -> None:
    """Put copies of all jobs that do not run; with `again`, after the jobs were removed."""
    engine, world = stage.engine, stage.world
    found = [one for one in engine.read_copies([*world.ids(), "unknown"]) if one is not None]
    copies = [one for one in found if one.record.state is not State.RUNNING]
    stored = engine.list_keys().keys
    engine.list_holders()
    if again:
        ids = [one.record.id for one in copies]
        engine.cancel(ids)
        engine.discard(ids)
    else:
        new = [replace(one.record, id=world.new().id) for one in copies]
        copies = [replace(one, record=other) for one, other in zip(copies, new, strict=True)]
    stage.add_waiter()
    engine.put_copies(copies)
    engine.put_copies(copies)
    engine.put_keys(stored)


#: Entries that point to no job.
GHOSTS: Final[tuple[tuple[bytes, str, bytes, bytes], ...]] = (
    (b"ZADD", "ready", b"0", b"0queue\0" + b"\0" * 11 + b"ghost"),
    (b"ZADD", "lines", b"0", b"0\0\0" + b"\0" * 12 + b"other"),
    (b"ZADD", "due", b"1", b"\0" * 7 + b"ghost"),
    (b"ZADD", "parked", b"0", b"task\0" + b"\0" * 7 + b"ghost"),
    (b"ZADD", "held", b"0", b"worker\0nonce\0ghost"),
    (b"ZADD", "asked", b"0", b"worker\0ghost"),
    (b"ZADD", "keep", b"1", b"ghost"),
    (b"ZADD", "cancelled", b"1", b"ghost"),
    (b"ZADD", "dead", b"1", b"ghost"),
    (b"ZADD", "unique", b"0", b"4:taskkey\0ghost"),
    (b"ZADD", "key_expiry", b"1", b"ghost"),
    (b"ZADD", "schedule_names", b"0", b"ghost"),
    (b"ZADD", "schedule_due", b"1", b"ghost"),
    (b"ZADD", "deaths", b"0", b"aa\0\0queue\0task\0" + b"\0" * 6 + b"ghost"),
    (b"ZADD", "dead_groups", b"1", b"aa\0\0queue\0task"),
    (b"ZADD", "steps", b"0", b"ghost\0charge\0receipt"),
    (b"HSET", "schedule", b"r:half", b"\x93\xa1a\x01\x90"),
    (b"HSET", "body", b"ghost", b"{}"),
    (b"HSET", "count", b"queue\0ready", b"3"),
)


def damage_is_repaired(stage: Stage) -> None:
    stage.world.put()
    leave_nothing(stage)
    for command, name, *words in GHOSTS:
        stage.tell(command, name, *words)
    for change in (False, True):
        repair(stage, change)
    stage.world.put()
    stage.tell(b"ZREM", "ready", *stage.members("ready"))
    (listed,) = stage.members("lines")
    stage.tell(b"ZREM", "lines", listed)
    stage.add_waiter()
    repair(stage, change=True)
    claim = stage.world.take()
    stage.tell(b"ZREM", "held", *stage.members("held"))
    stage.tell(b"ZREM", "lease", b"worker")
    repair(stage, change=True)
    stage.engine.finish([Retried(id=claim.id, token=claim.token, delay_ms=1_000, error=b"")])
    stage.tell(b"ZREM", "due", *stage.members("due"))
    repair(stage, change=True)
    leave_nothing(stage)


def ghosts_are_dropped(stage: Stage) -> None:
    stage.world.put()
    leave_nothing(stage)
    for command, name, *words in GHOSTS[:13]:
        stage.tell(command, name, *words)
    stage.engine.due_schedules()
    stage.tell(b"ZADD", "schedule_names", b"0", b"ghost")
    stage.engine.list_schedules()
    stage.engine.adopt(["task"])
    stage.engine.beat([Beat(session="worker", nonces=(), newest="nonce-9")])
    stage.world.claim(queues=("queue",))
    stage.world.claim()
    stage.engine.tend()
    repair(stage, change=True)


def repair(stage: Stage, change: bool) -> None:
    bite = stage.engine.repair(change=change)
    while bite.cursor is not None:
        bite = stage.engine.repair(bite.cursor, change=change)


def a_queue_is_emptied(stage: Stage) -> None:
    for put in (put_with_key, put_for_later, park):
        put(stage)
        stage.add_watcher()
        cursor = stage.engine.purge("queue").cursor
        while cursor is not None:
            cursor = stage.engine.purge("queue", cursor).cursor
        leave_nothing(stage)


def put_with_key(stage: Stage) -> None:
    stage.world.put(idempotency_key="key", unique=unique())


def put_for_later(stage: Stage) -> None:
    stage.world.put(run_in_ms=1_000)


def park(stage: Stage) -> None:
    claim = stage.run()
    stage.engine.finish([Unroutable(id=claim.id, token=claim.token)])


def prepare(stage: Stage) -> None:
    engine = stage.engine
    assert isinstance(engine, RedisEngine)
    plan = encode.of_plan(Plan(queues=("queue", "other")))
    engine._run([engine._call(0, "nonce", [b"other", b"nonce"])])
    engine._run([engine._call(0, "prepare", [b"other", b"nonce", b"10", *plan])])


def leave_nothing(stage: Stage) -> None:
    """End all jobs, and let all retention times pass."""
    stage.engine.close("worker", [], "ended")
    stage.add_watcher()
    stage.engine.cancel(stage.world.ids())
    stage.world.advance(max(OPTIONS.dead_ttl_ms, IDEMPOTENCY_MS, GONE_SESSION_MS))
    while stage.engine.tend().more:
        pass


SCENARIOS: Final[tuple[Callable[[Stage], None], ...]] = (
    damage_is_repaired,
    ghosts_are_dropped,
    every_move,
    everything_is_seen,
    sessions_wait,
    sessions_wait_for_some_tasks,
    a_caller_waits_for_the_end,
    a_job_is_put_twice,
    a_unique_job_is_met,
    a_unique_key_changes_hands,
    the_only_job_ends,
    the_only_claim_is_given_back,
    the_only_job_becomes_ready,
    the_only_job_expires,
    the_only_job_is_changed,
    the_only_large_call_is_removed,
    the_only_session_falls_silent,
    the_only_session_is_forgotten,
    the_clock_goes_back,
    an_operator_changes_the_only_job,
    dead_jobs_are_grouped,
    the_only_progress_is_dropped,
    large_jobs_are_put_and_claimed,
    the_only_result_is_dropped,
    the_only_schedule_comes_and_goes,
    documents_come_and_go,
    the_only_step_comes_and_goes,
    entries_are_added,
    the_only_history_comes_and_goes,
    a_session_gets_commands,
    more_than_one_bite,
    a_claim_over_partitions_is_prepared,
    a_queue_is_paused_and_resumed,
    a_queue_is_emptied,
    copies_are_put,
)
