"""Remote tasks: declared by a signature or a schema, enqueued here, and run elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.app.hand import Hand
from tests.worker.yard import until
from windlass import (
    EncodeError,
    Every,
    Hold,
    IdempotencyConflict,
    InvalidCall,
    InvalidTask,
    Retry,
    Task,
    Tasks,
    Windlass,
)
from windlass.calls.redaction import CallRedactor, sensitive_parameters
from windlass.core.ids import new_nonce
from windlass.core.redaction import REDACTED, ParameterNames
from windlass.core.serialization.envelope import Overrides
from windlass.engine.contract import JobRecord, Plan, Succeeded
from windlass.testing import Sandbox
from windlass.testing.contract.world import claim_jobs
from windlass.worker.child.assembly import describe_app

if TYPE_CHECKING:
    from fractions import Fraction


@dataclass
class Report:
    month: date
    total: Decimal


def build(month: date, pages: list[int] | None = None, *, draft: bool = False) -> Report:
    raise AssertionError("the body of a signature never runs")


SCHEMA = {
    "type": "object",
    "properties": {"month": {"type": "string"}, "pages": {"type": "array"}},
    "required": ["month"],
    "additionalProperties": False,
}


@pytest.fixture
def report(app: Windlass) -> Task[..., Report]:
    return app.task_named("reports.build", build, queue="node", requires="node")


def record_of(app: Windlass, job_id: str) -> JobRecord:
    (record,) = app.engine.get([job_id])
    assert record is not None
    return record


def end_elsewhere(app: Windlass, labels: tuple[str, ...], result: bytes) -> None:
    """End a job as a worker in another language would."""
    plan = Plan(labels=labels)
    (claim,) = claim_jobs(app.engine, "node.1.0000", new_nonce(1), plan, 1).claims
    app.engine.finish(
        [Succeeded(id=claim.id, token=claim.token, result=result, result_ttl_ms=60_000)]
    )


# --------------------------------------------------------------------------------------- enqueuing


def test_a_call_is_checked_and_encoded_by_the_signature(
    app: Windlass, report: Task[..., Report]
) -> None:
    job = report.enqueue(date(2030, 1, 31), draft=True)
    info = job.info()
    assert (info.task, info.queue, info.requires) == ("reports.build", "node", ("node",))
    payload = record_of(app, job.id).payload
    assert payload == b'{"args":["2030-01-31"],"kwargs":{"draft":true}}'
    with pytest.raises(TypeError, match=r"reports\.build\(\): missing a required argument"):
        report.enqueue()
    with pytest.raises(
        EncodeError, match=r"reports\.build\(month=\.\.\.\): .*the annotation is date"
    ):
        report.enqueue("2030-01-31")
    assert asyncio.run(report.aenqueue(date(2030, 1, 31))).created
    assert len(report.enqueue_many([(date(2030, 1, 1),), report.bind(date(2030, 2, 1))])) == 2


def test_the_result_is_rebuilt_by_the_annotation(app: Windlass, report: Task[..., Report]) -> None:
    job = report.enqueue(date(2030, 1, 31))
    end_elsewhere(app, ("node",), b'{"month":"2030-01-31","total":"9.90"}')
    expected = Report(date(2030, 1, 31), Decimal("9.90"))
    assert job.result(timeout=5) == expected
    assert app.job(job.id).result(timeout=5) == expected


def test_a_call_is_checked_by_the_schema(app: Windlass) -> None:
    task = app.task_named("reports.build", schema=SCHEMA, queue="node")
    job = task.enqueue(month="2030-01", pages=[1])
    assert record_of(app, job.id).payload == b'{"kwargs":{"month":"2030-01","pages":[1]}}'
    for wrong in (
        lambda: task.enqueue(month=7),
        task.bind,
        lambda: task.enqueue("2030-01"),
        lambda: task.enqueue_many([task.bind(month="2030-01"), ()]),
        lambda: asyncio.run(task.aenqueue(month="2030-01", page=1)),
        lambda: job.edit(month=7),
    ):
        with pytest.raises(InvalidCall, match=r"reports\.build\("):
            wrong()
    assert app.stats().totals["enqueued"] == 1
    assert job.edit(month="2030-02")
    end_elsewhere(app, (), b'{"total":9.9}')
    assert job.result(timeout=5) == {"total": 9.9}


def test_keys_schedules_and_pauses_work_as_for_other_tasks(app: Windlass, hand: Hand) -> None:
    task = app.task_named("reports.build", schema=SCHEMA)
    once = task.using(idempotency_key="k")
    assert once.enqueue(month="2030-01").id == once.enqueue(month="2030-01").id
    with pytest.raises(IdempotencyConflict):
        once.enqueue(month="2030-02")
    app.schedules.save("monthly", task.bind(month="now"), Every("30d"))
    assert app.schedules.get("monthly").task == "reports.build"
    task.pause()
    assert hand.find() == ()
    task.resume()
    assert hand.take().task == "reports.build"
    assert [found.task for found in app.jobs.list(task=task)] == ["reports.build"]


def test_options_are_stored_with_each_job(app: Windlass) -> None:
    """No decorator says elsewhere how the job runs."""
    task = app.task_named(
        "reports.build",
        build,
        retry=Retry(max_attempts=7, base=3),
        timeout="90s",
        result_ttl="2h",
        priority=4,
        expires="1h",
        headers={"team": "reports"},
    )
    job = task.using(timeout="30s", headers={"user": "ann"}).enqueue(date(2030, 1, 31))
    info = job.info()
    assert (info.priority, info.headers) == (4, {"team": "reports", "user": "ann"})
    assert info.expires_at is not None
    assert info.expires_at - info.enqueued_at == timedelta(hours=1)
    envelope = app.packing.unpack_call(record_of(app, job.id).payload, "reports.build")
    assert envelope.options == Overrides(
        retry=Retry(max_attempts=7, base=3).to_data(), result_ttl_ms=7_200_000, timeout_ms=30_000
    )


def test_options_that_cannot_be_stored_are_refused(app: Windlass) -> None:
    with pytest.raises(TypeError, match="can have only numbers, found retry_on"):
        app.task_named("reports.build", build, retry=Retry(retry_on=OSError))
    with pytest.raises(TypeError, match=r"unique belongs to the task"):
        app.task_named("reports.build", build, unique=1)  # type: ignore[call-overload]  # the subject
    with pytest.raises(TypeError, match=r"task_named\(\.\.\.\) takes no option colour"):
        app.task_named("reports.build", colour=1)  # type: ignore[call-overload]  # the subject
    assert app.remote_tasks == {}


@pytest.mark.parametrize(
    "settings", [{"codec": "msgpack"}, {"codec": "pickle", "secret": "s" * 32}]
)
def test_any_language_can_read_the_call(tmp_path: Path, settings: dict[str, Any]) -> None:
    with Windlass(f"sqlite:///{tmp_path}/jobs.db?durability=normal", **settings) as app:
        typed = app.task_named("typed", build).enqueue(month=date(2030, 1, 31))
        described = app.task_named("described", schema=SCHEMA).enqueue(month="2030-01-31")
        for job in (typed, described):
            assert record_of(app, job.id).payload == b'{"kwargs":{"month":"2030-01-31"}}'


def test_an_encrypted_call_stays_encrypted(tmp_path: Path) -> None:
    with Windlass(f"sqlite:///{tmp_path}/jobs.db", secret="s" * 32, encrypt=True) as app:
        job = app.task_named("typed", build).enqueue(date(2030, 1, 31))
        payload = record_of(app, job.id).payload
        assert b"2030" not in payload
        envelope = app.packing.unpack_call(payload, "typed")
        assert (envelope.codec, bytes(envelope.call)) == ("json", b'{"args":["2030-01-31"]}')


def test_hidden_values_are_known_by_the_signature(app: Windlass) -> None:
    def log_in(user: str, password: str) -> None: ...

    app.task_named("log_in", log_in)
    call = {"args": ["ann", "s3cret"]}
    assert CallRedactor.of(app).redact("log_in", call)["args"] == ["ann", REDACTED]
    assert sensitive_parameters(app) == {"log_in": ParameterNames(("user", "password"))}


# --------------------------------------------------------------------------------------- declaring


def test_where_remote_tasks_are_known(app: Windlass, report: Task[..., Report]) -> None:
    assert dict(app.remote_tasks) == {"reports.build": report}
    assert not app.tasks
    assert not app.known_tasks  # what a worker runs
    assert app.find_task("reports.build") is report
    assert app.task_named("reports.build") is report
    assert (
        app.task_named("reports.build", queue="other").enqueue(date(2030, 1, 1)).info().queue
        == "other"
    )
    assert report.is_remote
    assert repr(report) == "<Task reports.build, remote>"
    assert not app.task_named("others").is_remote
    with pytest.raises(TypeError):
        app.remote_tasks["x"] = report  # type: ignore[index]  # the subject


def test_a_plain_call_raises(app: Windlass, report: Task[..., Report]) -> None:
    described = app.task_named("described", schema=SCHEMA)
    for call in (lambda: report(date(2030, 1, 1)), lambda: described(month="2030-01")):
        with pytest.raises(InvalidTask, match=r"cannot be called here: it is a remote task"):
            call()


def test_routes_choose_the_queue(tmp_path: Path) -> None:
    with Windlass(f"sqlite:///{tmp_path}/jobs.db", routes={"reports.*": "node"}) as app:
        assert app.task_named("reports.build", build).queue == "node"
        assert app.task_named("reports.other", schema=SCHEMA, queue="q").queue == "q"


def test_a_coroutine_function_describes_its_result(app: Windlass) -> None:
    async def fetch(url: str) -> bytes:
        raise AssertionError

    job = app.task_named("fetch", fetch).enqueue("http://here")
    end_elsewhere(app, (), b'"aGk="')
    assert job.result(timeout=5) == b"hi"


def test_the_same_declaration_again_is_the_same_task(
    app: Windlass, report: Task[..., Report]
) -> None:
    def again(month: date, pages: list[int] | None = None, *, draft: bool = False) -> Report:
        raise AssertionError

    assert app.task_named("reports.build", again, queue="node", requires=["node"]) is report
    one = app.task_named("described", schema=SCHEMA)
    assert app.task_named("described", schema=dict(reversed(SCHEMA.items()))) is one


def _other_name(months: date, pages: list[int] | None = None, *, draft: bool = False) -> Report:
    raise AssertionError


def _other_type(month: str, pages: list[int] | None = None, *, draft: bool = False) -> Report:
    raise AssertionError


def _other_default(month: date, pages: list[int] | None = None, *, draft: bool = True) -> Report:
    raise AssertionError


def _other_kind(month: date, pages: list[int] | None = None, draft: bool = False) -> Report:
    raise AssertionError


def _other_result(month: date, pages: list[int] | None = None, *, draft: bool = False) -> None: ...


@pytest.mark.parametrize(
    "other", [_other_name, _other_type, _other_default, _other_kind, _other_result]
)
def test_another_signature_for_the_same_name_is_refused(
    app: Windlass, report: Task[..., Report], other: Callable[..., Any]
) -> None:
    with pytest.raises(InvalidTask, match=r"remote task reports\.build is declared twice"):
        app.task_named("reports.build", other, queue="node", requires="node")
    assert app.remote_tasks["reports.build"] is report


def test_another_schema_or_other_options_for_the_same_name_are_refused(app: Windlass) -> None:
    app.task_named("described", schema=SCHEMA)
    for declare in (
        lambda: app.task_named("described", schema={"type": "object"}),
        lambda: app.task_named("described", build),
        lambda: app.task_named("described", schema=SCHEMA, queue="other"),
        lambda: app.task_named("described", schema=SCHEMA, priority=1),
    ):
        with pytest.raises(InvalidTask, match="declared twice"):
            declare()


def test_names_that_checkers_alone_know_are_compared_as_text(app: Windlass) -> None:
    def first(ratio: Fraction) -> None: ...

    def second(ratio: Fraction) -> None: ...

    assert app.task_named("ratio", first) is app.task_named("ratio", second)


def test_a_name_has_code_or_is_remote(app: Windlass, report: Task[..., Report]) -> None:
    def work() -> None: ...

    group = Tasks(prefix="reports")
    group.task(name="build")(work)
    for declare in (
        lambda: app.task(name="reports.build")(work),
        lambda: app.task(name="other", aliases=["reports.build"])(work),
        lambda: app.include(group),
    ):
        with pytest.raises(InvalidTask, match=r"reports\.build is declared twice: .*test_remote"):
            declare()
    assert not app.tasks
    app.task(name="charge", aliases=["pay"])(work)
    for name in ("charge", "pay"):
        with pytest.raises(InvalidTask, match=rf"{name} is declared twice"):
            app.task_named(name, schema=SCHEMA)
    assert list(app.remote_tasks) == ["reports.build"]


@pytest.mark.parametrize(
    ("signature", "schema", "why"),
    [
        (build, SCHEMA, "takes a signature or a schema, found both"),
        (lambda month: None, None, "written with def"),
        (7, None, "written with def"),
        (Report, None, "written with def"),
        (None, {"type": "objct"}, "it must describe an object"),
        (None, {"type": "object", "properties": 7}, "is not valid there"),
    ],
)
def test_what_describes_no_task_is_refused(
    app: Windlass, signature: Any, schema: Any, why: str
) -> None:
    with pytest.raises(InvalidTask, match=why):
        app.task_named("reports.build", signature, schema=schema)
    assert app.remote_tasks == {}


def test_signatures_that_no_call_has(app: Windlass) -> None:
    from windlass import Context

    def with_context(ctx: Context, month: str) -> None: ...

    def many(month: str) -> Iterator[str]:
        yield month

    class Reports:
        def build(self, month: str) -> None: ...

    with pytest.raises(InvalidTask, match="is the context, which callers do not pass"):
        app.task_named("a", with_context)
    with pytest.raises(InvalidTask, match="is a generator"):
        app.task_named("b", many)
    with pytest.raises(InvalidTask, match="is a method"):
        app.task_named("c", Reports.build)
    with pytest.raises(InvalidTask, match="text of 1 to 200 characters"):
        app.task_named("no name", build)


# ----------------------------------------------------------------------------------------- workers


def test_a_worker_of_the_app_leaves_its_jobs(app: Windlass) -> None:
    """Its jobs are unroutable here, and stay for the worker with the code."""

    @app.task(name="ping")
    def ping() -> str:
        return "pong"

    remote = app.task_named("reports.build", schema=SCHEMA).enqueue(month="2030-01")
    elsewhere = app.task_named("reports.other", build, requires="node").enqueue(date(2030, 1, 1))
    with app.worker():
        assert ping.enqueue().result(timeout=20) == "pong"
        until(lambda: remote.info().hold is Hold.UNROUTABLE, "the hold")
    why = remote.info().held_because or ""
    assert why.startswith("task reports.build has no code in the app of ")
    assert elsewhere.info().hold is Hold.NONE  # no worker has its label
    app.engine.adopt(["reports.build"])  # as a worker with the code does
    assert Hand(app).take().id == remote.id


def test_a_worker_knows_which_tasks_it_runs(tmp_path: Path) -> None:
    routes = {"reports.*": "node", "misspelt.*": "node"}
    with Windlass(f"sqlite:///{tmp_path}/jobs.db", routes=routes) as app:
        app.task_named("reports.build", schema=SCHEMA)
        described = describe_app(app, b"")
    assert (described.tasks, described.queues) == ((), ())
    assert described.idle_routes == ("misspelt.*",)


def test_a_sandbox_shows_and_keeps_its_jobs(app: Windlass) -> None:
    typed = app.task_named("typed", build)
    described = app.task_named("described", schema=SCHEMA)
    with Sandbox(app) as box:
        typed.enqueue(date(2030, 1, 31), draft=True)
        described.enqueue(month="2030-01")
        assert box.drain() == ()
        (one,) = box.jobs(typed)
        (other,) = box.jobs(described)
    assert (one.arguments, one.hold) == ({"month": date(2030, 1, 31), "draft": True}, "unroutable")
    assert other.arguments == {"month": "2030-01"}
