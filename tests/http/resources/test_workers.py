"""Workers through the API: those of this library, and those that use the API."""

from __future__ import annotations

from typing import Any

import pytest

from tests.app.hand import Hand
from tests.http.client import Client
from tests.http.conftest import Caller
from windlass import Windlass
from windlass.core.introduction import Introduction
from windlass.engine.contract import Beat, SessionCommand
from windlass.http.resources import workers


def beat(app: Windlass, session: str, *queues: str) -> SessionCommand:
    info = Introduction(
        host="web-1", worker=10, child=11, slots=4, queues=queues, version="1", lease_ms=30_000
    )
    (pulse,) = app.engine.beat([Beat(session=session, info=info.pack())])
    return pulse.command


def test_workers_and_their_jobs_are_listed(client: Client, app: Windlass, hand: Hand) -> None:
    beat(app, hand.session, "mail")
    id = app.tasks["shop.mail.send"].enqueue("ann").id
    hand.take()
    (worker,) = client.get("/v1/workers").json()["workers"]
    assert (worker["host"], worker["pid"], worker["name"]) == ("web-1", 10, "web-1:10")
    assert (worker["queues"], worker["slots"], worker["jobs"]) == (["mail"], 4, 1)
    assert worker["state"] == "running"
    (session,) = worker["sessions"]
    assert (session["session"], session["pid"]) == (hand.session, 11)
    assert session["is_silent"] is False
    (job,) = session["running"]
    assert (job["id"], job["task"], job["queue"], job["attempt"]) == (
        id,
        "shop.mail.send",
        "mail",
        1,
    )


def test_a_worker_that_uses_the_api_is_listed(client: Client) -> None:
    body = {"name": "node-1", "tasks": ["shop.mail.send"], "slots": 3}
    session = client.post("/v1/sessions", body).json()["session"]
    (worker,) = client.get("/v1/workers").json()["workers"]
    assert (worker["kind"], worker["slots"]) == ("http", 3)
    assert [one["session"] for one in worker["sessions"]] == [session]


@pytest.mark.parametrize("command", ["quiet", "stop"])
def test_a_command_reaches_the_next_heartbeat(
    client: Client, app: Windlass, hand: Hand, command: str
) -> None:
    beat(app, hand.session)
    answer = client.post(f"/v1/workers/{hand.session}/{command}")
    assert answer.status_code == 200
    assert answer.json()["sessions"][0]["command"] == command
    assert beat(app, hand.session) == command
    assert client.get("/v1/workers").json()["workers"][0]["state"] != "running"


def test_a_quiet_worker_runs_again(client: Client, app: Windlass, hand: Hand) -> None:
    beat(app, hand.session)
    client.post(f"/v1/workers/{hand.session}/quiet")
    assert client.post(f"/v1/workers/{hand.session}/run").json()["state"] == "running"
    assert beat(app, hand.session) is SessionCommand.RUN


@pytest.mark.parametrize("command", ["quiet", "stop", "run"])
def test_a_session_that_has_ended_is_gone(
    client: Client, app: Windlass, hand: Hand, command: str
) -> None:
    assert client.post(f"/v1/workers/{hand.session}/{command}").status_code == 410
    beat(app, hand.session)
    app.engine.close(hand.session, (), "")
    answer = client.post(f"/v1/workers/{hand.session}/{command}")
    assert answer.status_code == 410
    assert answer.json()["type"].endswith(":session-gone")
    assert client.post(f"/v1/workers/a%20b/{command}").status_code == 422


def test_scoped_callers_see_workers_of_their_queues(
    caller: Caller, app: Windlass, hand: Hand
) -> None:
    beat(app, hand.session)
    beat(app, "other.1.0", "other")
    app.tasks["shop.report"].enqueue()
    hand.take()
    operator = caller("operator", "mail")
    (worker,) = operator.get("/v1/workers").json()["workers"]
    sessions = {one["session"]: one for one in worker["sessions"]}
    assert sessions[hand.session]["running"] == []
    assert operator.post(f"/v1/workers/{hand.session}/stop").status_code == 403
    assert beat(app, hand.session) is SessionCommand.RUN


def begin(app: Windlass, host: str, worker: int, kind: str = "", *queues: str) -> None:
    """Begin a session of a worker."""
    info = Introduction(host=host, worker=worker, kind=kind, queues=queues, lease_ms=30_000)
    session = f"{host}.{worker}.{kind}"
    app.engine.beat([Beat(session=session, info=info.pack())])


def names(page: dict[str, Any]) -> list[str]:
    return [worker["name"] for worker in page["workers"]]


def test_workers_are_listed_in_pages(client: Client, app: Windlass) -> None:
    for host, worker, kind in [("b", 9, ""), ("b", 10, ""), ("a", 0, "http"), ("b", 0, "http")]:
        begin(app, host, worker, kind)
    first = client.get("/v1/workers?limit=1").json()
    assert (names(first), first["after"]) == (["a:http"], "a:http")
    second = client.get("/v1/workers?limit=2&after=a:http").json()
    assert (names(second), second["after"]) == (["b:http", "b:9"], "b:9")
    third = client.get("/v1/workers?limit=2&after=b:9").json()
    assert (names(third), third["after"]) == (["b:10"], None)


def test_a_page_ends_with_the_list(client: Client, app: Windlass) -> None:
    begin(app, "a", 1)
    begin(app, "a", 2)
    assert client.get("/v1/workers?limit=2").json()["after"] is None
    assert client.get("/v1/workers?after=elsewhere").status_code == 422


def test_pages_of_a_scoped_caller_name_no_other_workers(caller: Caller, app: Windlass) -> None:
    begin(app, "a", 1, "", "mail")
    begin(app, "b", 1, "", "other")
    begin(app, "c", 1, "", "mail")
    operator = caller("operator", "mail")
    first = operator.get("/v1/workers?limit=1").json()
    assert (names(first), first["after"]) == (["a:1"], "a:1")
    last = operator.get("/v1/workers?limit=1&after=a:1").json()
    assert (names(last), last["after"]) == (["c:1"], None)


def test_a_scoped_caller_sees_its_queues_of_a_tier(caller: Caller, app: Windlass) -> None:
    begin(app, "a", 1, "", "critical", "mail:5,other:1")
    (own,) = caller("operator", "mail").get("/v1/workers").json()["workers"]
    assert own["queues"] == ["mail"]
    (whole,) = caller("operator").get("/v1/workers").json()["workers"]
    assert whole["queues"] == ["critical", "mail:5,other:1"]


def test_a_worker_with_many_sessions_shows_some(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "MAX_SESSIONS", 2)
    body = {"name": "node-1", "tasks": ["shop.mail.send"], "slots": 3}
    for _ in range(3):
        client.post("/v1/sessions", body)
    (worker,) = client.get("/v1/workers").json()["workers"]
    assert (worker["session_count"], len(worker["sessions"])) == (3, 2)
    assert worker["slots"] == 9
