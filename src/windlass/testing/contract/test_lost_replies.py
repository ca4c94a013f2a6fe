"""Repeat every operation, as after a lost reply: the repeat must change nothing.

The repeat returns the same reply as the first call. If the first reply counts changes, the repeat
reports that nothing was left to do; the verdict on the end of a claim says that it is a repeat. The
visible state stays the same, totals included.
"""

from collections.abc import Callable
from typing import Final

import pytest

from windlass.core.history import WIDTH
from windlass.core.schedules.occurrences import occurrence_id
from windlass.core.states import Reason
from windlass.core.unique import OnConflict, Until
from windlass.engine.contract import (
    MIN_RECORD_MS,
    UNKNOWN_NONCE_MS,
    AuditEntry,
    Beat,
    Buried,
    ChangeCode,
    Claim,
    Closed,
    DocumentChange,
    JobChange,
    Measure,
    NewJob,
    NewStep,
    Outcome,
    Plan,
    Revival,
    ScheduleChange,
    SessionCommand,
    Step,
    StepCode,
    Succeeded,
    Tended,
    UniqueKey,
    Unroutable,
    Verdict,
)
from windlass.testing.contract.world import OUTCOMES, START_MS, World, claim_jobs, retry_jobs

Call = Callable[[], object]
SAME: Final = object()


def a_claim(world: World) -> Claim:
    world.put_many(3)
    return world.take()


def put(world: World) -> tuple[Call, object]:
    jobs = [world.new(), world.new(run_in_ms=9), world.new(expires_in_ms=9)]
    return lambda: world.engine.put(jobs), SAME


def put_with_keys(world: World) -> tuple[Call, object]:
    world.put(idempotency_key="taken", fingerprint="one")
    jobs: list[NewJob] = [
        world.new(idempotency_key="key"),
        world.new(idempotency_key="taken", fingerprint="one"),
        world.new(idempotency_key="taken", fingerprint="two"),
    ]
    return lambda: world.engine.put(jobs), SAME


def put_with_unique_keys(world: World) -> tuple[Call, object]:
    world.put(unique=UniqueKey(key="taken"))
    jobs = [
        world.new(unique=UniqueKey(key="free")),
        world.new(unique=UniqueKey(key="taken")),
        world.new(unique=UniqueKey(key="taken", on_conflict=OnConflict.RAISE)),
        world.new(unique=UniqueKey(key="taken", on_conflict=OnConflict.REPLACE), payload=b"new"),
    ]
    return lambda: world.engine.put(jobs), SAME


def put_that_replaces_what_starts_meanwhile(world: World) -> tuple[Call, object]:
    """Repeat a put when its key is free again: the call must not be stored twice."""
    unique = UniqueKey(key="key", until=Until.START, on_conflict=OnConflict.REPLACE)
    world.put(unique=unique)
    job = world.new(unique=unique, payload=b"new", run_in_ms=0)

    def put_and_claim() -> object:
        placed = world.engine.put([job])
        claim_jobs(world.engine, "worker", "nonce", Plan(), 5)
        return placed

    return put_and_claim, SAME


def claim(world: World) -> tuple[Call, object]:
    world.put_many(3, queue="a")
    world.put_many(3, queue="b", priority=9)
    world.put(run_in_ms=1_000)
    plan = Plan(queues=("a", "b"))
    return lambda: claim_jobs(world.engine, "worker", "nonce", plan, 5), SAME


def claim_that_promotes_and_reaps(world: World) -> tuple[Call, object]:
    world.put_many(2)
    world.claim("silent")
    world.put_many(2, run_in_ms=9)
    world.put(expires_in_ms=9)
    world.pass_time(60_000)
    return lambda: claim_jobs(world.engine, "worker", "nonce", Plan(), 3), SAME


def turn(world: World) -> tuple[Call, object]:
    held = a_claim(world)
    outcomes = [Succeeded(id=held.id, token=held.token)]
    return lambda: world.engine.turn("worker", outcomes, "nonce-next", Plan(), 1).batch, SAME


def turn_that_claims_what_it_gave_back(world: World) -> tuple[Call, object]:
    held = a_claim(world)
    outcomes: list[Outcome] = [OUTCOMES["released"](held.id, held.token)]
    return lambda: world.engine.turn("worker", outcomes, "nonce-next", Plan(), 1).batch, SAME


def release(world: World) -> tuple[Call, object]:
    held = a_claim(world)
    return lambda: world.engine.release("worker", held.token), 0


