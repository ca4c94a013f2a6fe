"""An error says what to send instead."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.client import Client

SESSION = {"name": "w", "tasks": ["t"]}
REPORT = {"id": "j", "token": "0" * 40}


def finish(**report: Any) -> dict[str, Any]:
    return {"session": "s", "outcomes": [{**REPORT, **report}]}


@pytest.mark.parametrize(
    ("path", "body", "detail"),
    [
        (
            "/v1/sessions",
            {**SESSION, "task": "t"},
            "body: object contains unknown field `task`. Known ones: name, tasks, queues, labels, "
            "slots, version, release.",
        ),
        (
            "/v1/dead/retry",
            {"filter": {"task": "t", "queues": "q"}},
            "body.filter: object contains unknown field `queues`. Known ones: task, queue, "
            "fingerprint, release, older_than_s, newer_than_s, everything.",
        ),
        (
            "/v1/tokens",
            {"name": "a", "role": "boss"},
            "body.role: invalid enum value 'boss'. Expected one of producer, worker, viewer, "
            "operator, admin.",
        ),
        (
            "/v1/claims/finish",
            finish(outcome="done"),
            "body.outcomes[0].outcome: invalid value 'done'. Expected one of succeeded, failed, "
            "retry, released, snoozed, progress.",
        ),
        (
            "/v1/claims/finish",
            finish(outcome="snoozed", delay_s=1, why="x"),
            "body.outcomes[0]: object contains unknown field `why`.",
        ),
        (
            "/v1/jobs",
            {"task": "t", "queue": "a b"},
            "body.queue: expected `str` matching regex '^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$'.",
        ),
        (
            "/v1/jobs",
            {"task": "t", "run_at": "tomorrow"},
            "body.run_at: invalid RFC3339 encoded datetime. Expected an instant such as "
            "2030-01-31T08:00:00Z.",
        ),
    ],
)
def test_bodies(client: Client, path: str, body: dict[str, Any], detail: str) -> None:
    answer = client.post(path, body)
    assert answer.status_code == 422
    assert answer.json()["detail"] == detail
    assert answer.json()["fields"][0]["detail"] + "." == detail.partition(": ")[2]


def test_a_state_that_does_not_exist(client: Client) -> None:
    detail = client.get("/v1/jobs?state=done").json()["detail"]
    assert detail.startswith("query.state: invalid enum value 'done'. Expected one of waiting,")
    assert "succeeded" in detail


def test_a_step_that_does_not_exist(client: Client) -> None:
    detail = client.get("/v1/history?step=day").json()["detail"]
    assert detail == "query.step: invalid enum value 'day'. Expected one of hour, minute."


def test_a_worker_by_the_name_of_its_session(client: Client) -> None:
    client.post("/v1/sessions", SESSION)
    detail = client.post("/v1/workers/w/quiet").json()["detail"]
    assert detail == (
        "There is no worker or session w. GET /v1/workers lists the live ones, such as w:http."
    )


@pytest.mark.parametrize(
    ("headers", "start"),
    [
        ({}, "Send an access token, as in `Authorization: Bearer wl_...`."),
        ({"Authorization": "Bearer wl_x"}, "The access token is unknown, expired or revoked"),
        ({"X-Forwarded-For": "192.0.2.1"}, "A proxy forwarded this request, which therefore needs"),
    ],
)
def test_a_caller_without_valid_credentials(
    client: Client, headers: dict[str, str], start: str
) -> None:
    answer = client.at("192.0.2.1").get("/v1/stats", headers=headers)
    assert answer.status_code == 401
    assert answer.json()["detail"].startswith(start)
    assert "windlass token create" in answer.json()["detail"]
