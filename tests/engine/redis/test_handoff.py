"""Hand-offs: a put leases its job to a waiting session, exactly once, also after faults."""

from __future__ import annotations

import os
import re
import time
from typing import Any

import msgspec
import pytest
import redis

from tests.engine.conftest import OpenRedis, new_job
from tests.redis_server import RedisServer, private_server
from tests.worker.yard import until
from windlass.core.states import State
from windlass.engine.contract import (
    Beat,
    Claim,
    JobRecord,
    NewJob,
    Outcome,
    Plan,
    PutCode,
    QueueChange,
    Released,
    Succeeded,
    UniqueKey,
    Unroutable,
    Verdict,
    Waiter,
    WakeUp,
)
from windlass.engine.redis import keys, wakeup
from windlass.engine.redis.client.pool import MOST_CALLS
from windlass.engine.redis.engine import RedisEngine
from windlass.testing.contract.world import StandingStill, claim_jobs

JOB = "job-000000"
NAMESPACE = "waiting"
ALL = Plan()
NOW_MS = 1_800_000_000_000


def open_two(server: RedisServer, open_redis: OpenRedis) -> tuple[RedisEngine, RedisEngine]:
    url = server.url(namespace=NAMESPACE)
    return open_redis(url), open_redis(url)


def arm(
    engine: RedisEngine, nonce: str = "nonce-1", plan: Plan = ALL, session: str = "worker"
) -> None:
    """Let a known session wait."""
    engine.beat([Beat(session=session, info=b"it")])
    assert engine.wait([Waiter(session, plan, nonce)], 1) == []


def ask(
    engine: RedisEngine, nonce: str = "nonce-1", plan: Plan = ALL, session: str = "worker"
) -> list[Claim]:
    """Get the job of the session: by a hand-off, or by the claim after its wake-up."""
    for _ in range(10):
        for wake_up in engine.wait([Waiter(session, plan, nonce)], 1_000):
            assert wake_up.session == session
            batch = engine.read_handoff(wake_up.handed, nonce) if wake_up.handed else None
            if batch is None:
                batch = claim_jobs(engine, session, nonce, plan, 1, is_last=True)
            return list(batch.claims)
    raise AssertionError("it was not woken")


def record_of(engine: RedisEngine, job_id: str = JOB) -> JobRecord:
    [record] = engine.get([job_id])
    assert record is not None
    return record


def state_of(engine: RedisEngine, job_id: str = JOB) -> State:
    return record_of(engine, job_id).state


def test_it_is_leased_by_the_put(own_server: RedisServer, open_redis: OpenRedis) -> None:
    waiting, putting = open_two(own_server, open_redis)
    arm(waiting)
    putting.put([new_job()])
    assert state_of(putting) is State.RUNNING
    assert putting.check() == []
    [claim] = ask(waiting)
    assert (claim.id, claim.token, claim.payload) == (JOB, "nonce-1", b"x")


def test_it_is_as_if_it_had_been_claimed(own_server: RedisServer, open_redis: OpenRedis) -> None:
    seen = []
    for namespace, is_handed in (("handed", True), ("claimed", False)):
        url = own_server.url(namespace=namespace)
        waiting, putting = open_redis(url), open_redis(url)
        waiting.clock_offset_ms = putting.clock_offset_ms = StandingStill(NOW_MS)
        waiting.beat([Beat(session="worker", info=b"it")])
        if is_handed:
            arm(waiting)
        putting.put([new_job(queue="mail", priority=7, expires_in_ms=60_000)])
        assert (state_of(putting) is State.RUNNING) is is_handed
        claims = ask(waiting)
        [session] = putting.sessions()
        seen.append((claims, record_of(putting), session, putting.stats(), putting.check()))
    assert seen[0] == seen[1]


