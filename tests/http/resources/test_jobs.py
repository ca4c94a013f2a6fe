"""Read, list, cancel and retry jobs, and wait for their results."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from tests.app.hand import Hand
from tests.http.client import Client, LoopThread
from tests.http.conftest import Caller
from tests.worker.yard import until
from windlass import FailureText, Reason, Windlass
from windlass.context import LogLine, Report
from windlass.core.ids import new_id
from windlass.core.redaction import REDACTED
from windlass.engine.contract import Buried, Succeeded, Verdict
from windlass.http import ApiOptions, WindlassApi

UNKNOWN = new_id(0)


def send(app: Windlass, *args: Any, **kwargs: Any) -> str:
    return app.tasks["shop.mail.send"].enqueue(*args, **kwargs).id


# ---------------------------------------------------------------------------------------- reading


def test_a_digest_of_redacted_arguments_is_not_shown(client: Client, app: Windlass) -> None:
    """A unique key is a digest without a secret: it would confirm a guess of the arguments."""
    id = app.tasks["shop.sync"].enqueue(7).id
    key = app.job(id).info().unique_key
    assert key
    answer = client.get(f"/v1/jobs/{id}")
    assert "unique_key" not in answer.json()
    assert key not in answer.text


def test_a_waiting_job_is_shown(client: Client, app: Windlass) -> None:
    task = app.tasks["shop.mail.send"].using(headers={"request": "r-1"}, priority=3)
    id = task.enqueue("ann", body="hello").id
    job = client.get(f"/v1/jobs/{id}").json()
    assert (job["id"], job["task"], job["queue"]) == (id, "shop.mail.send", "mail")
    assert (job["state"], job["hold"], job["priority"]) == ("ready", "none", 3)
    assert (job["args"], job["kwargs"]) == (["ann"], {"body": "hello"})
    assert job["headers"] == {"request": "r-1"}
    assert datetime.fromisoformat(job["enqueued_at"]).tzinfo is not None
    assert job["history"] == []


def test_history_progress_and_log_are_shown(client: Client, app: Windlass, hand: Hand) -> None:
    id = send(app, "ann")
    hand.fail(ValueError("no such user"), 0)
    claim = hand.take()
    line = LogLine(datetime.now(UTC), "looking up")
    report = Report(value=0.25, message="a quarter", log=(line,))
    hand.report(claim, msgspec.json.encode(report))
    job = client.get(f"/v1/jobs/{id}").json()
    assert job["state"] == "running"
    assert job["attempts"] == 2
    assert job["worker"] == hand.session
    assert job["progress"] == {"value": 0.25, "message": "a quarter"}
    assert [one["message"] for one in job["log"]] == ["looking up"]
    (failed,) = job["history"]
    assert (failed["attempt"], failed["event"]) == (1, "retry")
    assert failed["error"]["message"] == "no such user"
    assert failed["error"]["type"] == "ValueError"
    assert job["error"] == failed["error"]


def test_a_dead_job_has_a_fingerprint(client: Client, app: Windlass, hand: Hand) -> None:
    id = send(app, "ann")
    hand.bury(ValueError("no such user"))
    job = client.get(f"/v1/jobs/{id}").json()
    assert (job["state"], job["reason"]) == ("dead", "exhausted")
    assert job["fingerprint"]


def test_secrets_are_redacted_at_any_depth(client: Client, app: Windlass, hand: Hand) -> None:
    task = app.tasks["shop.mail.send"].using(headers={"Authorization": "Bearer x"})
    job = client.get(f"/v1/jobs/{task.enqueue('ann', password='hunter2').id}")
    assert "hunter2" not in job.text
    assert "Bearer x" not in job.text
    assert job.json()["kwargs"] == {"password": REDACTED}
    assert job.json()["headers"]["Authorization"] == REDACTED
    charge = {"task": "shop.charge", "args": [{"number": 1, "card_number": "4111"}]}
    id = client.post("/v1/jobs", charge).json()["id"]
    shown = client.get(f"/v1/jobs/{id}")
    assert "4111" not in shown.text
    assert shown.json()["args"][0]["card_number"] == REDACTED


def test_a_replaced_call_in_the_history_is_redacted(client: Client, app: Windlass) -> None:
    id = send(app, "ann", password="hunter2")
    app.job(id).edit("bob", password="hunter3")
    shown = client.get(f"/v1/jobs/{id}")
    assert "hunter" not in shown.text
    (entry,) = shown.json()["history"]
    assert entry["event"] == "revive"
    assert entry["replaced"]["args"] == ["ann"]


@pytest.mark.parametrize("what", ["task", "queue"])
def test_it_tells_why_a_job_is_held(client: Client, app: Windlass, hand: Hand, what: str) -> None:
    id = send(app, "ann")
    if what == "task":
        app.tasks["shop.mail.send"].pause()
        assert hand.find() == ()
    else:
        app.queue("mail").pause()
    name = {"task": "shop.mail.send", "queue": "mail"}[what]
    assert client.get(f"/v1/jobs/{id}").json()["held_because"] == f"the {what} {name} is paused"


def test_an_unknown_job_is_not_found(client: Client) -> None:
    for path in (UNKNOWN, f"{UNKNOWN}/result", f"{UNKNOWN}/result?wait_s=1"):
        answer = client.get(f"/v1/jobs/{path}")
        assert answer.status_code == 404
        assert answer.json()["type"].endswith(":not-found")
        assert "sqlite" not in answer.text


@pytest.mark.parametrize("id", ["~x", "a b", "%0a", "x" * 65, "x%0A", "%00"])
def test_what_is_no_id_is_refused(client: Client, id: str) -> None:
    assert client.get(f"/v1/jobs/{id}").status_code in (404, 422)


def test_a_scoped_caller_sees_jobs_of_its_queues_only(
    caller: Caller, app: Windlass, client: Client
) -> None:
    mine = send(app, "ann")
    foreign = app.tasks["shop.report"].enqueue().id
    producer, operator = caller("producer", "mail"), caller("operator", "mail")
    for one in (producer, operator):
        assert one.get(f"/v1/jobs/{mine}").status_code == 200
        assert one.get(f"/v1/jobs/{mine}/result").status_code == 200
        hidden = one.get(f"/v1/jobs/{foreign}")
        missing = one.get(f"/v1/jobs/{UNKNOWN}")
        assert hidden.status_code == missing.status_code == 404
        assert hidden.text.replace(foreign, "") == missing.text.replace(UNKNOWN, "")
        assert one.get(f"/v1/jobs/{foreign}/result").status_code == 404
    for verb in ("cancel", "retry"):
        assert operator.post(f"/v1/jobs/{foreign}/{verb}").status_code == 404
    assert operator.patch(f"/v1/jobs/{foreign}", {"run_in_s": 5}).status_code == 404
    assert app.job(foreign).info().state == "ready"


# ---------------------------------------------------------------------------------------- listing


def test_jobs_are_listed_in_pages(client: Client, app: Windlass) -> None:
    ids = [send(app, f"user-{number}") for number in range(25)]
    seen: list[str] = []
    query = "limit=10"
    while True:
        page = client.get(f"/v1/jobs?{query}").json()
        seen += [job["id"] for job in page["jobs"]]
        if page["cursor"] is None:
            break
        query = f"limit=10&cursor={page['cursor']}"
    assert seen == ids


def test_jobs_are_filtered(client: Client, app: Windlass, hand: Hand) -> None:
    dead = send(app, "ann")
    hand.bury(ValueError("no"))
    ready = send(app, "bob")
    report = app.tasks["shop.report"].enqueue().id

    def listed(query: str) -> set[str]:
        answer = client.get(f"/v1/jobs?{query}")
        assert answer.status_code == 200, answer.text
        return {job["id"] for job in answer.json()["jobs"]}

    assert listed("state=dead") == {dead}
    assert listed("queue=mail") == {dead, ready}
    assert listed("task=shop.report") == {report}
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat().replace("+00:00", "Z")
    assert listed(f"since={later}") == set()
    assert listed(f"until={later}") == {dead, ready, report}


@pytest.mark.parametrize(
    "query",
    [
        *("limit=0", "limit=201", "limit=x", "state=lost", "queue=a%20b", "since=yesterday"),
        *("since=2030-01-31T08:00:00", "cursor=", "cursor=nonsense", "cursor=ready.%21"),
        *("cursor=dead.AAAA", "cursor=due.AAAA", "cursor=succeeded.AAAA", "cursor=ready"),
        *("stat=dead", "limit=1&limit=2", "state=ready&cursor=dead.AAAA"),
    ],
)
def test_a_wrong_query_is_refused(client: Client, app: Windlass, query: str) -> None:
    send(app, "ann")
    answer = client.get(f"/v1/jobs?{query}")
    assert answer.status_code == 422, answer.text
    assert answer.json()["type"].endswith(":invalid")


def test_a_scoped_list_names_its_queue(caller: Caller, app: Windlass) -> None:
    mine = send(app, "ann")
    app.tasks["shop.report"].enqueue()
    operator = caller("operator", "mail")
    answer = operator.get("/v1/jobs")
    assert answer.status_code == 403
    assert "?queue=NAME" in answer.json()["detail"]
    assert operator.get("/v1/jobs?queue=default").status_code == 403
    page = operator.get("/v1/jobs?queue=mail").json()
    assert [job["id"] for job in page["jobs"]] == [mine]


def test_producers_do_not_list_jobs(caller: Caller) -> None:
    assert caller("producer").get("/v1/jobs").status_code == 403


# ----------------------------------------------------------------------------------------- result


def test_the_result_of_a_job(client: Client, app: Windlass, hand: Hand) -> None:
    id = send(app, "ann")
    assert client.get(f"/v1/jobs/{id}/result").json() == {
        "id": id,
        "state": "ready",
        "reason": None,
        "result": None,
        "error": None,
        "problem": None,
    }
    hand.succeed("ann: 0")
    done = client.get(f"/v1/jobs/{id}/result").json()
    assert (done["state"], done["result"], done["problem"]) == ("succeeded", "ann: 0", None)


def test_a_large_number_in_a_result_is_exact(client: Client, app: Windlass, hand: Hand) -> None:
    id = app.tasks["shop.report"].enqueue().id
    hand.succeed({"n": 2**63, "token": "kept"})
    assert client.get(f"/v1/jobs/{id}/result").json()["result"] == {"n": 2**63, "token": "kept"}


def test_the_error_of_a_dead_job(client: Client, app: Windlass, hand: Hand) -> None:
    id = send(app, "ann")
    hand.bury(ValueError("no such user"))
    told = client.get(f"/v1/jobs/{id}/result").json()
    assert (told["state"], told["reason"], told["result"]) == ("dead", "exhausted", None)
    assert told["error"]["message"] == "no such user"


def test_a_result_that_is_not_stored_is_told(client: Client, app: Windlass, hand: Hand) -> None:
    id = send(app, "ann")
    hand.succeed("x", ttl_ms=0)
    told = client.get(f"/v1/jobs/{id}/result").json()
    assert (told["state"], told["result"]) == ("succeeded", None)
    assert told["problem"] == "the result is not stored any more"


@pytest.mark.parametrize("outcome", ["success", "death"])
def test_a_wait_ends_with_the_job(client: Client, app: Windlass, hand: Hand, outcome: str) -> None:
    id = send(app, "ann")
    waiting = client.start("GET", f"/v1/jobs/{id}/result?wait_s=20")
    claim = hand.take()
    if outcome == "success":
        result = app.tasks["shop.mail.send"].codec.encode_result("sent")
        ended: Any = Succeeded(id=id, token=claim.token, result=result, result_ttl_ms=60_000)
    else:
        error = FailureText(type="ValueError", message="no").pack()
        ended = Buried(id=id, token=claim.token, reason=Reason.EXHAUSTED, error=error)
    assert app.engine.finish([ended]) == [Verdict.OK]
    began = time.monotonic()
    told = client.finish(waiting).json()
    assert time.monotonic() - began < 10
    assert told["state"] == ("succeeded" if outcome == "success" else "dead")
    assert told["result"] == ("sent" if outcome == "success" else None)


def test_a_wait_is_bounded(client: Client, app: Windlass) -> None:
    id = send(app, "ann")
    began = time.monotonic()
    answer = client.get(f"/v1/jobs/{id}/result?wait_s=0.3")
    assert time.monotonic() - began >= 0.3
    assert (answer.status_code, answer.json()["state"]) == (200, "ready")
    assert client.get(f"/v1/jobs/{id}/result?wait_s=21").status_code == 422
    assert client.get(f"/v1/jobs/{id}/result?wait_s=-1").status_code == 422
    assert client.get(f"/v1/jobs/{id}/result?wait_s=nan").status_code == 422


def test_a_wait_ends_when_the_instance_shuts_down(
    client: Client, app: Windlass, api: WindlassApi, loop: LoopThread
) -> None:
    id = send(app, "ann")
    waiting = client.start("GET", f"/v1/jobs/{id}/result?wait_s=20")
    client.get("/healthz")  # the request has begun by now
    began = time.monotonic()
    loop.loop.call_soon_threadsafe(api.drain)
    answer = client.finish(waiting)
    assert time.monotonic() - began < 10
    assert (answer.status_code, answer.json()["state"]) == (200, "ready")


def test_a_wait_ends_when_the_client_leaves(client: Client, app: Windlass) -> None:
    id = send(app, "ann")
    with client.leaving(f"/v1/jobs/{id}/result", "wait_s=20") as request:
        client.get("/healthz")
        began = time.monotonic()
        request.leave()
    assert time.monotonic() - began < 10


def test_a_wait_with_a_revoked_token_ends_without_the_result(
    caller: Caller, app: Windlass, hand: Hand
) -> None:
    id, producer = send(app, "ann"), caller("producer")
    assert producer.get("/v1/tasks").status_code == 200  # a check is remembered for a moment
    waiting = producer.start("GET", f"/v1/jobs/{id}/result?wait_s=20")
    app.access_tokens.revoke("producer")
    until(lambda: producer.get("/v1/tasks").status_code == 401, "the end of the token")
    hand.succeed("secret")
    answer = producer.finish(waiting)
    assert answer.status_code == 401
    assert "secret" not in answer.text


class TestFewWaiters:
    @pytest.fixture
    def options(self) -> ApiOptions:
        return ApiOptions(max_waiters=1)

    def test_waits_are_limited(
        self, client: Client, app: Windlass, api: WindlassApi, loop: LoopThread
    ) -> None:
        id = send(app, "ann")
        waiting = client.start("GET", f"/v1/jobs/{id}/result?wait_s=20")
        until_waiting(client, id)
        loop.loop.call_soon_threadsafe(api.drain)
        assert client.finish(waiting).status_code == 200


def until_waiting(client: Client, id: str) -> None:
    """Return when another request waits: then this one is refused."""
    for _ in range(200):
        answer = client.get(f"/v1/jobs/{id}/result?wait_s=0.01")
        if answer.status_code == 503:
            assert answer.json()["type"].endswith(":overloaded")
            return
    raise AssertionError("no request was refused")


# --------------------------------------------------------------------------------------- changing


def test_cancel(client: Client, app: Windlass, hand: Hand) -> None:
    id = send(app, "ann")
    assert client.post(f"/v1/jobs/{id}/cancel").json() == {"id": id, "outcome": "cancelled"}
    assert client.post(f"/v1/jobs/{id}/cancel").status_code == 200  # repeated
    succeeded = send(app, "zoe")
    hand.succeed("x")
    assert client.post(f"/v1/jobs/{succeeded}/cancel").status_code == 409
    running = send(app, "bob")
    hand.take()
    assert client.post(f"/v1/jobs/{running}/cancel").json()["outcome"] == "requested"
    assert client.get(f"/v1/jobs/{running}").json()["cancel_requested"] is True
    assert client.post(f"/v1/jobs/{UNKNOWN}/cancel").status_code == 404


def test_retry(client: Client, app: Windlass, hand: Hand) -> None:
    id = send(app, "ann")
    assert client.post(f"/v1/jobs/{id}/retry").status_code == 409
    hand.bury(ValueError("no such user"))
    assert client.post(f"/v1/jobs/{id}/retry").json() == {"id": id, "state": "ready"}
    job = client.get(f"/v1/jobs/{id}").json()
    assert (job["state"], len(job["history"])) == ("ready", 1)
    assert client.post(f"/v1/jobs/{UNKNOWN}/retry").status_code == 404


def test_a_retry_of_a_job_whose_key_is_taken(client: Client, app: Windlass, hand: Hand) -> None:
    first = app.tasks["shop.sync"].enqueue(1)
    hand.bury(ValueError("no"))
    second = app.tasks["shop.sync"].enqueue(1)
    answer = client.post(f"/v1/jobs/{first.id}/retry")
    assert answer.status_code == 409
    assert answer.json()["type"].endswith(":duplicate-job")
    assert second.id in answer.json()["detail"]


@pytest.mark.parametrize("role", ["producer", "worker"])
def test_only_operators_change_jobs(caller: Caller, app: Windlass, role: str) -> None:
    id, one = send(app, "ann"), caller(role)
    assert one.post(f"/v1/jobs/{id}/cancel").status_code == 403
    assert one.post(f"/v1/jobs/{id}/retry").status_code == 403
    assert one.patch(f"/v1/jobs/{id}", {"run_in_s": 1}).status_code == 403
    assert app.job(id).info().due_at is None


def test_every_change_is_audited_with_its_actor(caller: Caller, app: Windlass) -> None:
    id = send(app, "ann")
    caller("operator").post(f"/v1/jobs/{id}/cancel")
    (entry,) = app.audit.list(limit=1)
    assert (entry.actor, entry.action, entry.subject) == (
        "token:operator",
        "http.cancel_job",
        id,
    )


# -------------------------------------------------------------------------------------------- why


def test_a_job_tells_why_it_does_not_run(caller: Caller, app: Windlass) -> None:
    id = app.tasks["shop.mail.send"].enqueue("ann").id
    admin = caller("admin")
    admin.post("/v1/queues/mail/pause")
    found = admin.get(f"/v1/jobs/{id}/why").json()
    assert (found["id"], found["state"], found["ahead"]) == (id, "ready", 0)
    paused, worker = found["holds"]
    assert (paused["kind"], paused["by"]) == ("queue_paused", "token:admin")
    assert "was paused by token:admin at" in paused["text"]
    assert paused["command"] == "windlass queue resume mail"
    assert (worker["kind"], worker["by"]) == ("no_worker", None)


def test_who_paused_a_queue_is_for_readers_of_the_audit_trail(
    caller: Caller, app: Windlass
) -> None:
    id = app.tasks["shop.mail.send"].enqueue("ann").id
    other = app.tasks["shop.report"].enqueue().id
    caller("admin").post("/v1/queues/mail/pause")
    viewer = caller("viewer", "mail")
    for one in (viewer, caller("producer")):  # neither reads the audit trail
        paused, _ = one.get(f"/v1/jobs/{id}/why").json()["holds"]
        assert (paused["kind"], paused["by"]) == ("queue_paused", None)
        assert "token:admin" not in paused["text"]
    assert viewer.get(f"/v1/jobs/{other}/why").status_code == 404
    assert caller("admin").get("/v1/jobs/nothing/why").status_code == 404
