"""List tasks with their schemas; pause and resume them."""

from __future__ import annotations

from typing import Any

from tests.app.hand import Hand
from tests.http.client import Client
from tests.http.conftest import Caller
from windlass import Windlass

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"width": {"type": "integer"}},
    "required": ["width"],
    "additionalProperties": False,
}


def named(client: Client) -> dict[str, dict[str, Any]]:
    return {task["name"]: task for task in client.get("/v1/tasks").json()["tasks"]}


def test_tasks_have_schemas(client: Client, app: Windlass) -> None:
    app.task_named("pictures.resize", schema=SCHEMA, queue="pictures")
    tasks = named(client)
    assert list(tasks) == sorted(tasks)
    assert tasks["pictures.resize"]["is_remote"] is True
    assert tasks["pictures.resize"]["schema"]["parameters"]["required"] == ["width"]
    mail = tasks["shop.mail.send"]
    assert (mail["queue"], mail["is_remote"], mail["paused"]) == ("mail", False, False)
    parameters = mail["schema"]["parameters"]
    assert parameters["properties"]["to"] == {"type": "string"}
    assert parameters["required"] == ["to"]


def test_a_task_is_paused_and_resumed(client: Client, app: Windlass, hand: Hand) -> None:
    app.tasks["shop.mail.send"].enqueue("ann")
    answer = client.post("/v1/tasks/shop.mail.send/pause")
    assert answer.json() == {"name": "shop.mail.send", "paused": True}
    assert named(client)["shop.mail.send"]["paused"] is True
    assert hand.find() == ()
    assert client.post("/v1/tasks/shop.mail.send/resume").json()["paused"] is False
    assert named(client)["shop.mail.send"]["paused"] is False
    assert len(hand.find()) == 1


def test_a_task_without_code_is_known_by_its_jobs(client: Client, app: Windlass) -> None:
    assert client.post("/v1/tasks/elsewhere.work/pause").status_code == 404
    app.task_named("elsewhere.work").enqueue()
    assert client.post("/v1/tasks/elsewhere.work/pause").status_code == 200
    assert app.engine.paused_tasks() == ["elsewhere.work"]
    assert client.post("/v1/tasks/elsewhere.work/resume").status_code == 200


def test_an_unknown_task_is_not_found(client: Client) -> None:
    answer = client.post("/v1/tasks/shop.mail.sent/pause")
    assert answer.status_code == 404
    assert "Did you mean shop.mail.send?" in answer.json()["detail"]


def test_scoped_callers_see_tasks_of_their_queues(caller: Caller) -> None:
    assert set(named(caller("producer", "mail"))) == {"shop.mail.send"}
    operator = caller("operator", "mail")
    assert operator.post("/v1/tasks/shop.mail.send/pause").status_code == 403
    assert operator.post("/v1/tasks/shop.mail.send/resume").status_code == 403


def test_producers_do_not_pause_tasks(caller: Caller, app: Windlass) -> None:
    assert caller("producer").post("/v1/tasks/shop.mail.send/pause").status_code == 403
    assert app.engine.paused_tasks() == []