def test_neither_waiting_nor_a_hand_off_extends_the_lease(
    own_server: RedisServer, open_redis: OpenRedis
) -> None:
    """Heartbeats do: a waiting worker without heartbeats loses its sessions all the same."""
    waiting, putting = open_two(own_server, open_redis)
    waiting.clock_offset_ms = putting.clock_offset_ms = StandingStill(NOW_MS)
    waiting.beat([Beat(session="worker", info=b"it")])
    [whole] = putting.sessions()
    waiting.clock_offset_ms = putting.clock_offset_ms = StandingStill(NOW_MS + 1_000)
    assert waiting.wait([Waiter("worker", ALL, "nonce-1")], 1) == []
    putting.put([new_job()])
    assert state_of(putting) is State.RUNNING
    assert putting.sessions()[0].expires_in_ms == whole.expires_in_ms - 1_000


@pytest.mark.parametrize(
    "keys",
    [{"idempotency_key": "key"}, {"unique": UniqueKey(key="key")}],
    ids=["idempotency", "unique"],
)
def test_one_that_has_a_key(
    own_server: RedisServer, open_redis: OpenRedis, keys: dict[str, Any]
) -> None:
    waiting, putting = open_two(own_server, open_redis)
    arm(waiting)
    putting.put([new_job(**keys)])
    assert [claim.id for claim in ask(waiting)] == [JOB]
    arm(waiting, "nonce-2")
    [placed] = putting.put([new_job(1, **keys)])
    assert (placed.id, placed.code) == (JOB, PutCode.EXISTING)
    assert putting.check() == []


def test_one_in_whose_way_another_stood(own_server: RedisServer, open_redis: OpenRedis) -> None:
    """The put cancels the expired job, and then hands off its own."""
    waiting, putting = open_two(own_server, open_redis)
    unique = UniqueKey(key="key")
    putting.put([new_job(unique=unique, expires_in_ms=1, run_in_ms=60_000), new_job(1)])
    assert claim_jobs(putting, "other", "nonce-0", ALL, 1).claims
    arm(waiting)
    time.sleep(0.005)
    [placed] = putting.put([new_job(2, unique=unique)])
    assert (placed.id, placed.code) == ("job-000002", PutCode.CREATED)
    assert [claim.id for claim in ask(waiting)] == ["job-000002"]
    assert putting.stats().totals["enqueued"] == 3
    assert own_server.tell("HGET", keys.key(NAMESPACE, 0, "meta"), "sequence").split()[1] == b"4"
    assert state_of(putting) is State.CANCELLED
    assert putting.check() == []


def test_only_to_those_who_serve_its_queue(own_server: RedisServer, open_redis: OpenRedis) -> None:
    engines = [open_redis(own_server.url(namespace=NAMESPACE)) for _ in range(3)]
    putting = engines.pop()
    for waiting, queue in zip(engines, ("mail", "q"), strict=True):
        arm(waiting, "nonce", Plan(queues=(queue,)), queue)
    putting.put([new_job()])
    assert record_of(putting).session == "q"


@pytest.mark.parametrize(
    "job",
    [
        new_job(run_in_ms=60_000),
        new_job(expires_ms=1),
        new_job(queue="q+gpu"),
        new_job(queue="paused"),
        new_job(queue="bounded"),
    ],
    ids=lambda job: f"{job.queue}-{job.run_in_ms}-{job.expires_ms}",
)
def test_not_if_a_claim_might_get_another(
    own_server: RedisServer, open_redis: OpenRedis, job: NewJob
) -> None:
    waiting, putting = open_two(own_server, open_redis)
    putting.change_queue("paused", QueueChange(paused=True))
    putting.change_queue("bounded", QueueChange(max_waiting=9))
    arm(waiting)
    putting.put([job])
    assert state_of(putting) in {State.READY, State.SCHEDULED}
    assert putting.check() == []


