"""Queues, tasks, counts, schedules and workers through the API."""

from __future__ import annotations

import pytest

from tests.app.hand import Hand
from tests.http.client import Client
from tests.http.conftest import Caller
from tests.worker.yard import until
from windlass import Windlass


def send(app: Windlass, queue: str = "mail") -> str:
    return app.tasks["shop.mail.send"].using(queue=queue).enqueue("ann").id


def test_queues_are_listed(client: Client, app: Windlass, hand: Hand) -> None:
    send(app)
    send(app)
    app.queue("empty").set(ageing=60, max_waiting=10)
    hand.take()
    empty, mail = client.get("/v1/queues").json()["queues"]
    assert empty == {
        "name": "empty",
        "paused": False,
        "ageing_s": 60.0,
        "max_waiting": 10,
        "jobs": {},
        "oldest_ready_s": None,
    }
    assert mail["jobs"] == {"ready": 1, "running": 1}
    assert mail["oldest_ready_s"] >= 0
    assert client.get("/v1/queues/mail").json()["jobs"] == mail["jobs"]


def test_a_queue_is_paused_and_resumed(client: Client, app: Windlass, hand: Hand) -> None:
    send(app)
    assert client.post("/v1/queues/mail/pause").json()["paused"] is True
    assert hand.find() == ()
    assert client.post("/v1/queues/mail/pause").json()["paused"] is True  # repeated
    assert client.post("/v1/queues/mail/resume").json()["paused"] is False
    assert len(hand.find()) == 1


def test_a_queue_of_a_task_can_be_paused_before_its_first_job(client: Client) -> None:
    assert client.post("/v1/queues/payments/pause").json()["paused"] is True


@pytest.mark.parametrize("verb", ["pause", "resume", "purge"])
def test_an_unknown_queue_is_not_found(client: Client, app: Windlass, verb: str) -> None:
    send(app)
    answer = client.post(f"/v1/queues/mails/{verb}")
    assert answer.status_code == 404
    assert "Did you mean mail?" in answer.json()["detail"]
    assert client.get("/v1/queues/mails").status_code == 404
    assert client.post(f"/v1/queues/a%20b/{verb}").status_code == 422
    assert [one.queue for one in app.engine.queues()] == []


def test_only_queues_of_the_caller_are_suggested(caller: Caller, app: Windlass) -> None:
    app.queue("mail-2").set(max_waiting=10)
    answer = caller("operator", "mail", "mail-").get("/v1/queues/mail-")
    assert answer.status_code == 404
    assert "Did you mean mail?" in answer.json()["detail"]


def test_a_queue_is_purged_by_an_operation(client: Client, app: Windlass) -> None:
    kept = send(app, "other")
    for _ in range(30):
        send(app)
    answer = client.post("/v1/queues/mail/purge")
    assert answer.status_code == 202
    operation = answer.json()
    assert (operation["action"], operation["filter"]) == ("queue.purge", {"queue": "mail"})
    path = f"/v1/operations/{operation['id']}"
    until(lambda: client.get(path).json()["state"] == "finished", "the end of the purge")
    assert client.get(path).json()["done"] == 30
    assert app.stats().queues["other"].jobs
    assert app.job(kept).info().state == "ready"


def test_a_scoped_operator_sees_and_changes_its_queues_only(caller: Caller, app: Windlass) -> None:
    send(app)
    send(app, "other")
    operator = caller("operator", "mail*")
    assert [one["name"] for one in operator.get("/v1/queues").json()["queues"]] == ["mail"]
    assert operator.get("/v1/queues/other").status_code == 403
    for verb in ("pause", "resume", "purge"):
        assert operator.post(f"/v1/queues/other/{verb}").status_code == 403
    assert operator.post("/v1/queues/mail/pause").status_code == 200
    assert [one.queue for one in app.engine.queues()] == ["mail"]


@pytest.mark.parametrize("role", ["producer", "worker"])
def test_only_operators_manage_queues(caller: Caller, app: Windlass, role: str) -> None:
    one = caller(role)
    assert one.get("/v1/queues").status_code == 403
    assert one.post("/v1/queues/mail/purge").status_code == 403
    assert one.get("/v1/stats").status_code == 403
    assert one.get("/v1/workers").status_code == 403


# ------------------------------------------------------------------------------------------ stats


def test_stats_count_jobs(client: Client, app: Windlass, hand: Hand) -> None:
    send(app)
    send(app, "other")
    hand.bury(ValueError("no"))
    stats = client.get("/v1/stats").json()
    assert stats["jobs"] == {"ready": 1, "dead": 1}
    assert set(stats["queues"]) == {"mail", "other"}
    assert stats["totals"]["enqueued"] == 2


def test_scoped_stats_have_no_other_queues(caller: Caller, app: Windlass) -> None:
    send(app)
    send(app, "other")
    stats = caller("operator", "mail").get("/v1/stats").json()
    assert set(stats["queues"]) == {"mail"}
    assert stats["jobs"] == {"ready": 1}
    assert stats["totals"] is None


def test_labels_are_part_of_their_queue(client: Client, app: Windlass) -> None:
    app.tasks["shop.mail.send"].using(requires="gpu").enqueue("ann")
    send(app)
    assert client.get("/v1/stats").json()["queues"]["mail"]["jobs"] == {"ready": 2}
    assert client.get("/v1/queues/mail").json()["jobs"] == {"ready": 2}
