"""Reports of remote workers: what becomes of their jobs, as with native workers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.client import Client
from tests.http.conftest import Caller
from tests.http.worker_protocol.conftest import ENGINES, Instance
from tests.http.worker_protocol.remote import Remote, outcome, problem_of
from windlass import FailureText, JobFailed, Reason, Retry, State, Windlass
from windlass.engine.contract import JobRecord
from windlass.errors import TimedOut
from windlass.http.worker_protocol.report_decisions import RemoteFailure, stand_in

ERROR = {"type": "SmtpError", "message": "no route", "traceback": "SmtpError: no route\n  at send"}


def record_of(app: Windlass, id: str) -> JobRecord:
    (record,) = app.engine.get([id])
    assert record is not None
    return record


def due_in_s(record: JobRecord) -> float:
    """The delay of a retry or a snooze, from the end of the claim."""
    assert record.due_ms is not None
    assert record.failures or record.state is State.SCHEDULED
    begin = record.failures[-1].at_ms if record.failures else record.due_ms
    return (record.due_ms - begin) / 1000


@pytest.mark.parametrize("engine_name", ENGINES)
def test_a_result_reaches_the_caller(app: Windlass, remote: Remote) -> None:
    job = app.tasks["add"].enqueue(20, b=22)
    assert remote.finish(outcome(remote.take(), "succeeded", result=42)) == ["ok"]
    assert job.result(timeout=5) == 42
    assert remote.finish(outcome({"id": job.id, "token": "0" * 40}, "succeeded")) == ["stale"]


def test_a_result_is_stored_as_it_was_sent(app: Windlass, remote: Remote) -> None:
    job = app.task_named("report").enqueue()
    remote = Remote.begin(remote.client, tasks=["report"])
    claimed = remote.take()
    body = f"""{{"session": "{remote.session}", "token": "{claimed["token"]}",
        "result": {{ "n" : 9223372036854775809, "x": 0.10, "t": "\\u2603" }} }}"""
    answer = remote.client.request(
        "POST",
        f"/v1/claims/{job.id}/ack",
        content=body,
        headers={"Content-Type": "application/json"},
    )
    assert answer.status_code == 204, answer.text
    assert record_of(app, job.id).result == b'{"n":9223372036854775809,"x":0.10,"t":"\\u2603"}'


def test_without_a_result_there_is_null(app: Windlass, remote: Remote) -> None:
    job = app.task_named("add").enqueue(1)
    assert remote.finish(outcome(remote.take(), "succeeded")) == ["ok"]
    assert record_of(app, job.id).result == b"null"


def test_a_task_that_keeps_no_results_keeps_none(app: Windlass, remote: Remote) -> None:
    job = app.tasks["once"].enqueue("a@b.c")
    assert remote.finish(outcome(remote.take(), "succeeded", result=1)) == ["ok"]
    assert not record_of(app, job.id).has_result


@pytest.mark.parametrize("result", ["x" * 2_000_000, None], ids=["large", "deep"])
def test_a_result_that_cannot_be_stored_makes_a_dead_letter(
    app: Windlass, remote: Remote, result: object
) -> None:
    deep: object = result
    if result is None:
        for _ in range(70):
            deep = [deep]
    job = app.task_named("add").enqueue(1)
    assert remote.finish(outcome(remote.take(), "succeeded", result=deep)) == ["ok"]
    record = record_of(app, job.id)
    assert (record.state, record.reason) == (State.DEAD, Reason.BAD_RESULT)


# ---------------------------------------------------------------------------------------- failures


@pytest.mark.parametrize("engine_name", ENGINES)
def test_a_failure_is_retried_by_the_policy_of_the_task(app: Windlass, remote: Remote) -> None:
    job = app.tasks["add"].enqueue(1)
    for attempt, delay_s in ((1, 10.0), (2, 20.0)):
        claimed = remote.take()
        assert (claimed["attempt"], claimed["max_attempts"]) == (attempt, 3)
        assert remote.finish(outcome(claimed, "failed", error=ERROR)) == ["ok"]
        record = record_of(app, job.id)
        assert (record.state, due_in_s(record)) == (State.RETRYING, delay_s)
        app.engine.clock_offset_ms += round(delay_s * 1000)
    assert remote.finish(outcome(remote.take(), "failed", error=ERROR)) == ["ok"]
    record = record_of(app, job.id)
    assert (record.state, record.reason) == (State.DEAD, Reason.EXHAUSTED)
    with pytest.raises(JobFailed) as failed:
        job.result(timeout=5)
    assert failed.value.type == "SmtpError"
    assert "no route" in str(failed.value)
    assert "at send" in failed.value.traceback


def test_the_retry_policy_of_the_caller_counts_more(app: Windlass, remote: Remote) -> None:
    job = app.tasks["add"].using(retry=Retry(delays=["7s"])).enqueue(1)
    claimed = remote.take()
    assert claimed["max_attempts"] == 2
    remote.finish(outcome(claimed, "failed", error=ERROR))
    assert due_in_s(record_of(app, job.id)) == 7.0


def test_a_task_without_code_has_the_policy_of_the_app(app: Windlass, client: Client) -> None:
    job = app.task_named("report").enqueue()
    remote = Remote.begin(client, tasks=["report"])
    claimed = remote.take()
    assert claimed["max_attempts"] == app.settings.retry.max_attempts
    remote.finish(outcome(claimed, "failed", error=ERROR))
    assert 7.5 <= due_in_s(record_of(app, job.id)) <= 12.5


def test_a_rejected_job_is_a_dead_letter_now(app: Windlass, remote: Remote) -> None:
    job = app.tasks["add"].enqueue(1)
    remote.finish(outcome(remote.take(), "failed", error=ERROR, rejected=True))
    record = record_of(app, job.id)
    assert (record.state, record.reason) == (State.DEAD, Reason.REJECTED)
    text = FailureText.unpack(record.failures[-1].error)
    assert text.type == "SmtpError"
    assert record.fingerprint == text.fingerprint


def test_a_retry_with_its_own_delay_uses_up_an_attempt(app: Windlass, remote: Remote) -> None:
    job = app.tasks["add"].enqueue(1)
    for _ in range(2):
        claimed = remote.take()
        assert remote.finish(outcome(claimed, "retry", delay_s=2.5, error=ERROR)) == ["ok"]
        assert due_in_s(record_of(app, job.id)) == 2.5
        app.engine.clock_offset_ms += 2_500
    remote.finish(outcome(remote.take(), "retry", delay_s=2.5, error=ERROR))
    assert record_of(app, job.id).reason is Reason.EXHAUSTED


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("OSError", None),
        ("ConnectionError", None),  # a subclass
        ("builtins.OSError", None),
        ("ValueError", Reason.REJECTED),
        ("SmtpError", Reason.REJECTED),  # not in retry_on
    ],
)
def test_the_rules_of_a_policy_compare_types_by_name(
    app: Windlass, remote: Remote, kind: str, reason: Reason | None
) -> None:
    job = app.tasks["picky"].enqueue()
    remote.finish(outcome(remote.take(), "failed", error={"type": kind}))
    record = record_of(app, job.id)
    assert record.reason is reason
    assert record.state is (State.RETRYING if reason is None else State.DEAD)


def test_a_stand_in_never_fails() -> None:
    class Stubborn(Exception):
        def __new__(cls, *args: object) -> Stubborn:
            raise RuntimeError

    policy = Retry(retry_on=[Stubborn])
    assert isinstance(stand_in(FailureText(type="Stubborn"), policy), RemoteFailure)
    assert isinstance(stand_in(FailureText(type="__name__"), policy), RemoteFailure)
    assert isinstance(stand_in(FailureText(type="SystemExit"), policy), RemoteFailure)
    assert isinstance(stand_in(FailureText(type="TimedOut"), policy), TimedOut)


def test_a_timed_out_job_dies_of_it(app: Windlass, remote: Remote) -> None:
    job = app.tasks["once"].enqueue("a@b.c")
    remote.finish(outcome(remote.take(), "failed", error={"type": "TimedOut"}))
    assert record_of(app, job.id).reason is Reason.TIMED_OUT


def test_a_predicate_that_raises_anything_costs_no_job(app: Windlass, remote: Remote) -> None:
    def ask(error: Exception) -> bool:
        raise SystemExit

    @app.task(name="native2", retry=Retry(retry_if=ask))
    def native2() -> None: ...

    job = native2.enqueue()
    remote = Remote.begin(remote.client, tasks=["native2"])
    assert remote.finish(outcome(remote.take(), "failed", error=ERROR)) == ["ok"]
    assert record_of(app, job.id).state is State.RETRYING


# ------------------------------------------------------------------------------- other outcomes


def test_a_released_job_is_not_charged(app: Windlass, remote: Remote) -> None:
    job = app.tasks["add"].enqueue(1)
    remote.finish(outcome(remote.take(), "released", started=False))
    counters = record_of(app, job.id).counters
    assert (counters.attempt, counters.starts, counters.interruptions) == (0, 0, 0)
    remote.finish(outcome(remote.take(), "released"))
    counters = record_of(app, job.id).counters
    assert (counters.attempt, counters.starts, counters.interruptions) == (0, 1, 1)


def test_a_snoozed_job_runs_later_uncharged(app: Windlass, remote: Remote) -> None:
    job = app.tasks["add"].enqueue(1)
    remote.finish(outcome(remote.take(), "snoozed", delay_s=60))
    record = record_of(app, job.id)
    assert (record.state, record.counters.attempt) == (State.SCHEDULED, 0)
    assert remote.claim() == []
    app.engine.clock_offset_ms += 60_000
    assert remote.take()["attempt"] == 1


def test_snoozes_are_limited_and_a_repeat_of_the_last_one_is_harmless(
    app: Windlass, remote: Remote
) -> None:
    job = app.tasks["add"].enqueue(1)
    for _ in range(app.settings.max_snoozes - 1):
        assert remote.finish(outcome(remote.take(), "snoozed", delay_s=0)) == ["ok"]
    last = outcome(remote.take(), "snoozed", delay_s=0)
    assert [remote.finish(last), remote.finish(last)] == [["ok"], ["ok"]]
    assert remote.finish(outcome(remote.take(), "snoozed", delay_s=0)) == ["ok"]
    record = record_of(app, job.id)
    assert (record.state, record.reason) == (State.DEAD, Reason.SNOOZED_OUT)


def test_progress_is_shown(app: Windlass, remote: Remote) -> None:
    job = app.tasks["add"].enqueue(1)
    claimed = remote.take()
    assert remote.one(claimed, "progress", value=0.5, message="half way").status_code == 204
    progress = job.info().progress
    assert progress is not None
    assert (progress.value, progress.message) == (0.5, "half way")
    assert remote.finish(outcome(claimed, "progress", value=1.0)) == ["ok"]
    assert job.info().state is State.RUNNING


# ---------------------------------------------------------------------------------------- fencing


@pytest.mark.parametrize("engine_name", ENGINES)
@pytest.mark.parametrize(
    "fields",
    [
        {"outcome": "succeeded", "result": 1},
        {"outcome": "failed", "error": ERROR},
        {"outcome": "failed", "error": ERROR, "rejected": True},
        {"outcome": "retry", "error": ERROR, "delay_s": 1},
        {"outcome": "released"},
        {"outcome": "snoozed", "delay_s": 1},
        {"outcome": "progress", "value": 0.5},
    ],
    ids=lambda fields: f"{fields['outcome']}{'-rejected' * ('rejected' in fields)}",
)
def test_a_stale_token_changes_nothing(
    app: Windlass, remote: Remote, client: Client, fields: dict[str, Any]
) -> None:
    job = app.tasks["add"].enqueue(1)
    stale = remote.take()
    app.engine.lose(record_of(app, job.id).session or "", "its worker died")
    other = Remote.begin(client)
    other.take()
    before = record_of(app, job.id)
    assert other.finish({"id": job.id, "token": stale["token"], **fields}) == ["stale"]
    assert record_of(app, job.id) == before


def test_a_stale_report_on_one_job_is_a_conflict(
    app: Windlass, remote: Remote, client: Client
) -> None:
    job = app.tasks["add"].enqueue(1)
    stale = remote.take()
    app.engine.lose(record_of(app, job.id).session or "", "its worker died")
    other = Remote.begin(client)
    mine = other.take()
    before = record_of(app, job.id)
    for verb, body in (
        ("ack", {"result": 1}),
        ("fail", {"error": ERROR}),
        ("fail", {"error": ERROR, "delay_s": 1}),
        ("release", {}),
        ("progress", {"value": 0.1}),
    ):
        assert problem_of(other.one(stale, verb, **body)) == (409, "stale-claim")
    assert record_of(app, job.id) == before
    assert other.one(mine, "ack", result=7).status_code == 204
    assert other.one(mine, "ack", result=7).status_code == 204, "a repeat is harmless"
    assert problem_of(other.one(mine, "fail", error=ERROR)) == (409, "stale-claim")
    assert job.result(timeout=5) == 7


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_a_report_counts_only_with_the_session_of_the_claim(
    app: Windlass, remote: Remote, client: Client, instance: Instance, is_elsewhere: bool
) -> None:
    job = app.tasks["add"].enqueue(1)
    claimed = remote.take()
    other = Remote.begin(instance() if is_elsewhere else client)
    before = record_of(app, job.id)
    assert other.finish(outcome(claimed, "succeeded", result=1)) == ["stale"]
    assert problem_of(other.one(claimed, "ack", result=1)) == (409, "stale-claim")
    body = other.ask(outcomes=[outcome(claimed, "succeeded", result=1)])
    assert other.client.post("/v1/turn", body).json()["verdicts"] == ["stale"]
    assert record_of(app, job.id) == before
    assert remote.finish(outcome(claimed, "succeeded", result=2)) == ["ok"]
    assert other.finish(outcome(claimed, "succeeded", result=2)) == ["stale"], "not a repeat"
    assert job.result(timeout=5) == 2


def test_jobs_of_other_queues_are_unknown(app: Windlass, caller: Caller) -> None:
    """A caller learns nothing about jobs outside of its queues, not even that they exist."""
    app.tasks["add"].enqueue(1)
    theirs = Remote.begin(caller("worker")).take()
    mail = Remote.begin(caller("worker", "mail"))
    token = "0" * 40
    for job in (theirs, {"id": theirs["id"], "token": token}):
        assert mail.finish(outcome(job, "succeeded")) == ["unknown"]
        assert problem_of(mail.one(job, "ack")) == (404, "not-found")
    own = app.tasks["once"].enqueue("a@b.c")
    assert mail.finish({"id": own.id, "token": token, "outcome": "released"}) == ["stale"]


def test_an_unknown_job(remote: Remote) -> None:
    unknown = {"id": "01m7gk6tx900smjc57av0rnpgb", "token": "0" * 40}
    assert remote.finish(outcome(unknown, "succeeded")) == ["unknown"]
    assert problem_of(remote.one(unknown, "ack")) == (404, "not-found")


def test_a_rejected_job_has_no_delay(app: Windlass, remote: Remote) -> None:
    app.tasks["add"].enqueue(1)
    answer = remote.one(remote.take(), "fail", error=ERROR, rejected=True, delay_s=1)
    assert problem_of(answer) == (422, "invalid")


@pytest.mark.parametrize("engine_name", ENGINES)
def test_verdicts_come_in_the_order_of_the_reports(app: Windlass, remote: Remote) -> None:
    jobs = [app.tasks["add"].enqueue(number) for number in range(4)]
    claimed = {job["id"]: job for job in remote.claim(limit=4)}
    reports = [
        outcome(claimed[jobs[0].id], "succeeded", result=0),
        {"id": "01m7gk6tx900smjc57av0rnpgb", "token": "0" * 40, "outcome": "released"},
        outcome(claimed[jobs[1].id], "failed", error=ERROR),
        {"id": jobs[2].id, "token": "0" * 40, "outcome": "succeeded"},
        outcome(claimed[jobs[3].id], "succeeded", result=3),
    ]
    assert remote.finish(*reports) == ["ok", "unknown", "ok", "stale", "ok"]
    assert remote.finish(*reports) == ["ok", "unknown", "ok", "stale", "ok"], "a repeat"
    states = [record_of(app, job.id).state for job in jobs]
    assert states == [State.SUCCEEDED, State.RETRYING, State.RUNNING, State.SUCCEEDED]


@pytest.mark.parametrize(
    "wrong",
    [
        {"outcome": "exploded"},
        {"outcome": "succeeded", "delay_s": 1},
        {"outcome": "snoozed"},
        {"outcome": "failed"},
        {"outcome": "retry", "error": ERROR},
        {"outcome": "released", "token": "guess"},
        {"outcome": "progress", "value": 2},
    ],
    ids=str,
)
def test_a_wrong_report_is_refused(app: Windlass, remote: Remote, wrong: dict[str, Any]) -> None:
    job = app.tasks["add"].enqueue(1)
    claimed = remote.take()
    before = record_of(app, job.id)
    report = {"id": job.id, "token": claimed["token"], **wrong}
    answer = remote.client.post(
        "/v1/claims/finish", {"session": remote.session, "outcomes": [report]}
    )
    assert problem_of(answer) == (422, "invalid")
    assert record_of(app, job.id) == before


# -------------------------------------------------------------------------------------------- turn


@pytest.mark.parametrize("engine_name", ENGINES)
def test_a_turn_reports_and_claims(app: Windlass, remote: Remote) -> None:
    jobs = [app.tasks["add"].enqueue(number) for number in range(3)]
    first = remote.take()
    body = remote.ask(outcomes=[outcome(first, "succeeded", result=0)], limit=2)
    answer = remote.client.post("/v1/turn", body)
    assert answer.status_code == 200, answer.text
    assert answer.json()["verdicts"] == ["ok"]
    claimed = {job["id"] for job in answer.json()["claims"]}
    assert claimed == {job.id for job in jobs} - {first["id"]}
    again = remote.client.post("/v1/turn", body).json()
    assert again["verdicts"] == ["ok"]
    assert [job["token"] for job in again["claims"]] == [
        job["token"] for job in answer.json()["claims"]
    ]
