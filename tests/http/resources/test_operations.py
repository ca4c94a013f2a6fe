"""Bulk operations, the audit trail and access tokens through the API."""

from __future__ import annotations

from typing import Any

import pytest

from tests.app.hand import bury_jobs
from tests.http.client import Client
from tests.http.conftest import Caller
from tests.worker.yard import until
from windlass import Windlass
from windlass.errors import EngineError
from windlass.http.problems import ProblemType, problem_of

ADMIN = {"name": "boss", "role": "admin"}


# ------------------------------------------------------------------------------------- operations


def start(app: Windlass, **choice: Any) -> str:
    app.engine.clock_offset_ms += 10  # those of one millisecond have no order
    return app.operations.start("dead.retry", actor="cli:ann", **choice).id


def test_operations_are_listed_newest_first(client: Client, app: Windlass) -> None:
    ids = [start(app, queue=f"queue-{number}") for number in range(3)]
    first = client.get("/v1/operations?limit=2").json()
    assert [one["id"] for one in first["operations"]] == ids[:0:-1]
    second = client.get(f"/v1/operations?limit=2&after={first['after']}").json()
    assert [one["id"] for one in second["operations"]] == ids[:1]
    assert second["after"] is None
    assert first["operations"][0]["actor"] == "cli:ann"


def test_headers_of_a_filter_are_redacted(client: Client, app: Windlass) -> None:
    headers = {"api_key": "hunter2", "tenant": "acme"}
    id = app.operations.start("jobs.cancel", actor="cli:ann", headers=headers).id
    found = client.get(f"/v1/operations/{id}")
    listed = client.get("/v1/operations")
    assert found.json()["filter"]["headers"] == {"api_key": "[redacted]", "tenant": "acme"}
    assert "hunter2" not in found.text + listed.text


def test_an_operation_of_another_process_is_run(client: Client, app: Windlass) -> None:
    """As an instance does that starts after another one was killed."""
    path = f"/v1/operations/{start(app, everything=True)}"
    until(lambda: client.get(path).json()["state"] == "finished", "the end of the operation")


def test_an_operation_is_stopped(client: Client, app: Windlass) -> None:
    id = start(app, everything=True)
    state = client.post(f"/v1/operations/{id}/stop").json()["state"]
    assert state in ("stopped", "finished")
    assert client.post(f"/v1/operations/{id}/stop").json()["state"] == state


def test_an_operation_that_cannot_start_says_why(
    client: Client, app: Windlass, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"filter": {"task": "t"}, "rate": 0.0001}
    answer = client.post("/v1/dead/retry", body)
    assert answer.status_code == 422
    assert "rate must be at least one job per hour" in answer.json()["detail"]
    monkeypatch.setattr("windlass.operations.control.MAX_ACTIVE", 0)
    answer = client.post("/v1/dead/retry", body | {"rate": 1})
    assert answer.status_code == 429
    assert "0 bulk operations are running" in answer.json()["detail"]


def test_an_operation_is_paused_and_resumed(client: Client, app: Windlass) -> None:
    bury_jobs(app, "shop.report", 30)
    body = {"filter": {"task": "shop.report"}, "rate": 5, "stop_after": 20}
    started = client.post("/v1/dead/retry", body).json()
    assert (started["stop_after"], started["total"], started["reason"]) == (20, 30, None)
    path = f"/v1/operations/{started['id']}"
    paused = client.post(f"{path}/pause").json()
    assert (paused["state"], paused["reason"]) == ("paused", "paused by anonymous")
    assert client.get(path).json()["done"] < 30
    assert client.post(f"{path}/resume").json()["state"] == "running"
    assert client.post(f"{path}/stop").json()["state"] == "stopped"
    refused = client.post(f"{path}/resume")
    assert refused.status_code == 422
    assert "only a paused one can be resumed" in refused.json()["detail"]


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/v1/dead/retry", {"ids": ["a"], "stop_after": 1}, "body.stop_after"),
        ("/v1/dead/retry", {"filter": {"task": "a"}, "stop_after": 101}, "body.stop_after"),
        ("/v1/dead/discard", {"filter": {"task": "a"}, "stop_after": 1}, "body.stop_after"),
    ],
)
def test_a_rule_that_does_not_apply_is_refused(
    client: Client, path: str, body: dict[str, Any], field: str
) -> None:
    answer = client.post(path, body)
    assert answer.status_code == 422
    assert field in answer.text