@pytest.mark.parametrize(
    "outcome",
    [
        Unroutable(id="job-000001", token="nonce-0"),
        Released(id="job-000001", token="nonce-0", started=False, alone=True),
    ],
    ids=["unroutable", "to run alone"],
)
def test_jobs_that_are_not_in_line_block_no_hand_off(
    own_server: RedisServer, open_redis: OpenRedis, outcome: Outcome
) -> None:
    waiting, putting = open_two(own_server, open_redis)
    putting.put([new_job(1)])
    assert claim_jobs(putting, "worker", "nonce-0", ALL, 1).claims
    assert putting.finish([outcome]) == [Verdict.OK]
    arm(waiting)
    putting.put([new_job()])
    assert state_of(putting) is State.RUNNING
    assert putting.check() == []


def test_a_put_that_is_repeated_hands_nothing_over(
    own_server: RedisServer, open_redis: OpenRedis
) -> None:
    """Its reply was lost, and the job has been run in the meantime."""
    waiting, putting = open_two(own_server, open_redis)
    putting.put([new_job()])
    assert claim_jobs(putting, "worker", "nonce-0", ALL, 1).claims
    putting.finish([Succeeded(id=JOB, token="nonce-0", result=b"1", result_ttl_ms=60_000)])
    arm(waiting)
    before = putting.stats().totals
    assert [placed.code for placed in putting.put([new_job()])] == [PutCode.CREATED]
    assert state_of(putting) is State.SUCCEEDED
    assert putting.stats().totals == before
    putting.put([new_job(1)])
    assert state_of(putting, "job-000001") is State.RUNNING
    assert putting.check() == []


def test_not_before_others_that_stand_in_line(
    own_server: RedisServer, open_redis: OpenRedis
) -> None:
    waiting, putting = open_two(own_server, open_redis)
    arm(waiting, plan=Plan(queues=("q",)))
    putting.put([new_job(0), new_job(1, priority=5)])
    assert [state_of(putting, f"job-{number:06d}") for number in (0, 1)] == [State.READY] * 2
    assert [claim.id for claim in ask(waiting, plan=Plan(queues=("q",)))] == ["job-000001"]
    other = open_redis(own_server.url(namespace=NAMESPACE))
    arm(other, "nonce", Plan(queues=("mail",)), "other")
    putting.put([new_job(2)])
    assert state_of(putting, "job-000002") is State.READY


def test_not_to_a_session_that_is_gone(own_server: RedisServer, open_redis: OpenRedis) -> None:
    waiting, putting = open_two(own_server, open_redis)
    arm(waiting)
    putting.close("worker", (), "")
    putting.put([new_job()])
    assert state_of(putting) is State.READY


def test_a_worker_does_not_listen_any_more(own_server: RedisServer, open_redis: OpenRedis) -> None:
    """It is still registered. Its lease is not extended."""
    waiting, putting = open_two(own_server, open_redis)
    plain = open_redis(own_server.url(namespace="plain"))
    for engine in (waiting, putting, plain):
        engine.clock_offset_ms = StandingStill(NOW_MS)
    arm(waiting)
    [before] = putting.sessions()
    own_server.tell("CLIENT", "KILL", "TYPE", "pubsub")
    for engine in (putting, plain):
        engine.clock_offset_ms = StandingStill(NOW_MS + 1_000)
        engine.put([new_job()])
    assert record_of(putting) == record_of(plain)
    assert putting.stats() == plain.stats()
    assert putting.check() == []
    [after] = putting.sessions()
    assert after.expires_in_ms == before.expires_in_ms - 1_000
    assert [claim.id for claim in ask(waiting)] == [JOB]


def test_the_next_worker_is_handed_the_job(own_server: RedisServer, open_redis: OpenRedis) -> None:
    deaf, putting = open_two(own_server, open_redis)
    listening = open_redis(own_server.url(namespace=NAMESPACE))
    arm(deaf)
    own_server.tell("CLIENT", "KILL", "TYPE", "pubsub")
    arm(listening, "nonce", session="other")
    putting.put([new_job()])
    assert state_of(putting) is State.RUNNING
    assert [claim.id for claim in ask(listening, "nonce", session="other")] == [JOB]