def beat(world: World) -> tuple[Call, object]:
    held = a_claim(world)
    world.engine.cancel([held.id])
    world.advance(UNKNOWN_NONCE_MS)
    beats = [
        Beat(session="worker", nonces=(held.token,), newest=held.token),
        Beat(session="unknown"),
    ]
    return lambda: world.engine.beat(beats), SAME


def beat_that_gives_back(world: World) -> tuple[Call, object]:
    beats = [Beat(session="worker", nonces=(), newest=a_claim(world).token)]
    world.advance(UNKNOWN_NONCE_MS)
    return lambda: world.engine.beat(beats), SAME


def beat_with_jobs(world: World) -> tuple[Call, object]:
    """Give back one job, keep one, and name one that is lost."""
    world.put_many(2)
    first, _ = world.claim().claims
    world.advance(UNKNOWN_NONCE_MS)
    beats = [Beat(session="worker", held=(first.id, "lost"), newest=first.token)]
    return lambda: world.engine.beat(beats), SAME


def command(world: World) -> tuple[Call, object]:
    a_claim(world)
    names = ["worker", "unknown"]
    return lambda: world.engine.command(names, SessionCommand.QUIET), SAME


def change_documents(world: World) -> tuple[Call, object]:
    made = DocumentChange(kind="kind", key="a", expected="", revision="1", body=b"a")
    gone = DocumentChange(kind="kind", key="b", expected="", revision="2", body=b"b")
    world.engine.change_documents([made, gone])
    changes = [
        DocumentChange(kind="kind", key="a", expected="1", revision="3", body=b"other"),
        DocumentChange(kind="kind", key="b", expected="2", revision="4", body=None),
        DocumentChange(kind="kind", key="c", expected="", revision="5", body=b"new"),
        DocumentChange(kind="kind", key="d", expected="9", revision="6", body=b"late"),
    ]
    return lambda: world.engine.change_documents(changes), SAME


def add_audit(world: World) -> tuple[Call, object]:
    entries = [AuditEntry(id=id, body=b"entry") for id in ("b", "a")]

    def add() -> None:
        world.engine.add_audit(entries)
        world.advance(1)

    return add, SAME


def close(world: World) -> tuple[Call, object]:
    world.put_many(3)
    ids = [claim.id for claim in world.claim().claims]
    return lambda: world.engine.close("worker", ids[:1], "killed"), Closed()


def lose(world: World) -> tuple[Call, object]:
    world.put_many(3)
    world.claim()
    return lambda: world.engine.lose("worker", "its worker died"), 0


def cancel(world: World) -> tuple[Call, object]:
    held = a_claim(world)
    ids = [held.id, world.put(), world.put(run_in_ms=9), "nowhere"]
    return lambda: world.engine.cancel(ids), SAME


def a_schedule(world: World) -> ScheduleChange:
    made = ScheduleChange(
        name="s", expected="", revision="1", due_ms=world.now_ms, note=b"n", body=b"body"
    )
    world.engine.change_schedules([made])
    return made


def fire(world: World) -> tuple[Call, object]:
    made, partition = a_schedule(world), world.engine.schedule_partition("s")
    earlier, job = (world.new(id=occurrence_id("s", at_ms, partition)) for at_ms in (1, 2))
    world.engine.put([earlier])
    fired = ScheduleChange(
        name="s",
        expected=made.revision,
        revision="2",
        due_ms=world.now_ms + 1_000,
        note=b"fired",
        watched=(job.id,),
        cancelled=(earlier.id,),
        jobs=(job,),
    )
    return lambda: world.engine.change_schedules([fired]), SAME


def pause_schedule(world: World) -> tuple[Call, object]:
    made = a_schedule(world)
    paused = ScheduleChange(
        name="s", expected=made.revision, revision="2", due_ms=None, note=b"paused"
    )
    return lambda: world.engine.change_schedules([paused]), SAME


def remove_schedule(world: World) -> tuple[Call, object]:
    a_schedule(world)
    return lambda: world.engine.remove_schedule("s"), False


def buried(world: World) -> str:
    held = a_claim(world)
    outcome = Buried(id=held.id, token=held.token, reason=Reason.REJECTED, error=b"no")
    world.finish(outcome)
    return held.id


def retry(world: World) -> tuple[Call, object]:
    """Retry a dead job. The repeat finds the job ready, and is refused."""
    id = buried(world)
    return lambda: retry_jobs(world.engine, [id]), [ChangeCode.REFUSED]