def test_an_unknown_operation_is_not_found(client: Client) -> None:
    assert client.get("/v1/operations/0").status_code == 404
    for verb in ("pause", "resume", "stop"):
        assert client.post(f"/v1/operations/0/{verb}").status_code == 404
    assert client.get("/v1/operations/a%20b").status_code == 422


def test_scoped_callers_see_operations_on_their_queues(caller: Caller, app: Windlass) -> None:
    mine = start(app, queue="mail")
    foreign = [start(app, queue="other"), start(app, everything=True), start(app, task="t")]
    own = start(app, everything=True, scopes=["mail"])
    operator = caller("operator", "mail")
    listed = operator.get("/v1/operations").json()["operations"]
    assert [one["id"] for one in listed] == [own, mine]
    for id in foreign:
        assert operator.get(f"/v1/operations/{id}").status_code == 404
        assert operator.post(f"/v1/operations/{id}/stop").status_code == 404
    assert operator.get(f"/v1/operations/{mine}").status_code == 200


def test_pages_of_scoped_callers_do_not_name_other_operations(
    caller: Caller, app: Windlass
) -> None:
    start(app, queue="other")
    mine = start(app, queue="mail")
    start(app, queue="other")
    operator = caller("operator", "mail")
    first = operator.get("/v1/operations?limit=1").json()
    assert ([one["id"] for one in first["operations"]], first["after"]) == ([mine], mine)
    second = operator.get(f"/v1/operations?limit=1&after={mine}").json()
    assert second == {"operations": [], "after": None}


# ------------------------------------------------------------------------------------------ audit


def test_changes_are_in_the_trail(caller: Caller, app: Windlass) -> None:
    operator = caller("operator")
    operator.post("/v1/queues/mail/pause")
    operator.post("/v1/queues/mail/resume")
    operator.post("/v1/dead/retry", {"ids": ["job-1"]})
    first = operator.get("/v1/audit?limit=2").json()
    retried, resumed = first["entries"]
    assert (retried["actor"], retried["action"]) == ("token:operator", "http.retry_dead")
    assert retried["details"] == {"ids": ["job-1"]}
    assert (resumed["action"], resumed["subject"]) == ("http.resume_queue", "mail")
    second = operator.get(f"/v1/audit?limit=200&before={first['before']}").json()
    assert [one["action"] for one in second["entries"]] == ["http.pause_queue"]
    assert second["before"] is None


def test_a_request_that_is_refused_has_no_entry(caller: Caller, app: Windlass) -> None:
    caller("producer").post("/v1/queues/mail/pause")
    caller("operator").post("/v1/queues/a%20b/pause")
    assert app.audit.list() == []