def test_the_message_is_lost(own_server: RedisServer, open_redis: OpenRedis) -> None:
    waiting, putting = open_two(own_server, open_redis)
    arm(waiting)
    putting.put([new_job()])
    putting.put([new_job(1)])
    own_server.tell("CLIENT", "KILL", "TYPE", "pubsub")
    waiting._wakeup.close()
    turn = waiting.turn("worker", (), "nonce-1", Plan(), 5, is_last=True)
    assert [claim.id for claim in turn.batch.claims] == [JOB]
    assert putting.stats().totals == {"enqueued": 2}  # no job was lost or released on the way
    assert state_of(putting, "job-000001") is State.READY


def test_what_was_handed_over_is_given_back(own_server: RedisServer, open_redis: OpenRedis) -> None:
    waiting, putting = open_two(own_server, open_redis)
    arm(waiting)
    putting.put([new_job()])
    assert waiting.release("worker", "nonce-1") == 1
    assert state_of(putting) is State.READY
    assert [claim.token for claim in ask(waiting, "nonce-2")] == ["nonce-2"]


def test_a_message_under_an_earlier_nonce_is_ignored(
    own_server: RedisServer, open_redis: OpenRedis
) -> None:
    waiting, putting = open_two(own_server, open_redis)
    arm(waiting)
    putting.put([new_job()])
    assert claim_jobs(waiting, "worker", "nonce-1", Plan(), 1).claims  # in the usual way
    [wake_up] = waiting.wait([Waiter("worker", ALL, "nonce-2")], 1_000)
    assert waiting.read_handoff(wake_up.handed, "nonce-2") is None
    assert claim_jobs(waiting, "worker", "nonce-2", ALL, 1, is_last=True).claims == ()
    arm(waiting, "nonce-3")
    putting.put([new_job(1)])
    assert [claim.id for claim in ask(waiting, "nonce-3")] == ["job-000001"]


@pytest.mark.parametrize("way", ["release", "claim"])
def test_a_put_that_comes_too_late_leases_nothing(
    own_server: RedisServer, open_redis: OpenRedis, way: str
) -> None:
    """The session has released its nonce, and its worker has not registered again yet."""
    waiting, putting = open_two(own_server, open_redis)
    arm(waiting)
    if way == "release":
        waiting.release("worker", "nonce-1")
    else:
        claim_jobs(waiting, "worker", "nonce-1", Plan(), 1, is_last=True)
    putting.put([new_job()])
    assert state_of(putting) is State.READY
    assert [claim.token for claim in ask(waiting, "nonce-2")] == ["nonce-2"]


def test_a_server_that_restarts_under_it(own_server: RedisServer, open_redis: OpenRedis) -> None:
    waiting = open_redis(own_server.url(namespace=NAMESPACE), timeout_ms=10_000)
    arm(waiting)
    own_server.kill()
    own_server.start()
    open_redis(own_server.url(namespace=NAMESPACE)).put([new_job()])
    assert [claim.id for claim in ask(waiting)] == [JOB]


def test_a_process_has_one_connection_to_be_woken_by(
    own_server: RedisServer, open_redis: OpenRedis
) -> None:
    engine = open_redis(own_server.url(namespace=NAMESPACE))
    for number in range(3):
        arm(engine, f"nonce-{number}")
        claim_jobs(engine, "worker", f"nonce-{number}", Plan(), 1)
    listed = own_server.tell("CLIENT", "LIST")
    others = re.findall(rb"cmd=(\S+)", listed)
    assert len(others) - 1 <= MOST_CALLS + 1, others  # one is the test's own


def test_without_the_right_to_publish_it_is_found(
    own_server: RedisServer, open_redis: OpenRedis
) -> None:
    own_server.add_user("mute", "on", ">secret", "~*", "&*", "+@all", "-publish")
    waiting, putting = (open_redis(own_server.url_for("mute")) for _ in range(2))
    arm(waiting)
    putting.put([new_job()])
    assert waiting.wait([Waiter("worker", ALL, "nonce-1")], 1) == []
    assert [claim.id for claim in claim_jobs(waiting, "worker", "nonce-1", Plan(), 1).claims] == [
        JOB
    ]


