"""Steps of a job (`ctx.once`): which attempt runs them, what they return, and every refusal."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import count
from typing import Any
from uuid import UUID

import pytest

from tests.worker.faulty import Faulty, lose_reply, lose_request, once
from tests.worker.yard import until
from windlass import Context, Retry, Windlass
from windlass.core.failures import FailureText
from windlass.core.ids import new_nonce
from windlass.core.signals import Interruption
from windlass.engine.contract import (
    MAX_ALL_STEPS_BYTES,
    MAX_STEP_BYTES,
    MAX_STEPS,
    Buried,
    Claim,
    NewStep,
    Outcome,
    Plan,
    Retried,
    Step,
    StepCode,
    Succeeded,
)
from windlass.errors import ClaimLost, EngineUnavailable, OnceRefused
from windlass.testing import Sandbox
from windlass.testing.stages import HereStage, complete
from windlass.worker.run.pipeline import Execution

SECRET = "a secret of at least thirty-two characters"
Body = Callable[[Context], Any]


class Rig:
    """An app with one task, whose function each test gives, and a worker without processes."""

    def __init__(self, app: Windlass) -> None:
        self.app = app
        self.body: Body = lambda ctx: None

        def task(ctx: Context) -> Any:
            return self.body(ctx)

        async def coroutine(ctx: Context) -> Any:
            return await self.body(ctx)

        self.task = app.task(name="task", takes_context=True)(task)
        self.coroutine = app.task(name="coroutine", takes_context=True)(coroutine)
        self.engine = Faulty(app.engine)
        self._execution = Execution(
            app.settings,
            lambda claim, progress: None,
            lambda task: None,
            packing=app.packing,
            steps=self.engine,
        )
        self._stage = HereStage()
        self._numbers = count(1)

    def claim(self, session: str = "worker") -> Claim:
        self.app.engine.clock_offset_ms += 60_000  # a retry is due
        nonce = new_nonce(next(self._numbers))
        (claim,) = self.app.engine.turn(session, (), nonce, Plan(), 1).batch.claims
        return claim

    def run(self, body: Body, claim: Claim | None = None) -> Outcome:
        """Run the next attempt."""
        self.body = body
        claim = claim or self.claim()
        task = self.app.known_tasks[claim.task]
        outcome = complete(self._stage.run(self._execution, claim, task))
        self.app.engine.finish([outcome])
        return outcome

    def result(self, body: Body) -> Any:
        outcome = self.run(body)
        assert isinstance(outcome, Succeeded), self.error(outcome)
        assert outcome.result is not None
        mark, encoded = self.app.packing.unpack_result(outcome.result, "task", outcome.id)
        return self.task.codecs[mark].decode_result(encoded)

    def error(self, outcome: Outcome) -> str:
        assert isinstance(outcome, Retried | Buried), outcome
        text = FailureText.unpack(outcome.error)
        return f"{text.type}: {text.message}"

    def fail(self, body: Body) -> str:
        """Run an attempt that fails, and return its error."""
        return self.error(self.run(body))

    def close(self) -> None:
        self._stage.close()
        assert self.app.engine.check() == []


@pytest.fixture
def rig() -> Iterator[Rig]:
    with make_app() as app:
        rig = Rig(app)
        yield rig
        rig.close()


def make_app(**settings: Any) -> Windlass:
    retry = Retry(max_attempts=20, base=0.01)
    return Windlass("sqlite:///:memory:", retry=retry, **settings)


class Effect:
    """A side effect that counts how often it happens, and returns a value."""

    def __init__(self, value: Any = "receipt") -> None:
        self.times = 0
        self._value = value

    def __call__(self) -> Any:
        self.times += 1
        return self._value

    async def later(self) -> Any:
        await asyncio.sleep(0)
        return self()


def fail(*_: object) -> Any:
    raise ValueError("told to fail")


# ------------------------------------------------------------------------------ which attempt runs


def test_a_completed_step_does_not_run_again(rig: Rig) -> None:
    charge = Effect()
    rig.task.enqueue()
    assert "told to fail" in rig.fail(lambda ctx: fail(ctx.once("charge", charge)))
    assert rig.result(lambda ctx: ctx.once("charge", charge)) == "receipt"
    assert charge.times == 1


def test_a_completed_coroutine_does_not_run_again(rig: Rig) -> None:
    charge = Effect()

    async def fail_after(ctx: Context) -> None:
        fail(await ctx.aonce("charge", charge.later))

    async def succeed(ctx: Context) -> str:
        return str(await ctx.aonce("charge", charge.later))

    rig.coroutine.enqueue()
    assert "told to fail" in rig.fail(fail_after)
    assert rig.result(succeed) == "receipt"
    assert charge.times == 1


def test_a_step_that_failed_runs_again(rig: Rig) -> None:
    rig.task.enqueue()
    assert "told to fail" in rig.fail(lambda ctx: ctx.once("charge", fail))
    charge = Effect()
    assert rig.result(lambda ctx: ctx.once("charge", charge)) == "receipt"
    assert charge.times == 1


def test_a_step_that_failed_may_run_again_in_the_same_run(rig: Rig) -> None:
    def body(ctx: Context) -> str:
        with pytest.raises(ValueError, match="told to fail"):
            ctx.once("charge", fail)
        return str(ctx.once("charge", Effect()))

    rig.task.enqueue()
    assert rig.result(body) == "receipt"


def test_a_revived_dead_letter_keeps_its_steps(rig: Rig) -> None:
    charge = Effect()
    job = rig.task.using(retry=Retry(max_attempts=1)).enqueue()
    assert isinstance(rig.run(lambda ctx: fail(ctx.once("charge", charge))), Buried)
    job.retry()
    assert rig.result(lambda ctx: ctx.once("charge", charge)) == "receipt"
    assert charge.times == 1


def test_each_job_has_its_own_steps(rig: Rig) -> None:
    charge = Effect()
    for _ in range(2):
        rig.task.enqueue()
        assert rig.result(lambda ctx: ctx.once("charge", charge)) == "receipt"
    assert charge.times == 2


def test_a_step_may_have_steps(rig: Rig) -> None:
    inner, outer = Effect("inner"), Effect("outer")

    def both(ctx: Context) -> str:
        ctx.once("inner", inner)
        if ctx.attempt == 1:
            fail()
        return str(outer())

    rig.task.enqueue()
    rig.fail(lambda ctx: ctx.once("outer", both, ctx))
    assert rig.result(lambda ctx: ctx.once("outer", both, ctx)) == "outer"
    assert (inner.times, outer.times) == (1, 1)


def test_a_job_without_steps_asks_the_engine_nothing(rig: Rig) -> None:
    rig.task.enqueue()
    rig.run(lambda ctx: ctx.idempotency_key)
    assert rig.engine.calls == []


def test_a_run_reads_its_steps_once(rig: Rig) -> None:
    rig.task.enqueue()
    rig.run(lambda ctx: [ctx.once(key, Effect()) for key in "abc"] and None)
    assert rig.engine.calls == ["read_steps"] + 3 * ["put_steps"]


def test_threads_of_a_task_share_its_steps(rig: Rig) -> None:
    """The other thread waits until the first has begun, and is refused the same key."""
    errors: list[BaseException] = []

    def body(ctx: Context) -> None:
        begun, refused = threading.Event(), threading.Event()

        def other() -> None:
            begun.wait(10)
            try:
                ctx.once("charge", Effect())
            except OnceRefused as error:
                errors.append(error)
            refused.set()

        def charge() -> None:
            begun.set()
            assert refused.wait(10)

        thread = threading.Thread(target=other)
        thread.start()
        ctx.once("charge", charge)
        thread.join()

    rig.task.enqueue()
    rig.result(body)
    assert len(errors) == 1


# -------------------------------------------------------------------------------------- values


@dataclass
class Receipt:
    number: int
    at: datetime


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def charge_card(cents: int, *, currency: str) -> Receipt:
    return Receipt(cents, NOON)


def test_a_value_is_rebuilt_by_the_annotation(rig: Rig) -> None:
    seen: list[object] = []

    def body(ctx: Context) -> None:
        seen.append(ctx.once("charge", charge_card, 5, currency="EUR"))
        if ctx.attempt == 1:
            fail()

    rig.task.enqueue()
    rig.fail(body)
    rig.run(body)
    assert seen == [Receipt(5, NOON)] * 2


def test_without_an_annotation_all_attempts_get_the_types_of_json(rig: Rig) -> None:
    """Also the first one, so that no retry is the first to meet them."""
    seen: list[object] = []

    def body(ctx: Context) -> None:
        seen.append(ctx.once("charge", lambda: (1, NOON)))
        if ctx.attempt == 1:
            fail()

    rig.task.enqueue()
    rig.fail(body)
    rig.run(body)
    assert seen == [[1, "2026-01-01T12:00:00Z"]] * 2


class Card:
    """A card whose methods and instances can be steps."""

    def charge(self, cents: int) -> Receipt:
        return Receipt(cents, NOON)

    def __call__(self, cents: int) -> Receipt:
        return self.charge(cents)


@pytest.mark.parametrize(
    "charge",
    [
        Card().charge,
        Card(),
        partial(charge_card, currency="EUR"),
        partial(Card()),
        partial(Receipt, at=NOON),
    ],
    ids=["method", "object", "partial", "partial of object", "class"],
)
def test_anything_that_can_be_called_can_be_a_step(rig: Rig, charge: Callable[..., Any]) -> None:
    seen: list[object] = []

    def body(ctx: Context) -> None:
        seen.append(ctx.once("charge", charge, 5))
        if ctx.attempt == 1:
            fail()

    rig.task.enqueue()
    rig.fail(body)
    rig.run(body)
    assert seen == [Receipt(5, NOON)] * 2


def test_a_function_of_c_can_be_a_step(rig: Rig) -> None:
    rig.task.enqueue()
    assert rig.result(lambda ctx: ctx.once("least", min, 3, 2)) == 2


@pytest.mark.parametrize("value", [object(), "x" * MAX_STEP_BYTES], ids=["object", "large"])
def test_a_value_that_cannot_be_stored_does_not_repeat_the_step(rig: Rig, value: object) -> None:
    charge = Effect(value)
    rig.task.enqueue()
    first = rig.fail(lambda ctx: ctx.once("charge", charge))
    assert "EncodeError: ctx.once('charge')" in first
    assert "has run, and will not run again" in first
    assert "ran in an earlier attempt" in rig.fail(lambda ctx: ctx.once("charge", charge))
    assert charge.times == 1


def test_a_type_that_cannot_be_stored_is_refused_before_the_step(rig: Rig) -> None:
    ran = []

    def charge() -> threading.Thread:
        ran.append(1)
        return threading.current_thread()

    rig.task.enqueue()
    assert "AnnotationError: the result of ctx.once('charge')" in rig.fail(
        lambda ctx: ctx.once("charge", charge)
    )
    assert ran == []


def test_bytes_that_do_not_fit_do_not_repeat_the_step(rig: Rig) -> None:
    """A new version of the function returns another type."""
    ran = []

    def charge() -> int:
        ran.append(1)
        return 1

    rig.task.enqueue()
    rig.fail(lambda ctx: fail(ctx.once("charge", Effect("text"))))
    error = rig.fail(lambda ctx: ctx.once("charge", charge))
    assert "DecodeError: ctx.once('charge') of job " in error
    assert "the result of ctx.once('charge'): expected int, found str. Let the annotation" in error
    assert ran == []


@pytest.mark.parametrize(
    "settings",
    [
        {"codec": "msgpack"},
        {"codec": "pickle", "secret": SECRET},
        {"encrypt": True, "secret": SECRET},
    ],
    ids=["msgpack", "pickle", "encrypted"],
)
def test_values_are_stored_by_the_settings_of_the_app(settings: dict[str, Any]) -> None:
    with make_app(**settings) as app:
        rig, charge = Rig(app), Effect(["receipt"])
        rig.task.enqueue()
        rig.fail(lambda ctx: fail(ctx.once("charge", charge)))
        claim = rig.claim()
        (step,) = app.engine.read_steps(claim.id, claim.token) or ()
        assert step.value != b'["receipt"]'
        assert (b"receipt" in step.value) is not settings.get("encrypt", False)
        seen: list[object] = []
        rig.run(lambda ctx: seen.append(ctx.once("charge", charge)), claim)
        assert seen == [["receipt"]]
        assert charge.times == 1
        rig.close()


def test_an_encrypted_value_belongs_to_its_step() -> None:
    """A value that was copied to another name in the database is refused."""
    with make_app(encrypt=True, secret=SECRET) as app:
        rig = Rig(app)
        rig.task.enqueue()
        rig.fail(lambda ctx: fail(ctx.once("a", Effect())))
        claim = rig.claim()
        (step,) = app.engine.read_steps(claim.id, claim.token) or ()
        new = NewStep(id=claim.id, token=claim.token, step=Step("b", step.value))
        assert app.engine.put_steps([new]) == [StepCode.STORED]
        outcome = rig.run(lambda ctx: ctx.once("b", Effect()), claim)
        assert isinstance(outcome, Retried)
        text = app.packing.open_failure(FailureText.unpack(outcome.error), "task", claim.id)
        assert text.type == "windlass.errors.DecodeError"
        rig.close()


# ----------------------------------------------------------------------------------- refusals


def test_a_key_is_for_one_step_of_a_run(rig: Rig) -> None:
    """A loop with one key would otherwise run its step only for the first item."""
    charge = Effect()
    rig.task.enqueue()
    error = rig.fail(lambda ctx: [ctx.once("charge", charge) for _ in range(2)])
    assert "OnceRefused: ctx.once('charge') was called before in this run" in error
    assert charge.times == 1


@pytest.mark.parametrize("key", ["", "x" * 201, "a\0b", "\ud800", 5, None])
def test_a_key_is_a_short_text(rig: Rig, key: Any) -> None:
    charge = Effect()
    rig.task.enqueue()
    assert "OnceRefused: Expected a key" in rig.fail(lambda ctx: ctx.once(key, charge))
    assert charge.times == 0


def test_an_event_loop_is_not_blocked(rig: Rig) -> None:
    charge = Effect()

    async def body(ctx: Context) -> None:
        ctx.once("charge", charge)

    rig.coroutine.enqueue()
    assert "await ctx.aonce" in rig.fail(body)
    assert charge.times == 0


def test_a_coroutine_is_no_plain_step(rig: Rig) -> None:
    charge = Effect()
    rig.task.enqueue()
    assert "await ctx.aonce" in rig.fail(lambda ctx: ctx.once("charge", charge.later))
    assert charge.times == 0
    assert rig.result(lambda ctx: ctx.once("charge", charge)) == "receipt"


def test_a_step_beyond_the_limit_is_refused_before_it_runs(rig: Rig) -> None:
    charge = Effect()
    rig.task.enqueue()
    claim = rig.claim()
    steps = [Step(f"{number}", b"1") for number in range(MAX_STEPS)]
    new = [NewStep(id=claim.id, token=claim.token, step=step) for step in steps]
    assert set(rig.app.engine.put_steps(new)) == {StepCode.STORED}
    outcome = rig.run(lambda ctx: ctx.once("charge", charge), claim)
    assert "was not run" in rig.error(outcome)
    assert charge.times == 0
    assert rig.result(lambda ctx: ctx.once("7", charge)) == 1


def test_a_step_without_room_for_its_value_is_refused(rig: Rig) -> None:
    charge = Effect()
    rig.task.enqueue()
    claim = rig.claim()
    for number in range(MAX_ALL_STEPS_BYTES // MAX_STEP_BYTES):
        step = Step(f"{number}", b"1" * MAX_STEP_BYTES)
        rig.app.engine.put_steps([NewStep(id=claim.id, token=claim.token, step=step)])
    outcome = rig.run(lambda ctx: ctx.once("charge", charge), claim)
    assert "was not run" in rig.error(outcome)
    assert charge.times == 0


@pytest.mark.parametrize("value", ["", "0" * MAX_STEP_BYTES], ids=["number", "bytes"])
def test_threads_that_take_the_last_room_are_told_so(rig: Rig, value: str) -> None:
    """The room is there when the function begins, and no more when it ends."""

    def body(ctx: Context) -> None:
        steps = [Step(f"{number}", value.encode()) for number in range(1_000)]
        new = [NewStep(id=claim.id, token=claim.token, step=step) for step in steps]
        ctx.once("charge", lambda: rig.app.engine.put_steps(new) and None)

    rig.task.enqueue()
    claim = rig.claim()
    error = rig.error(rig.run(body, claim))
    assert "EncodeError: ctx.once('charge')" in error
    assert ("will not run again" in error) == bool(value)
    assert ("will run again" in error) == (not value)


# ------------------------------------------------------------------- claims that are over, outages


def take_away(rig: Rig) -> None:
    """End the session of the worker, so that another one gets its job."""
    assert rig.app.engine.lose("worker", "a test") == 1


def test_a_job_that_was_reassigned_runs_no_step(rig: Rig) -> None:
    charge = Effect()

    def body(ctx: Context) -> None:
        take_away(rig)
        with pytest.raises(ClaimLost):
            ctx.once("charge", charge)

    rig.task.enqueue()
    rig.result(body)
    assert charge.times == 0


def test_a_job_that_is_reassigned_during_a_step_does_not_store_it(rig: Rig) -> None:
    errors: list[ClaimLost] = []

    def body(ctx: Context) -> None:
        with pytest.raises(ClaimLost) as caught:
            ctx.once("charge", take_away, rig)
        errors.append(caught.value)

    rig.task.enqueue()
    rig.result(body)
    claim = rig.claim("other")
    assert errors[0].job_id == claim.id
    assert rig.app.engine.read_steps(claim.id, claim.token) == ()


def test_a_worker_without_a_heartbeat_runs_no_step(rig: Rig) -> None:
    charge = Effect()

    def body(ctx: Context) -> None:
        ctx.once("before", charge)
        ctx.interruption = Interruption.LOST
        with pytest.raises(ClaimLost):
            ctx.once("charge", charge)

    rig.task.enqueue()
    rig.result(body)
    assert charge.times == 1


@pytest.mark.parametrize("verb", ["read_steps", "put_steps"])
@pytest.mark.parametrize("fault", [lose_reply, lose_request])
def test_a_lost_call_is_repeated(
    rig: Rig, verb: str, fault: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The step has taken effect, so the run waits for the engine."""
    charge = Effect()
    rig.engine.faults[verb] = once(fault)
    rig.task.enqueue()
    assert rig.result(lambda ctx: ctx.once("charge", charge)) == "receipt"
    assert charge.times == 1
    assert rig.engine.calls.count(verb) == 2
    assert "lost connection to engine in a step of job" in caplog.text


