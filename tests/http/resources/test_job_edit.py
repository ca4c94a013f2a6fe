"""Change the arguments, the queue and the start of jobs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

import httpx
import msgspec
import pytest

from tests.app.hand import Hand
from tests.http.client import Client
from tests.http.conftest import Caller
from windlass import State, Windlass
from windlass.calls.json_calls import call_as_json
from windlass.core.headers import ACTOR
from windlass.core.redaction import REDACTED


@dataclass
class Payment:
    amount: Decimal
    card: str


def send(app: Windlass, *args: Any, **kwargs: Any) -> str:
    return app.tasks["shop.mail.send"].enqueue(*args, **kwargs).id


def stored(app: Windlass, id: str) -> tuple[list[Any], dict[str, Any]]:
    """The arguments as they are stored, without redaction."""
    (record,) = app.engine.get([id])
    assert record is not None
    call = call_as_json(app, record)
    args = [msgspec.json.decode(one) for one in call.args]
    return args, {name: msgspec.json.decode(one) for name, one in call.kwargs.items()}


def send_raw(client: Client, id: str, body: bytes) -> httpx.Response:
    json = {"Content-Type": "application/json"}
    return client.request("PATCH", f"/v1/jobs/{id}", content=body, headers=json)


def test_arguments_are_replaced(client: Client, app: Windlass) -> None:
    id = send(app, "ann", body="one")
    answer = client.patch(f"/v1/jobs/{id}", {"args": ["bob"], "kwargs": {"body": "two"}})
    assert answer.status_code == 200
    assert (answer.json()["args"], answer.json()["kwargs"]) == (["bob"], {"body": "two"})
    assert stored(app, id) == (["bob"], {"body": "two"})
    (entry,) = answer.json()["history"]
    assert entry["replaced"] == {"args": ["ann"], "kwargs": {"body": "one"}, "problem": None}


def test_a_part_that_is_left_out_stays(client: Client, app: Windlass) -> None:
    id = send(app, "ann", body="one", password="hunter2")
    assert client.patch(f"/v1/jobs/{id}", {"args": ["bob"]}).status_code == 200
    assert stored(app, id) == (["bob"], {"body": "one", "password": "hunter2"})


def test_a_redacted_value_is_never_stored(client: Client, app: Windlass) -> None:
    id = send(app, "ann", password="hunter2")
    shown = client.get(f"/v1/jobs/{id}").json()
    answer = client.patch(f"/v1/jobs/{id}", {"kwargs": shown["kwargs"]})
    assert answer.status_code == 422
    assert answer.json()["fields"][0]["path"] == "body.kwargs"
    assert client.patch(f"/v1/jobs/{id}", {"args": [REDACTED]}).status_code == 422
    nested = {"task": "shop.report", "args": [{"a": [{"b": "c"}]}]}
    other = client.post("/v1/jobs", nested).json()["id"]
    body = {"args": [{"a": [{"b": REDACTED}]}]}
    assert client.patch(f"/v1/jobs/{other}", body).status_code == 422
    assert stored(app, id) == (["ann"], {"password": "hunter2"})


def test_large_numbers_and_texts_survive(client: Client, app: Windlass) -> None:
    text, number = "\u00e9" * 500_000, 2**63
    id = client.post("/v1/jobs", {"task": "shop.report", "args": [number, text]}).json()["id"]
    shown = client.get(f"/v1/jobs/{id}").json()
    assert client.patch(f"/v1/jobs/{id}", {"args": shown["args"]}).status_code == 200
    assert stored(app, id) == ([number, text], {})


def test_new_arguments_are_checked(client: Client, app: Windlass) -> None:
    id = send(app, "ann")
    answer = client.patch(f"/v1/jobs/{id}", {"args": [3]})
    assert answer.status_code == 422
    assert answer.json()["fields"][0]["path"] == "body.args[0]"
    assert stored(app, id) == (["ann"], {})


def test_a_call_that_grows_too_large_is_refused(client: Client, app: Windlass) -> None:
    id = send(app, "ann")
    body = {"kwargs": {"body": "x" * (app.settings.max_payload + 1)}}
    assert client.patch(f"/v1/jobs/{id}", body).status_code == 413
    assert stored(app, id) == (["ann"], {})


def test_new_arguments_have_the_limits_of_an_enqueue(client: Client, app: Windlass) -> None:
    id = client.post("/v1/jobs", {"task": "shop.report"}).json()["id"]
    assert client.patch(f"/v1/jobs/{id}", {"args": [0] * 1001}).status_code == 422
    many = {f"n{number}": 0 for number in range(1001)}
    assert client.patch(f"/v1/jobs/{id}", {"kwargs": many}).status_code == 422
    answer = send_raw(client, id, b'{"args": [[0%s]]}' % (b" " * 2**20))
    assert answer.status_code == 413
    assert "as they were sent" in answer.json()["detail"]
    assert stored(app, id) == ([], {})


@pytest.mark.parametrize("value", [b"1e400", b"1" * 100_000, b'"\xff"', b"[" * 99 + b"]" * 99])
def test_a_value_that_cannot_be_read_is_refused(
    client: Client, app: Windlass, value: bytes
) -> None:
    id = client.post("/v1/jobs", {"task": "shop.report"}).json()["id"]
    for body in (b'{"args": [%s]}', b'{"kwargs": {"n": %s}}'):
        answer = send_raw(client, id, body % value)
        assert answer.status_code == 422, answer.text
    assert stored(app, id) == ([], {})


@pytest.mark.parametrize("number", [b"1e400", b"9" * 5_000], ids=["float", "digits"])
def test_a_redacted_value_is_found_next_to_a_number_that_python_does_not_read(
    client: Client, app: Windlass, number: bytes
) -> None:
    @app.task(name="shop.pay")
    def pay(payment: Payment) -> None: ...

    id = pay.enqueue(Payment(Decimal(1), "4111")).id
    mark = msgspec.json.encode(REDACTED)
    answer = send_raw(client, id, b'{"args": [{"amount": %s, "card": %s}]}' % (number, mark))
    assert answer.status_code == 422
    assert REDACTED in answer.json()["detail"]


def test_headers_stay(client: Client, app: Windlass) -> None:
    body = {"task": "shop.mail.send", "args": ["ann"], "headers": {"request": "r-1"}}
    id = client.post("/v1/jobs", body).json()["id"]
    client.patch(f"/v1/jobs/{id}", {"args": ["bob"]})
    assert app.job(id).info().headers == {"request": "r-1", ACTOR: "anonymous"}


def test_all_parts_change_together(client: Client, app: Windlass) -> None:
    id = send(app, "ann")
    body = {"args": ["bob"], "queue": "later", "run_in_s": 60}
    job = client.patch(f"/v1/jobs/{id}", body).json()
    assert (job["queue"], job["state"], job["args"]) == ("later", "scheduled", ["bob"])
    info = app.job(id).info()
    assert info.due_at is not None
    assert timedelta(seconds=59) < info.due_at - info.enqueued_at < timedelta(seconds=90)


def test_a_delayed_job_runs_now(client: Client, app: Windlass) -> None:
    id = app.tasks["shop.mail.send"].using(run_after="1h").enqueue("ann").id
    assert client.patch(f"/v1/jobs/{id}", {"run_in_s": 0}).json()["state"] == "ready"


def test_a_dead_job_becomes_ready_with_new_arguments(
    client: Client, app: Windlass, hand: Hand
) -> None:
    id = send(app, "ann")
    hand.bury(ValueError("no such user"))
    moved = client.patch(f"/v1/jobs/{id}", {"args": ["bob"], "queue": "later"})
    assert moved.status_code == 409
    assert "Retry the job first" in moved.json()["detail"]
    job = client.patch(f"/v1/jobs/{id}", {"args": ["bob"]}).json()
    assert (job["state"], job["args"]) == ("ready", ["bob"])


@pytest.mark.parametrize("body", [{"args": ["bob"]}, {"queue": "later"}, {"run_in_s": 1}])
def test_a_running_job_is_not_changed(
    client: Client, app: Windlass, hand: Hand, body: dict[str, Any]
) -> None:
    id = send(app, "ann")
    hand.take()
    answer = client.patch(f"/v1/jobs/{id}", body)
    assert answer.status_code == 409
    assert answer.json()["type"].endswith(":conflict")


@pytest.mark.parametrize(
    "body",
    [{}, {"queue": "a b"}, {"run_in_s": -1}, {"args": {}}, {"priority": 3}, {"args": None}],
)
def test_a_wrong_change_is_refused(client: Client, app: Windlass, body: dict[str, Any]) -> None:
    assert client.patch(f"/v1/jobs/{send(app, 'ann')}", body).status_code == 422


def test_a_task_that_is_unknown_here_is_not_edited(client: Client, app: Windlass) -> None:
    id = app.task_named("elsewhere.work").enqueue(1).id
    answer = client.patch(f"/v1/jobs/{id}", {"args": [2]})
    assert answer.status_code == 422
    assert stored(app, id) == ([1], {})
    assert client.patch(f"/v1/jobs/{id}", {"queue": "later"}).status_code == 200


def test_a_scoped_operator_moves_jobs_between_its_queues(caller: Caller, app: Windlass) -> None:
    id, operator = send(app, "ann"), caller("operator", "mail", "bulk")
    assert operator.patch(f"/v1/jobs/{id}", {"queue": "payments"}).status_code == 403
    assert operator.patch(f"/v1/jobs/{id}", {"queue": "bulk"}).status_code == 200
    assert app.job(id).info().queue == "bulk"


def test_a_holder_in_another_queue_is_not_named(caller: Caller, app: Windlass) -> None:
    sync = app.tasks["shop.sync"]
    dead = sync.using(queue="mail").enqueue(7)
    dead.cancel()
    holder = sync.using(queue="payments").enqueue(7)
    scoped, operator = caller("operator", "mail"), caller("operator")
    for method, path in (("PATCH", f"/v1/jobs/{dead.id}"), ("POST", f"/v1/jobs/{dead.id}/retry")):
        body = {"json": {"args": [7]}} if method == "PATCH" else {}
        answer = scoped.request(method, path, **body)
        assert answer.status_code == 409
        assert answer.json()["type"].endswith(":duplicate-job")
        assert holder.id not in answer.text
        assert holder.id in operator.request(method, path, **body).text


def test_the_trail_has_no_arguments(caller: Caller, app: Windlass) -> None:
    id = send(app, "ann")
    body = {"kwargs": {"body": "private", "password": "hunter2"}, "queue": "later"}
    assert caller("operator").patch(f"/v1/jobs/{id}", body).status_code == 200
    (entry,) = app.audit.list(limit=1)
    assert entry.details == {"kwargs": "[left out]", "queue": "later"}


def test_a_job_that_others_change_is_read_again(client: Client, app: Windlass) -> None:
    """Another process changes the job between the read and the write."""
    id = send(app, "ann")
    engine, tries = app.engine, []

    class Busy:
        def __getattr__(self, name: str) -> Any:
            return getattr(engine, name)

        def change_jobs(self, changes: Any) -> Any:
            tries.append(changes)
            if len(tries) == 1:
                app.job(id).move("elsewhere")
            return engine.change_jobs(changes)

    app.wrap_engine(lambda _: Busy())
    job = client.patch(f"/v1/jobs/{id}", {"args": ["bob"]}).json()
    assert (job["queue"], job["args"], job["state"]) == ("elsewhere", ["bob"], State.READY)
    assert len(tries) == 3  # two by the request, one by the other process