def test_a_database_that_was_emptied(own_server: RedisServer, open_redis: OpenRedis) -> None:
    waiting, putting = open_two(own_server, open_redis)
    arm(waiting)
    own_server.tell("FLUSHALL")
    putting.put([new_job()])
    assert [claim.id for claim in ask(waiting)] == [JOB]


def test_nothing_is_handed_to_those_who_run_jobs_alone(
    own_server: RedisServer, open_redis: OpenRedis
) -> None:
    """Nor do they take the wake-up of another session."""
    url = own_server.url(namespace=NAMESPACE)
    alone, waiting, putting = (open_redis(url) for _ in range(3))
    arm(alone, "nonce", Plan(suspects=True), "solo")
    arm(waiting)
    putting.put([new_job(), new_job(1)])
    assert ask(waiting)
    assert alone.wait([Waiter("solo", Plan(suspects=True), "nonce")], 100) == []
    arm(waiting, "nonce-9", Plan(queues=("mail",)))
    putting.put([new_job(2, queue="mail")])
    assert record_of(putting, "job-000002").session == "worker"


def test_a_message_may_come_in_pieces(own_server: RedisServer, open_redis: OpenRedis) -> None:
    waiting, putting = open_two(own_server, open_redis)
    arm(waiting)
    body = os.urandom(16_000)
    own_server.tell("CLIENT", "PAUSE", "50")
    putting.put([new_job(payload=body)])
    assert [claim.payload for claim in ask(waiting)] == [body]
    assert record_of(putting).counters.starts == 1


def test_a_large_job_is_claimed_in_the_usual_way(
    own_server: RedisServer, open_redis: OpenRedis
) -> None:
    """A datagram to the child would be too small for it."""
    waiting, putting = open_two(own_server, open_redis)
    arm(waiting)
    putting.put([new_job(payload=os.urandom(20_000))])
    assert state_of(putting) is State.READY
    assert waiting.wait([Waiter("worker", ALL, "nonce-1")], 1_000) == [WakeUp("worker")]
    assert claim_jobs(waiting, "worker", "nonce-1", ALL, 1, is_last=True).claims


def test_a_worker_with_many_idle_sessions_is_handed_a_job_for_each(
    own_server: RedisServer, open_redis: OpenRedis
) -> None:
    waiting, putting = open_two(own_server, open_redis)
    waiters = [Waiter(f"worker-{number}", ALL, "nonce-1") for number in range(20)]
    waiting.beat([Beat(session=one.session, info=b"it") for one in waiters])
    assert waiting.wait(waiters, 1) == []
    for number in range(25):
        putting.put([new_job(number)])
    records = [record_of(putting, f"job-{number:06d}") for number in range(25)]
    assert {record.session for record in records[:20]} == {one.session for one in waiters}
    assert [record.state for record in records[20:]] == [State.READY] * 5
    woken: list[WakeUp] = []
    while len(woken) < 20:
        known = {wake_up.session for wake_up in woken}
        woken += waiting.wait([one for one in waiters if one.session not in known], 1_000)
    for wake_up in woken:
        batch = waiting.read_handoff(wake_up.handed, "nonce-1")
        assert batch is not None
        [claim] = batch.claims
        assert record_of(putting, claim.id).session == wake_up.session
    assert putting.check() == []