def test_a_run_that_is_interrupted_waits_no_longer(rig: Rig) -> None:
    def body(ctx: Context) -> None:
        def interrupt(real: Callable[[], Any], _arguments: object) -> Any:
            ctx.interruption = Interruption.TIMED_OUT
            raise EngineUnavailable("away")

        rig.engine.faults["put_steps"] = interrupt
        with pytest.raises(EngineUnavailable):
            ctx.once("charge", charge)
        with pytest.raises(OnceRefused, match="was called before"):
            ctx.once("charge", charge)

    charge = Effect()
    rig.task.enqueue()
    rig.result(body)
    assert charge.times == 1


def test_a_time_out_does_not_cut_off_the_record_of_a_step(rig: Rig) -> None:
    charge = Effect()

    def body(ctx: Context) -> None:
        def be_slow(real: Callable[[], Any], _arguments: object) -> Any:
            until(lambda: ctx.interruption is not None, "the time-out")
            for _ in range(1_000):  # here the exception would arrive
                pass
            return real()

        rig.engine.faults["put_steps"] = be_slow
        ctx.once("charge", charge)

    rig.task.using(timeout="50ms").enqueue()
    assert "TimedOut" in rig.fail(body)
    assert rig.result(lambda ctx: ctx.once("charge", charge)) == "receipt"
    assert charge.times == 1