def change_jobs(world: World) -> tuple[Call, object]:
    id = world.put(run_in_ms=9)
    seen = world.get(id).revision
    change = JobChange(id=id, seen=seen, payload=b"other", queue="x", run_in_ms=0)
    return lambda: world.engine.change_jobs([change]), [ChangeCode.REFUSED]


def change_jobs_that_were_not_seen(world: World) -> tuple[Call, object]:
    ids = [world.put(), world.put(run_in_ms=9)]
    changes = [JobChange(id=id, queue="x", run_in_ms=0) for id in ids]
    return lambda: world.engine.change_jobs(changes), SAME


def revive(world: World) -> tuple[Call, object]:
    id = buried(world)
    revival = Revival(id=id, finished_ms=world.get(id).finished_ms, payload=b"other")
    return lambda: world.engine.revive([revival]), [ChangeCode.REFUSED]


def discard(world: World) -> tuple[Call, object]:
    """Discard a dead job. The repeat finds no job."""
    id = buried(world)
    return lambda: world.engine.discard([id]), [ChangeCode.UNKNOWN]


def adopt(world: World) -> tuple[Call, object]:
    held = a_claim(world)
    world.finish(Unroutable(id=held.id, token=held.token))
    return lambda: world.engine.adopt([held.task]), 0


def resume_task(world: World) -> tuple[Call, object]:
    world.put_many(2)
    world.engine.pause_task("task")
    world.claim()
    return lambda: world.engine.resume_task("task"), 0


def tend(world: World) -> tuple[Call, object]:
    held = a_claim(world)
    world.finish(Succeeded(id=held.id, token=held.token))
    world.take("silent")
    world.pass_time(MIN_RECORD_MS)
    return world.engine.tend, Tended()


def record(world: World) -> tuple[Call, object]:
    measure = Measure(queue="queue", task="task", counts=(1,) * WIDTH)
    return lambda: world.engine.record("worker", 1, [measure]), SAME


def put_steps(world: World) -> tuple[Call, object]:
    """Store a step. The repeat finds the step."""
    held = a_claim(world)
    new = [NewStep(id=held.id, token=held.token, step=Step("charge", b"receipt"))]
    return lambda: world.engine.put_steps(new), [StepCode.KNOWN]


VERBS: Final = [
    put,
    put_with_keys,
    put_with_unique_keys,
    put_that_replaces_what_starts_meanwhile,
    change_jobs,
    change_jobs_that_were_not_seen,
    resume_task,
    claim,
    claim_that_promotes_and_reaps,
    turn,
    turn_that_claims_what_it_gave_back,
    release,
    beat,
    beat_that_gives_back,
    beat_with_jobs,
    command,
    change_documents,
    add_audit,
    record,
    put_steps,
    close,
    lose,
    cancel,
    retry,
    revive,
    discard,
    adopt,
    tend,
    fire,
]
#: Similar operations, skipped in the slow tests that lose two hundred replies of a real server.
LIKE_THOSE: Final = [pause_schedule, remove_schedule]


@pytest.mark.parametrize("verb", [*VERBS, *LIKE_THOSE])
def test_a_repeated_call_changes_nothing(
    world: World, verb: Callable[[World], tuple[Call, object]]
) -> None:
    call, expected = verb(world)
    start = world.everything()
    first = call()
    after = world.everything()
    assert after != start or verb is beat  # the first call had an effect
    assert call() == (first if expected is SAME else expected)
    assert world.everything() == after


@pytest.mark.parametrize("kind", OUTCOMES)
def test_a_repeated_outcome_changes_nothing(world: World, kind: str) -> None:
    held = a_claim(world)
    outcome = OUTCOMES[kind](held.id, held.token)
    assert world.finish(outcome) is Verdict.OK
    after = world.everything()
    is_end = kind != "progressed"
    assert world.finish(outcome) is (Verdict.REPEATED if is_end else Verdict.OK)
    assert world.everything() == after


def test_a_repeat_after_a_while_changes_nothing(world: World) -> None:
    """Repeat a success late: its record outlives its result, to recognise the repeat."""
    held = a_claim(world)
    outcome = Succeeded(id=held.id, token=held.token, result=b"result", result_ttl_ms=1_000)
    world.finish(outcome)
    world.advance(MIN_RECORD_MS - 1)
    world.engine.tend()
    after = world.everything()
    assert world.finish(outcome) is Verdict.REPEATED
    assert world.everything() == after
    assert world.now_ms == START_MS + MIN_RECORD_MS - 1