def test_nothing_changes_without_an_entry(
    client: Client, app: Windlass, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = app.engine

    class NoAudit:
        def __getattr__(self, name: str) -> Any:
            return getattr(engine, name)

        def add_audit(self, entries: Any) -> None:
            raise RuntimeError("the disk is full")

    app.wrap_engine(lambda _: NoAudit())
    assert client.post("/v1/queues/mail/pause").status_code == 500
    assert engine.queues() == []


@pytest.mark.parametrize("query", ["limit=0", "limit=201", "before=%20", "after=x"])
def test_a_wrong_query_is_refused(client: Client, query: str) -> None:
    assert client.get(f"/v1/audit?{query}").status_code == 422


def test_the_trail_is_for_operators_of_all_queues(caller: Caller) -> None:
    assert caller("producer").get("/v1/audit").status_code == 403
    assert caller("worker").get("/v1/audit").status_code == 403
    assert caller("operator", "mail").get("/v1/audit").status_code == 403
    assert caller("operator").get("/v1/audit").status_code == 200


# ----------------------------------------------------------------------------------------- tokens


def test_a_token_is_created_used_and_revoked(client: Client, app: Windlass) -> None:
    answer = client.post("/v1/tokens", ADMIN)
    assert answer.status_code == 201
    text, token = answer.json()["text"], answer.json()["token"]
    assert (token["name"], token["role"], token["queues"]) == ("boss", "admin", [])
    assert text.endswith(token["ends_with"])
    admin = client.with_token(text)
    until(lambda: client.get("/v1/tokens").status_code == 401, "the API to be closed")
    listed = admin.get("/v1/tokens")
    assert listed.json()["tokens"] == [token]
    assert text not in listed.text
    body = {"name": "mail", "role": "producer", "queues": ["mail*"], "expires_in_s": 3600}
    other = admin.post("/v1/tokens", body).json()
    producer = client.with_token(other["text"])
    assert producer.get("/v1/tasks").status_code == 200
    assert admin.delete(f"/v1/tokens/{other['token']['id']}").status_code == 204
    until(lambda: producer.get("/v1/tasks").status_code == 401, "the end of the token")
    assert admin.delete(f"/v1/tokens/{other['token']['id']}").status_code == 404


def test_the_trail_names_the_token_and_its_id(client: Client, app: Windlass) -> None:
    answer = client.post("/v1/tokens", ADMIN).json()
    id, admin = answer["token"]["id"], client.with_token(answer["text"])
    assert admin.delete(f"/v1/tokens/{id}").status_code == 204
    done = [one for one in app.audit.list() if one.outcome == "ok"]
    assert [(one.action, one.subject, one.details) for one in done] == [
        ("http.revoke_token", id, {"name": "boss"}),
        ("http.create_token", id, {"name": "boss"}),
    ]


def test_the_trail_never_has_a_token(client: Client, app: Windlass) -> None:
    text = client.post("/v1/tokens", ADMIN).json()["text"]
    trail = client.with_token(text).get("/v1/audit").text
    assert "http.create_token" in trail
    assert text.rpartition("_")[2] not in trail


@pytest.mark.parametrize(
    "body",
    [
        {"role": "admin"},
        {"name": "a b", "role": "admin"},
        {"name": "a\n", "role": "admin"},
        {"name": "x" * 65, "role": "admin"},
        {"name": "x", "role": "root"},
        {"name": "x", "role": "admin", "queues": "mail"},
        {"name": "x", "role": "admin", "queues": ["a b"]},
        {"name": "x", "role": "admin", "queues": ["q"] * 101},
        {"name": "x", "role": "admin", "expires_in_s": 0},
        {"name": "x", "role": "admin", "expires_in_s": -1},
        {"name": "x", "role": "admin", "expires_at": "2030-01-31T08:00:00Z"},
    ],
)
def test_a_wrong_token_is_refused(client: Client, app: Windlass, body: dict[str, Any]) -> None:
    assert client.post("/v1/tokens", body).status_code == 422
    assert app.access_tokens.list() == ()


def test_names_of_tokens_are_unique(client: Client, caller: Caller) -> None:
    admin = caller("admin")
    answer = admin.post("/v1/tokens", {"name": "admin", "role": "producer"})
    assert answer.status_code == 409


def test_a_token_beyond_the_limit_is_a_conflict(
    client: Client, caller: Caller, app: Windlass, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = caller("admin")
    monkeypatch.setattr("windlass.engine.sql.verbs.documents.MAX_DOCUMENTS", 1)
    answer = admin.post("/v1/tokens", ADMIN)
    assert answer.status_code == 409, answer.text
    assert answer.json()["type"].endswith(":conflict")
    assert "Remove some of them first." in answer.json()["detail"]


def test_other_errors_of_the_engine_stay_in_the_log() -> None:
    problem = problem_of(EngineError("The jobs in redis://db:6379 are of an older windlass."))
    assert problem.kind is ProblemType.INTERNAL
    assert "db" not in str(problem)


@pytest.mark.parametrize(
    ("role", "queues"),
    [("producer", []), ("worker", []), ("viewer", []), ("operator", []), ("admin", ["mail"])],
)
def test_tokens_are_for_admins_of_all_queues(
    caller: Caller, app: Windlass, role: str, queues: list[str]
) -> None:
    one = caller(role, *queues)
    (token,) = app.access_tokens.list()
    assert one.get("/v1/tokens").status_code == 403
    assert one.post("/v1/tokens", ADMIN).status_code == 403
    assert one.delete(f"/v1/tokens/{token.id}").status_code == 403
    assert app.access_tokens.list() == (token,)