def test_a_cancelled_coroutine_stores_the_step_that_it_has_completed(rig: Rig) -> None:
    charge, over = Effect(), threading.Event()

    async def body(ctx: Context) -> None:
        this = asyncio.current_task()
        assert this is not None

        def cancel(real: Callable[[], Any], _arguments: object) -> Any:
            this.get_loop().call_soon_threadsafe(this.cancel)
            assert not over.wait(0.1), "the run ended before its step was stored"
            return real()

        rig.engine.faults["put_steps"] = cancel
        try:
            await ctx.aonce("charge", charge.later)
        finally:
            over.set()

    async def succeed(ctx: Context) -> str:
        return str(await ctx.aonce("charge", charge.later))

    rig.coroutine.enqueue()
    assert "CancelledError" in rig.fail(body)
    assert rig.result(succeed) == "receipt"
    assert charge.times == 1


# --------------------------------------------------------------------------- keys, other places


def test_the_idempotency_key_is_that_of_the_job(rig: Rig) -> None:
    keys: list[str] = []

    def body(ctx: Context) -> None:
        keys.append(ctx.idempotency_key)
        if ctx.attempt == 1:
            fail()

    for _ in range(2):
        rig.task.enqueue()
        rig.fail(body)
        rig.run(body)
    assert keys[0] == keys[1] != keys[2] == keys[3]
    assert [str(UUID(key)) for key in keys] == keys


