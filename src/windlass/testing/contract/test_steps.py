"""Test steps: the holder of a job stores and reads them, and they outlive every attempt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from windlass.core.states import Reason
from windlass.core.unique import OnConflict
from windlass.engine.contract import (
    MAX_ALL_STEPS_BYTES,
    MAX_STEP_BYTES,
    MAX_STEP_NAME,
    MAX_STEPS,
    MIN_RECORD_MS,
    Buried,
    ChangeCode,
    Claim,
    CopyCode,
    NewStep,
    PutCode,
    Released,
    Retried,
    Snoozed,
    Step,
    StepCode,
    Succeeded,
    UniqueKey,
    Unroutable,
    Verdict,
)
from windlass.errors import EngineError
from windlass.testing.contract.world import OUTCOMES, World, retry_jobs

STEP: Final = Step("charge", b"receipt")


def begin(world: World) -> Claim:
    """Put jobs, and claim the first."""
    world.put_many(2)
    return world.take()


def put_step(world: World, claim: Claim, *steps: Step) -> list[StepCode]:
    new = [NewStep(id=claim.id, token=claim.token, step=step) for step in steps or (STEP,)]
    return world.engine.put_steps(new)


def read_steps(world: World, claim: Claim) -> tuple[Step, ...] | None:
    return world.engine.read_steps(claim.id, claim.token)


def test_a_job_begins_without_steps(world: World) -> None:
    assert read_steps(world, begin(world)) == ()


def test_steps_are_read_by_the_bytes_of_their_names(world: World) -> None:
    claim = begin(world)
    names = ["b", "ä", "a", "a b", "Ab", "a\x01", "\U0001f600", "\uffff", "a/b"]
    stored = [Step(name, name.encode() + b"\0\xff") for name in names]
    assert put_step(world, claim, *stored) == [StepCode.STORED] * len(names)
    assert read_steps(world, claim) == tuple(sorted(stored, key=lambda step: step.name.encode()))


def test_only_its_own_job_has_a_step(world: World) -> None:
    first, second = begin(world), world.take()
    put_step(world, first)
    assert read_steps(world, second) == ()
    assert put_step(world, second, Step("charge", b"")) == [StepCode.STORED]
    assert read_steps(world, first) == (STEP,)


def test_the_first_step_with_a_name_counts(world: World) -> None:
    claim = begin(world)
    other = Step("charge", b"other")
    assert put_step(world, claim, STEP, other) == [StepCode.STORED, StepCode.KNOWN]
    assert put_step(world, claim, other) == [StepCode.KNOWN]
    assert read_steps(world, claim) == (STEP,)


def test_a_step_of_many_jobs_in_one_call(world: World) -> None:
    """Each job, in any partition, gets its own."""
    world.put_many(40)
    claims = world.claim(limit=40).claims
    new = [NewStep(id=c.id, token=c.token, step=Step("a", c.id.encode())) for c in claims]
    assert world.engine.put_steps(new) == [StepCode.STORED] * 40
    for claim in claims:
        assert read_steps(world, claim) == (Step("a", claim.id.encode()),)


# ------------------------------------------------------------------------------------ the fencing


@pytest.mark.parametrize("kind", [kind for kind in OUTCOMES if kind != "progressed"])
def test_a_token_whose_claim_has_ended_stores_no_step(world: World, kind: str) -> None:
    claim = begin(world)
    put_step(world, claim)
    world.finish(OUTCOMES[kind](claim.id, claim.token))
    before = world.records(), world.engine.read_copies([claim.id])
    assert put_step(world, claim, Step("mail", b"")) == [StepCode.STALE]
    assert put_step(world, claim) == [StepCode.STALE]
    assert read_steps(world, claim) is None
    assert (world.records(), world.engine.read_copies([claim.id])) == before


def test_a_worker_that_lost_the_job_stores_no_step(world: World) -> None:
    claim = begin(world)
    world.let_expire("worker")
    other = world.take("other")
    assert other.id == claim.id
    assert put_step(world, claim) == [StepCode.STALE]
    assert read_steps(world, claim) is None
    assert read_steps(world, other) == ()
    assert put_step(world, other) == [StepCode.STORED]


def test_a_stale_step_does_not_keep_others_out(world: World) -> None:
    stale, current = begin(world), world.take()
    world.finish(Released(id=stale.id, token=stale.token, started=True))
    new = [NewStep(id=one.id, token=one.token, step=STEP) for one in (stale, current)]
    assert world.engine.put_steps(new) == [StepCode.STALE, StepCode.STORED]


def test_an_unknown_job_has_no_steps(world: World) -> None:
    world.put()
    assert world.engine.read_steps("unknown", "token") is None
    assert world.engine.read_steps("unknown", "") is None
    new = NewStep(id="unknown", token="", step=STEP)
    assert world.engine.put_steps([new]) == [StepCode.STALE]


def test_a_waiting_job_has_no_holder(world: World) -> None:
    id = world.put()
    assert world.engine.read_steps(id, "") is None
    assert world.engine.put_steps([NewStep(id=id, token="", step=STEP)]) == [StepCode.STALE]


def test_a_stale_step_is_counted(world: World) -> None:
    claim = begin(world)
    world.finish(Released(id=claim.id, token=claim.token, started=True))
    put_step(world, claim)
    assert world.engine.stats().totals["stale"] == 1


# ----------------------------------------------------------------------------- later attempts


def retry(world: World, claim: Claim) -> None:
    world.finish(Retried(id=claim.id, token=claim.token, delay_ms=0, error=b"boom"))


def release(world: World, claim: Claim) -> None:
    world.finish(Released(id=claim.id, token=claim.token, started=True))


def snooze(world: World, claim: Claim) -> None:
    world.finish(Snoozed(id=claim.id, token=claim.token, delay_ms=0))


def lose(world: World, claim: Claim) -> None:
    world.let_expire("worker")


def crash(world: World, claim: Claim) -> None:
    world.engine.close("worker", [claim.id], "killed")


def leave_to_others(world: World, claim: Claim) -> None:
    world.finish(Unroutable(id=claim.id, token=claim.token))
    world.engine.adopt([claim.task])


def revive(world: World, claim: Claim) -> None:
    world.finish(Buried(id=claim.id, token=claim.token, reason=Reason.REJECTED, error=b"no"))
    assert retry_jobs(world.engine, [claim.id]) == [ChangeCode.DONE]


def cancel_and_revive(world: World, claim: Claim) -> None:
    world.engine.cancel([claim.id])
    world.finish(Released(id=claim.id, token=claim.token, started=True))
    assert retry_jobs(world.engine, [claim.id]) == [ChangeCode.DONE]


def take_again(world: World, id: str) -> Claim:
    for suspects in (False, True):
        for claim in world.claim("next", suspects=suspects).claims:
            if claim.id == id:
                return claim
    raise AssertionError("the job was not ready")


@pytest.mark.parametrize(
    "end",
    [retry, release, snooze, lose, crash, leave_to_others, revive, cancel_and_revive],
)
def test_a_later_attempt_has_the_steps(world: World, end: Callable[[World, Claim], None]) -> None:
    claim = begin(world)
    put_step(world, claim)
    end(world, claim)
    again = take_again(world, claim.id)
    assert read_steps(world, again) == (STEP,)
    assert put_step(world, again, Step("charge", b"second")) == [StepCode.KNOWN]
    assert put_step(world, again, Step("mail", b"")) == [StepCode.STORED]
    assert read_steps(world, again) == (STEP, Step("mail", b""))
    assert world.engine.check() == []


def test_a_call_that_replaces_another_has_no_steps(world: World) -> None:
    """They were parts of the old call."""
    unique = UniqueKey(key="key", on_conflict=OnConflict.REPLACE)
    world.put(unique=unique)
    claim = world.take()
    put_step(world, claim)
    retry(world, claim)
    (placed,) = world.engine.put([world.new(unique=unique, payload=b"new")])
    assert (placed.id, placed.code) == (claim.id, PutCode.REPLACED)
    assert read_steps(world, world.take()) == ()


def test_a_revived_job_that_is_replaced_has_no_steps(world: World) -> None:
    """Its counters are those of a job that has never run."""
    unique = UniqueKey(key="key", on_conflict=OnConflict.REPLACE)
    world.put(unique=unique)
    claim = world.take()
    put_step(world, claim)
    revive(world, claim)
    world.engine.put([world.new(unique=unique, payload=b"new")])
    assert read_steps(world, world.take()) == ()


# --------------------------------------------------------------------------------- bounds, removal


@pytest.mark.parametrize(
    "step",
    [
        Step("", b""),
        Step("a" * (MAX_STEP_NAME + 1), b""),
        Step("a\0b", b""),
        Step("\ud800", b""),
        Step("a", b"0" * (MAX_STEP_BYTES + 1)),
    ],
    ids=["no name", "long name", "NUL", "surrogate", "large value"],
)
def test_a_step_that_some_engine_cannot_store_is_refused(world: World, step: Step) -> None:
    claim = begin(world)
    with pytest.raises(EngineError, match=r"name|bytes"):
        put_step(world, claim, STEP, step)
    assert read_steps(world, claim) == ()


def test_the_largest_step_is_stored(world: World) -> None:
    claim = begin(world)
    largest = Step("ä" * MAX_STEP_NAME, b"\0" * MAX_STEP_BYTES)
    assert put_step(world, claim, largest) == [StepCode.STORED]
    assert read_steps(world, claim) == (largest,)


def test_a_job_has_a_limited_number_of_steps(world: World) -> None:
    claim = begin(world)
    steps = [Step(f"{number:04}", b"") for number in range(MAX_STEPS)]
    for at in range(0, MAX_STEPS, 500):
        assert set(put_step(world, claim, *steps[at : at + 500])) == {StepCode.STORED}
    assert put_step(world, claim, Step("more", b"")) == [StepCode.FULL]
    assert put_step(world, claim, steps[0]) == [StepCode.KNOWN]
    assert read_steps(world, claim) == tuple(steps)


def test_the_steps_of_a_job_have_a_limited_size(world: World) -> None:
    claim = begin(world)
    number = MAX_ALL_STEPS_BYTES // MAX_STEP_BYTES
    for at in range(number - 1):
        put_step(world, claim, Step(f"{at}", b"0" * MAX_STEP_BYTES))
    assert put_step(world, claim, Step("a", b"0" * (MAX_STEP_BYTES - 1))) == [StepCode.STORED]
    assert put_step(world, claim, Step("b", b"00")) == [StepCode.FULL]
    assert put_step(world, claim, Step("c", b"0")) == [StepCode.STORED]
    assert put_step(world, claim, Step("d", b"")) == [StepCode.STORED]


def put_again(world: World, id: str) -> Claim:
    """Store a job under the id of one that was removed."""
    world.engine.put([world.new(id=id, queue="again")])
    (claim,) = world.claim("again", queues=("again",)).claims
    return claim


def test_steps_go_with_the_record_of_a_job_that_succeeded(world: World) -> None:
    claim = begin(world)
    put_step(world, claim)
    done = Succeeded(id=claim.id, token=claim.token, result=b"1", result_ttl_ms=1_000)
    assert world.finish(done) is Verdict.OK
    world.pass_time(MIN_RECORD_MS + 1_000)
    world.engine.tend()
    assert world.engine.get([claim.id]) == [None]
    assert world.engine.check() == []
    assert read_steps(world, put_again(world, claim.id)) == ()


def test_steps_go_with_a_dead_job_that_is_discarded(world: World) -> None:
    claim = begin(world)
    put_step(world, claim)
    world.finish(Buried(id=claim.id, token=claim.token, reason=Reason.REJECTED, error=b"no"))
    assert world.engine.discard([claim.id]) == [ChangeCode.DONE]
    assert world.engine.check() == []
    assert read_steps(world, put_again(world, claim.id)) == ()


def test_steps_go_with_a_waiting_job_that_is_purged(world: World) -> None:
    claim = begin(world)
    put_step(world, claim)
    retry(world, claim)
    cursor = world.engine.purge("queue").cursor
    while cursor is not None:
        cursor = world.engine.purge("queue", cursor).cursor
    assert world.engine.get([claim.id]) == [None]
    assert world.engine.check() == []
    assert read_steps(world, put_again(world, claim.id)) == ()


# ---------------------------------------------------------------------------------------- copies


@pytest.mark.parametrize("end", [retry, release, snooze, revive])
def test_a_copied_job_has_its_steps(
    world: World, other_world: World, end: Callable[[World, Claim], None]
) -> None:
    claim = begin(world)
    steps = (Step("a", b"\0" * 2_000), STEP, Step("ä", b""))
    put_step(world, claim, *steps)
    end(world, claim)
    copied = world.engine.read_copies([claim.id])
    assert copied[0] is not None
    assert copied[0].steps == steps
    other_world.move_clock(world.now_ms)
    assert other_world.engine.put_copies([copied[0]] * 2) == [CopyCode.STORED, CopyCode.KNOWN]
    assert read_steps(other_world, take_again(other_world, claim.id)) == steps
    assert other_world.engine.check() == []
