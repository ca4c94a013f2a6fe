"""Enqueue jobs through the API."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from tests.app.hand import Hand
from tests.http.client import Client
from tests.http.conftest import Caller
from windlass import State, Unique, Windlass
from windlass.core.headers import ACTOR

SEND: dict[str, Any] = {"task": "shop.mail.send", "kwargs": {"to": "ann@example.com"}}


def jobs_in(app: Windlass) -> int:
    return sum(app.stats().jobs.values())


# ------------------------------------------------------------------------------------------- one


def test_a_job_is_stored(client: Client, app: Windlass) -> None:
    answer = client.post("/v1/jobs", SEND)
    assert answer.status_code == 201
    job = answer.json()
    assert job == {"id": job["id"], "task": "shop.mail.send", "queue": "mail", "created": True}
    assert app.job(job["id"]).info().state is State.READY


def test_all_options_reach_the_job(client: Client, app: Windlass) -> None:
    options = {"queue": "slow", "priority": 7, "run_in_s": 60, "expires_in_s": 120.5}
    answer = client.post("/v1/jobs", {**SEND, **options, "headers": {"request": "r-1"}})
    info = app.job(answer.json()["id"]).info()
    assert (info.queue, info.priority, info.state) == ("slow", 7, State.SCHEDULED)
    assert info.due_at is not None
    assert info.expires_at is not None
    assert info.due_at - info.enqueued_at == timedelta(seconds=60)
    assert info.expires_at - info.enqueued_at == timedelta(seconds=120.5)
    assert info.headers["request"] == "r-1"


def test_a_job_may_start_at_an_instant(client: Client, app: Windlass) -> None:
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    answer = client.post("/v1/jobs", {**SEND, "run_at": at.isoformat()})
    assert app.job(answer.json()["id"]).info().due_at == at


def test_arguments_are_rebuilt_by_the_annotations_of_the_task(
    client: Client, app: Windlass, hand: Hand
) -> None:
    order = {"number": 2**63, "placed_at": "2030-01-31T08:00:00+01:00"}
    body = {"task": "shop.charge", "args": [order], "kwargs": {"amount": -(2**70)}}
    assert client.post("/v1/jobs", body).status_code == 201
    claim = hand.take()
    envelope = app.packing.unpack_call(claim.payload, claim.task)
    args, kwargs = app.tasks["shop.charge"].codec.decode(bytes(envelope.call))
    assert args[0].number == 2**63
    assert args[0].placed_at == datetime(2030, 1, 31, 7, tzinfo=UTC)
    assert kwargs["amount"] == -(2**70)


def test_a_job_names_its_caller(caller: Caller, app: Windlass) -> None:
    job = caller("producer").post("/v1/jobs", SEND).json()
    assert app.job(job["id"]).info().headers[ACTOR] == "token:producer"


def test_middleware_cannot_remove_the_caller(client: Client, app: Windlass) -> None:
    seen: list[dict[str, str]] = []

    @app.around_enqueue
    def note(call: Any) -> Any:
        seen.append(dict(call.headers))
        call.headers.clear()
        call.headers["trace"] = "t-1"
        yield

    job = client.post("/v1/jobs", {**SEND, "headers": {"request": "r-1"}}).json()
    assert seen == [{"request": "r-1"}]
    assert app.job(job["id"]).info().headers == {"trace": "t-1", ACTOR: "anonymous"}


def test_a_task_by_its_former_name_or_by_a_schema(client: Client, app: Windlass) -> None:
    schema = {
        "type": "object",
        "properties": {"width": {"type": "integer", "minimum": 1}},
        "required": ["width"],
        "additionalProperties": False,
    }
    app.task_named("pictures.resize", schema=schema, queue="pictures")
    resize = {"task": "pictures.resize", "kwargs": {"width": 3}}
    assert client.post("/v1/jobs", resize).json()["queue"] == "pictures"
    refused = client.post("/v1/jobs", {"task": "pictures.resize", "kwargs": {"width": 0}})
    assert refused.status_code == 422
    assert refused.json()["fields"][0]["path"] == "body.kwargs.width"


# --------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"task": "shop.mail.sent"}, "body.task"),
        ({"task": ""}, "body.task"),
        ({"task": "shop mail"}, "body.task"),
        ({"args": "ann"}, "body.args"),
        ({"kwargs": []}, "body.kwargs"),
        ({"kwargs": {}}, "body.kwargs.to"),
        ({"kwargs": {"to": 3}}, "body.kwargs.to"),
        ({"args": [3], "kwargs": {}}, "body.args[0]"),
        ({"kwargs": {"to": "ann", "bdy": ""}}, "body.kwargs.bdy"),
        ({"queue": "no queue"}, "body.queue"),
        ({"queue": "mail\n"}, "body.queue"),
        ({"priority": 101}, "body.priority"),
        ({"run_in_s": -1}, "body.run_in_s"),
        ({"run_in_s": 1e300}, "body.run_in_s"),
        ({"run_at": "2030-01-31T08:00:00"}, "body.run_at"),
        ({"run_at": "9999-01-31T08:00:00Z"}, "body"),
        ({"run_at": "2030-01-31T08:00:00Z", "run_in_s": 1}, "body.run_at"),
        ({"run_in_s": 10, "expires_in_s": 5}, "body"),
        ({"headers": {"windlass-actor": "bob"}}, "body"),
        ({"headers": {"n": 3}}, "body.headers[...]"),
        ({"delay": 3}, "body"),
    ],
)
def test_a_wrong_job_is_refused(
    client: Client, app: Windlass, change: dict[str, Any], path: str
) -> None:
    answer = client.post("/v1/jobs", {**SEND, **change})
    assert answer.status_code == 422, answer.text
    problem = answer.json()
    assert problem["type"] == "urn:windlass:problem:invalid"
    assert problem["fields"][0]["path"] == path
    assert jobs_in(app) == 0


def test_an_unknown_task_gets_a_suggestion(client: Client) -> None:
    answer = client.post("/v1/jobs", {"task": "shop.mail.sent"})
    assert "Did you mean shop.mail.send?" in answer.json()["detail"]


def test_only_tasks_of_the_caller_are_suggested(caller: Caller) -> None:
    mail = caller("producer", "mail")
    assert "Did you mean" not in mail.post("/v1/jobs", {"task": "shop.chargee"}).text
    answer = mail.post("/v1/jobs", {"task": "shop.mail.sent"})
    assert "Did you mean shop.mail.send?" in answer.json()["detail"]


def test_all_wrong_arguments_are_told(client: Client) -> None:
    body = {"task": "shop.charge", "args": [{"number": "x"}, "y"]}
    fields = client.post("/v1/jobs", body).json()["fields"]
    assert [one["path"] for one in fields] == ["body.args[0].number", "body.args[1]"]


def test_a_call_that_is_too_large_is_refused(client: Client, app: Windlass) -> None:
    body = "x" * (app.settings.max_payload + 1)
    answer = client.post("/v1/jobs", {**SEND, "kwargs": {"to": "ann", "body": body}})
    assert answer.status_code == 413
    assert jobs_in(app) == 0


@pytest.mark.parametrize(
    "call",
    [{"args": [0] * 1001}, {"kwargs": {f"n{number}": 0 for number in range(1001)}}],
    ids=["args", "kwargs"],
)
def test_the_number_of_arguments_is_bounded(
    client: Client, app: Windlass, call: dict[str, Any]
) -> None:
    answer = client.post("/v1/jobs", {"task": "shop.report", **call})
    assert answer.status_code == 422
    assert answer.json()["fields"][0]["path"] == f"body.{next(iter(call))}"
    assert client.post("/v1/jobs", {"task": "shop.report", "args": [0] * 1000}).status_code == 201
    assert jobs_in(app) == 1


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/jobs/bulk"])
def test_arguments_are_measured_before_they_are_read(client: Client, path: str) -> None:
    """Spaces count: what is stored would be small, and the check of each value comes later."""
    raw = b'{"task": "shop.charge", "args": [{"number": "x"%s}]}' % (b" " * 2**20)
    raw = raw if path == "/v1/jobs" else b'{"jobs": [%s]}' % raw
    json = {"Content-Type": "application/json"}
    answer = client.request("POST", path, content=raw, headers=json)
    assert answer.status_code == 413
    assert "as they were sent" in answer.json()["detail"]


def test_a_full_queue_refuses_jobs(client: Client, app: Windlass) -> None:
    app.queue("mail").set(max_waiting=1)
    assert client.post("/v1/jobs", SEND).status_code == 201
    answer = client.post("/v1/jobs", SEND)
    assert answer.status_code == 503
    assert answer.json()["type"].endswith(":queue-full")
    assert answer.headers["Retry-After"]


def test_a_scoped_caller_enqueues_to_its_queues_only(caller: Caller, app: Windlass) -> None:
    producer = caller("producer", "mail*")
    assert producer.post("/v1/jobs", SEND).status_code == 201
    assert producer.post("/v1/jobs", {**SEND, "queue": "mailing"}).status_code == 201
    assert producer.post("/v1/jobs", {**SEND, "queue": "payments"}).status_code == 403
    charge = {"task": "shop.charge", "args": [{"number": 1}]}
    assert producer.post("/v1/jobs", charge).status_code == 403
    assert jobs_in(app) == 2


# ------------------------------------------------------------------------------------ idempotency


def test_the_same_key_stores_a_job_once(client: Client, app: Windlass) -> None:
    key = {"Idempotency-Key": "k-1"}
    first = client.post("/v1/jobs", SEND, headers=key)
    again = client.post("/v1/jobs", SEND, headers=key)
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json() == {**first.json(), "created": False}
    assert jobs_in(app) == 1


def test_the_same_key_with_another_call_is_refused(client: Client, app: Windlass) -> None:
    key = {"Idempotency-Key": "k-1"}
    client.post("/v1/jobs", SEND, headers=key)
    answer = client.post("/v1/jobs", {**SEND, "kwargs": {"to": "bob"}}, headers=key)
    assert answer.status_code == 422
    assert answer.json()["type"].endswith(":idempotency-conflict")
    assert jobs_in(app) == 1


def test_a_key_is_of_one_task_and_of_all_callers(caller: Caller, app: Windlass) -> None:
    key = {"Idempotency-Key": "k-1"}
    first = caller("producer").post("/v1/jobs", SEND, headers=key).json()
    other = {**SEND, "priority": 7, "run_in_s": 60, "queue": "slow"}
    again = caller("producer").post("/v1/jobs", other, headers=key)
    assert again.json() == {**first, "created": False}
    assert app.job(first["id"]).info().state is State.READY
    report = {"task": "shop.report"}
    assert caller("producer").post("/v1/jobs", report, headers=key).status_code == 201


@pytest.mark.parametrize("key", [b"", b" ", b"k" * 129, "caf\u00e9".encode("latin-1"), b"a b"])
def test_a_wrong_key_is_refused(client: Client, app: Windlass, key: bytes) -> None:
    answer = client.post("/v1/jobs", SEND, headers={"Idempotency-Key": key})
    assert answer.status_code == 422
    assert answer.json()["fields"][0]["path"] == "header.idempotency-key"
    assert jobs_in(app) == 0


def test_a_key_of_another_queue_reveals_nothing(client: Client, caller: Caller) -> None:
    key = {"Idempotency-Key": "k-1"}
    secret = client.post("/v1/jobs", {**SEND, "queue": "payments"}, headers=key).json()
    answer = caller("producer", "mail").post("/v1/jobs", SEND, headers=key)
    assert answer.status_code == 422
    assert secret["id"] not in answer.text
    other = {**SEND, "kwargs": {"to": "bob"}}
    assert secret["id"] in caller("producer").post("/v1/jobs", other, headers=key).text
    answer = caller("producer", "mail").post("/v1/jobs", other, headers=key)
    assert answer.status_code == 422
    assert answer.json()["type"].endswith(":idempotency-conflict")
    assert secret["id"] not in answer.text


@pytest.mark.parametrize("on_conflict", ["return", "raise"])
@pytest.mark.parametrize("key", [{}, {"Idempotency-Key": "k-2"}], ids=["without key", "with key"])
def test_a_unique_key_of_another_queue_reveals_nothing(
    client: Client, caller: Caller, app: Windlass, on_conflict: Any, key: dict[str, str]
) -> None:
    @app.task(name="shop.count", queue="mail", unique=Unique(on_conflict=on_conflict))
    def count() -> None: ...

    secret = client.post("/v1/jobs", {"task": "shop.count", "queue": "payments"}).json()
    answer = caller("producer", "mail").post("/v1/jobs", {"task": "shop.count"}, headers=key)
    assert answer.status_code == 409
    assert answer.json()["type"].endswith(":duplicate-job")
    assert "unique key" in answer.json()["detail"]
    assert "another key" not in answer.json()["detail"]
    assert secret["id"] not in answer.text


def test_a_unique_key_returns_the_earlier_job(client: Client) -> None:
    body = {"task": "shop.sync", "args": [7]}
    first, again = client.post("/v1/jobs", body), client.post("/v1/jobs", body)
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["id"] == first.json()["id"]


# ------------------------------------------------------------------------------------------- bulk


def test_a_bulk_has_an_answer_for_each_job(client: Client, app: Windlass) -> None:
    jobs = [{**SEND, "priority": number % 5} for number in range(1000)]
    answer = client.post("/v1/jobs/bulk", {"jobs": jobs})
    assert answer.status_code == 200
    told = answer.json()
    assert (told["created"], told["refused"]) == (1000, 0)
    assert len({one["job"]["id"] for one in told["jobs"]}) == 1000
    assert jobs_in(app) == 1000


def test_one_wrong_job_refuses_the_bulk(client: Client, app: Windlass) -> None:
    jobs = [SEND, SEND, {**SEND, "kwargs": {"to": 3}}]
    answer = client.post("/v1/jobs/bulk", {"jobs": jobs})
    assert answer.status_code == 422
    assert answer.json()["fields"][0]["path"] == "body.jobs[2].kwargs.to"
    assert jobs_in(app) == 0


def test_a_large_job_refuses_the_bulk(client: Client, app: Windlass) -> None:
    large = {"to": "ann", "body": "x" * (app.settings.max_payload + 1)}
    answer = client.post("/v1/jobs/bulk", {"jobs": [SEND, {**SEND, "kwargs": large}]})
    assert answer.status_code == 413
    assert jobs_in(app) == 0


def test_a_bulk_in_a_foreign_queue_is_refused(caller: Caller, app: Windlass) -> None:
    jobs = [SEND, {**SEND, "queue": "payments"}]
    assert caller("producer", "mail").post("/v1/jobs/bulk", {"jobs": jobs}).status_code == 403
    assert jobs_in(app) == 0


@pytest.mark.parametrize("number", [0, 1001])
def test_a_bulk_has_bounds(client: Client, number: int) -> None:
    answer = client.post("/v1/jobs/bulk", {"jobs": [SEND] * number})
    assert answer.status_code == 422
    assert answer.json()["fields"][0]["path"] == "body.jobs"


def test_a_repeated_bulk_stores_nothing_twice(client: Client, app: Windlass) -> None:
    key = {"Idempotency-Key": "bulk-1"}
    jobs = [{**SEND, "kwargs": {"to": f"user-{number}"}} for number in range(20)]
    first = client.post("/v1/jobs/bulk", {"jobs": jobs}, headers=key).json()
    again = client.post("/v1/jobs/bulk", {"jobs": jobs}, headers=key).json()
    assert [one["job"]["id"] for one in first["jobs"]] == [
        one["job"]["id"] for one in again["jobs"]
    ]
    assert (first["created"], again["created"]) == (20, 0)
    assert jobs_in(app) == 20


def test_jobs_of_a_bulk_are_refused_one_by_one(client: Client, app: Windlass) -> None:
    key = {"Idempotency-Key": "bulk-1"}
    client.post("/v1/jobs/bulk", {"jobs": [SEND, SEND]}, headers=key)
    other = {**SEND, "kwargs": {"to": "bob"}}
    answer = client.post("/v1/jobs/bulk", {"jobs": [SEND, other, other]}, headers=key)
    kept, refused, stored = answer.json()["jobs"]
    assert kept["job"]["created"] is False
    assert refused["problem"]["type"].endswith(":idempotency-conflict")
    assert stored["job"]["created"] is True
    assert jobs_in(app) == 3


def test_a_bulk_of_one_names_its_place(client: Client) -> None:
    answer = client.post("/v1/jobs/bulk", {"jobs": [{"task": "nothing"}]})
    assert answer.json()["fields"][0]["path"] == "body.jobs[0].task"


def test_many_digits_arrive_exactly_or_not_at_all(client: Client) -> None:
    raw = b'{"task": "shop.report", "args": [12345678901234567890.123456789]}'
    answer = client.request(
        "POST", "/v1/jobs", content=raw, headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 422
    whole = b'{"task": "shop.report", "args": [%d, {"n": %d}]}' % (2**63, 2**200)
    answer = client.request(
        "POST", "/v1/jobs", content=whole, headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 201
    job = client.get(f"/v1/jobs/{answer.json()['id']}")
    assert msgspec.json.decode(job.content)["args"] == [2**63, {"n": 2**200}]