def test_the_idempotency_key_never_changes_between_versions() -> None:
    ctx = Context(
        job_id="01jd3v7k2q0a9f2m4x8k1c7q3z",
        task="task",
        queue="queue",
        attempt=1,
        max_attempts=1,
        sink=lambda report: None,
    )
    assert ctx.idempotency_key == "687fe8e8-b545-5d55-b3e6-a01e3660fe2b"


def test_a_plain_call_stores_nothing_and_runs_each_step(rig: Rig) -> None:
    charge = Effect()
    rig.body = lambda ctx: [ctx.once("charge", charge), ctx.once("charge", charge)]
    assert rig.task() == ["receipt", "receipt"]

    async def body(ctx: Context) -> Any:
        return await ctx.aonce("charge", charge.later)

    rig.body = body
    assert asyncio.run(rig.coroutine()) == "receipt"
    assert rig.engine.calls == []


def test_a_sandbox_keeps_steps() -> None:
    app, charge = Windlass("sqlite:////there/is/no/such/folder/jobs.db"), Effect()

    @app.task(takes_context=True, retry=Retry(2, base=1))
    def work(ctx: Context) -> str:
        receipt = str(ctx.once("charge", charge))
        if ctx.attempt == 1:
            fail()
        return receipt

    with Sandbox(app) as box:
        job = work.enqueue()
        box.drain(raise_errors=False)
        box.advance("1m")
        box.drain()
        assert job.result() == "receipt"
    assert charge.times == 1