def test_registrations_of_workers_that_were_killed_are_removed(
    own_server: RedisServer, open_redis: OpenRedis
) -> None:
    waiting, _ = open_two(own_server, open_redis)
    names = [keys.key(NAMESPACE, 0, name) for name in ("waiters", "idle")]
    with redis.Redis(port=own_server.port) as client:
        waiting.stats()
        for number in range(50):
            ended = msgspec.msgpack.encode((1, "0", ["q"], ["gpu"], ["session", ""]))
            client.hset(names[0], f"channel-{number}\x000", ended)
            client.zadd(
                names[1], {f"0q\0channel-{number}\x000": 0, f"0q+gpu\0channel-{number}\x000": 0}
            )
        for number in range(400):
            arm(waiting, f"nonce-{number:03}")
            if client.hlen(names[0]) == 2:
                break
        assert client.hlen(names[0]) == 2  # the sentinel, and the waiting one
        assert client.zcard(names[1]) == 2


def test_a_damaged_registration_is_in_no_other_workers_way(
    own_server: RedisServer, open_redis: OpenRedis
) -> None:
    """The index names a registration that does not exist."""
    waiting, putting = open_two(own_server, open_redis)
    name = keys.key(NAMESPACE, 0, "idle")
    putting.stats()
    with redis.Redis(port=own_server.port) as client:
        client.zadd(name, {f"0q\0ghost-{number}\x000": 0 for number in range(40)})
        arm(waiting)
        putting.put([new_job(0), new_job(1)])
        assert ask(waiting)
        assert client.zcard(name) == 1


def test_descriptors_may_be_many(own_server: RedisServer, open_redis: OpenRedis) -> None:
    """A `select` refuses those from 1024 on."""
    many = [os.dup(0) for _ in range(1100)]
    try:
        waiting, putting = open_two(own_server, open_redis)
        arm(waiting)
        putting.put([new_job()])
        assert [claim.id for claim in ask(waiting)] == [JOB]
    finally:
        for descriptor in many:
            os.close(descriptor)


def test_only_to_those_who_listen_at_this_server(
    own_server: RedisServer, open_redis: OpenRedis
) -> None:
    """A client that listens to everything is no worker. And after a failover, a worker may listen
    to the old primary, now a replica, which forwards all messages."""
    waiting, putting = open_two(own_server, open_redis)
    replica = private_server()
    try:
        own_server.tell("CONFIG", "SET", "repl-diskless-sync-delay", "0")  # usually 5 s
        replica.tell("REPLICAOF", "127.0.0.1", str(own_server.port))
        until(lambda: b"master_link_status:up" in replica.tell("INFO", "replication"), "a replica")
        arm(waiting)
        own_server.tell("CLIENT", "KILL", "TYPE", "pubsub")
        here = waiting._wakeup._here.get()
        channel = here.channel
        everything = listen(own_server, "psubscribe", "*")
        elsewhere = listen(replica, "subscribe", channel)
        putting.put([new_job()])
        assert state_of(putting) is State.READY
        for listener in (everything, elsewhere):
            [message] = until(lambda: heard(listener), "a wake-up")  # noqa: B023  # called at once
            assert message.startswith(b"?")
            listener.close()
    finally:
        replica.end()


def listen(server: RedisServer, way: str, channel: str) -> Any:  # the driver has no types for it
    listener: Any = redis.Redis(host="127.0.0.1", port=server.port).pubsub()  # type: ignore[no-untyped-call]  # as it says
    getattr(listener, way)(channel)
    assert listener.get_message(timeout=5) is not None
    return listener


def heard(listener: Any) -> list[bytes]:
    message = listener.get_message(timeout=1)
    return [message["data"]] if message and message["type"].endswith("message") else []


def test_a_right_to_listen_that_is_taken_away(
    own_server: RedisServer, open_redis: OpenRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeup, "PULSE_S", 0.0)
    rights = ("on", ">secret", "~*", "&*", "+@all")
    own_server.add_user("deaf", *rights)
    waiting, putting = (open_redis(own_server.url_for("deaf")) for _ in range(2))
    arm(waiting)
    own_server.add_user("deaf", *rights, "-subscribe")
    for number in range(2, 5):  # only renewals find work
        assert waiting.wait([Waiter("worker", ALL, f"nonce-{number}")], 1) == []
    putting.put([new_job()])
    assert [claim.id for claim in ask(waiting, "nonce-9")] == [JOB]
