"""Dead letters through the API: groups, counts, retry and discard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.app.hand import Hand
from tests.http.client import Client
from tests.http.conftest import Caller
from tests.worker.yard import until
from windlass import State, Windlass
from windlass.core.ids import new_id, new_session

Kill = Callable[..., list[str]]


@pytest.fixture
def kill(app: Windlass, hand: Hand) -> Kill:
    """Make dead jobs."""

    def kill(number: int, queue: str = "mail", message: str = "no such user") -> list[str]:
        ids = []
        for _ in range(number):
            task = app.tasks["shop.mail.send"].using(queue=queue)
            ids.append(task.enqueue("ann", password="hunter2").id)
            hand.bury(ValueError(message))
        return ids

    return kill


def states(app: Windlass, ids: list[str]) -> list[str | None]:
    return [None if one is None else one.state for one in app.jobs.get_many(ids)]


def finish(client: Client, operation: dict[str, Any]) -> dict[str, Any]:
    """Wait for the end of an operation."""
    path = f"/v1/operations/{operation['id']}"
    until(lambda: client.get(path).json()["state"] != "running", "the end of the operation")
    ended: dict[str, Any] = client.get(path).json()
    return ended


# ---------------------------------------------------------------------------------------- looking


def test_dead_jobs_are_grouped(client: Client, kill: Kill) -> None:
    kill(1, message="other")
    ids = kill(3)
    answer = client.get("/v1/dead/groups")
    assert "hunter2" not in answer.text
    told = answer.json()
    assert told["is_exact"] is True
    large, small = told["groups"]
    assert (large["count"], small["count"]) == (3, 1)
    assert large["task"] == "shop.mail.send"
    assert large["example"] in ids  # of those that died in the same millisecond, any one
    assert large["error"]["message"] == "no such user"
    assert client.get("/v1/dead/groups?task=shop.report").json()["groups"] == []


def test_groups_name_their_releases(client: Client, app: Windlass, hand: Hand, kill: Kill) -> None:
    hand.session = new_session("host", 1, "v1")
    kill(1)
    app.engine.clock_offset_ms += 1  # releases are in the order of their first deaths
    hand.session = new_session("host", 1, "v2")
    kill(2)
    kill(1, message="other")
    told = client.get("/v1/dead/groups?new_since=v1").json()
    large, small = told["groups"]
    assert [(one["release"], one["count"]) for one in large["releases"]] == [("v2", 2), ("v1", 1)]
    assert (large["is_new"], small["is_new"]) == (False, True)
    assert large["queues"] == {"mail": 3}
    assert [one["release"] for one in told["releases"]] == ["v2", "v1"]
    fingerprint = large["fingerprint"]
    (own,) = client.get(f"/v1/dead/groups?fingerprint={fingerprint}&release=v1").json()["groups"]
    assert (own["count"], own["is_new"]) == (1, None)
    path = f"/v1/jobs?state=dead&fingerprint={fingerprint}"
    assert len(client.get(path).json()["jobs"]) == 3
    assert len(client.get(f"{path}&release=v2&limit=1").json()["jobs"]) == 1
    counted = client.get(f"/v1/dead/count?fingerprint={fingerprint}&release=v2").json()
    assert counted == {"count": 2, "is_exact": True}


def test_groups_new_since_an_unknown_release_are_refused(
    client: Client, app: Windlass, hand: Hand, kill: Kill
) -> None:
    hand.session = new_session("host", 1, "v42")
    kill(1)
    answer = client.get("/v1/dead/groups?new_since=v41")
    assert answer.status_code == 422
    (field,) = answer.json()["fields"]
    assert field["path"] == "query.new_since"
    assert field["detail"] == (
        "There is no release v41. Did you mean v42? Known releases, the latest first: v42"
    )


def test_dead_jobs_are_counted(client: Client, kill: Kill) -> None:
    kill(2)
    kill(1, "other", message="another")
    fingerprint = client.get("/v1/dead/groups").json()["groups"][0]["fingerprint"]

    def counted(query: str = "") -> object:
        return client.get(f"/v1/dead/count{query}").json()

    assert counted() == {"count": 3, "is_exact": True}
    assert counted("?queue=other") == {"count": 1, "is_exact": True}
    assert counted("?task=shop.mail.send") == {"count": 3, "is_exact": True}
    assert counted("?task=shop.report") == {"count": 0, "is_exact": True}
    assert counted(f"?fingerprint={fingerprint}") == {"count": 2, "is_exact": True}
    assert counted("?older_than_s=3600") == {"count": 0, "is_exact": True}
    assert counted("?newer_than_s=3600") == {"count": 3, "is_exact": True}
    assert client.get("/v1/dead/count?newer_than_s=-1").status_code == 422


# ------------------------------------------------------------------------------------------ by id


def test_jobs_are_retried_by_id(client: Client, app: Windlass, kill: Kill) -> None:
    dead = kill(2)
    ready, unknown = app.tasks["shop.report"].enqueue().id, new_id(0)
    answer = client.post("/v1/dead/retry", {"ids": [*dead, ready, unknown]})
    assert answer.status_code == 200
    assert answer.json()["jobs"] == {
        dead[0]: "done",
        dead[1]: "done",
        ready: "refused",
        unknown: "unknown",
    }
    assert states(app, dead) == [State.READY, State.READY]
    again = client.post("/v1/dead/retry", {"ids": dead}).json()["jobs"]
    assert set(again.values()) == {"refused"}


def test_a_cancelled_job_is_no_dead_letter(client: Client, app: Windlass) -> None:
    id = app.tasks["shop.report"].enqueue().id
    app.job(id).cancel()
    for verb in ("retry", "discard"):
        answer = client.post(f"/v1/dead/{verb}", {"ids": [id]})
        assert answer.json()["jobs"] == {id: "refused"}


def test_jobs_are_discarded_by_id(
    client: Client, app: Windlass, kill: Kill, caplog: pytest.LogCaptureFixture
) -> None:
    dead = kill(60)
    answer = client.post("/v1/dead/discard", {"ids": dead})
    assert set(answer.json()["jobs"].values()) == {"done"}
    assert states(app, dead) == [None] * 60
    lines = [one.getMessage() for one in caplog.records if one.name == "windlass.dead_letters"]
    assert len(lines) == 60
    assert "hunter2" not in "".join(lines)


def test_a_scoped_operator_changes_jobs_of_its_queues(
    caller: Caller, app: Windlass, kill: Kill
) -> None:
    mine, foreign = kill(1), kill(1, "other")
    operator = caller("operator", "mail")
    for verb in ("discard", "retry"):
        answer = operator.post(f"/v1/dead/{verb}", {"ids": foreign})
        assert answer.json()["jobs"] == {foreign[0]: "unknown"}
    assert operator.post("/v1/dead/retry", {"ids": mine}).json()["jobs"] == {mine[0]: "done"}
    assert states(app, foreign) == [State.DEAD]
    (group,) = operator.get("/v1/dead/groups").json()["groups"] or [None]
    assert group is None or group["example"] != foreign[0]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"ids": []},
        {"ids": ["x"] * 501},
        {"ids": ["a b"]},
        {"ids": ["x"], "filter": {"task": "t"}},
        {"ids": ["x"], "rate": 5},
        {"filter": {}},
        {"filter": {"task": "t", "everything": True}},
        {"filter": {"color": "red"}},
        {"filter": {"task": "t"}, "rate": 0},
        {"filter": {"queue": "a b"}},
        {"filter": {"fingerprint": "xyz"}},
    ],
)
@pytest.mark.parametrize("verb", ["retry", "discard"])
def test_a_wrong_choice_is_refused(
    client: Client, app: Windlass, kill: Kill, verb: str, body: dict[str, Any]
) -> None:
    dead = kill(1)
    assert client.post(f"/v1/dead/{verb}", body).status_code == 422
    assert states(app, dead) == [State.DEAD]
    assert app.operations.list() == []


# -------------------------------------------------------------------------------------- by filter


def test_all_matching_jobs_are_retried(client: Client, app: Windlass, kill: Kill) -> None:
    mine, other = kill(30), kill(2, "other")
    answer = client.post("/v1/dead/retry", {"filter": {"queue": "mail"}, "rate": 1000})
    assert answer.status_code == 202
    operation = answer.json()
    assert (operation["action"], operation["state"]) == ("dead.retry", "running")
    assert (operation["actor"], operation["rate"]) == ("anonymous", 1000.0)
    ended = finish(client, operation)
    assert (ended["state"], ended["done"], ended["error"]) == ("finished", 30, None)
    assert set(states(app, mine)) == {State.READY}
    assert set(states(app, other)) == {State.DEAD}


def test_all_dead_jobs_are_discarded(client: Client, app: Windlass, kill: Kill) -> None:
    dead = kill(3)
    answer = client.post("/v1/dead/discard", {"filter": {"everything": True}})
    assert finish(client, answer.json())["done"] == 3
    assert states(app, dead) == [None] * 3


def test_a_scoped_filter_leaves_other_queues_alone(
    caller: Caller, app: Windlass, kill: Kill
) -> None:
    mine, foreign = kill(3), kill(3, "other")
    operator = caller("operator", "mail")
    refused = operator.post("/v1/dead/discard", {"filter": {"queue": "other"}})
    assert refused.status_code == 403
    assert operator.get("/v1/dead/count?queue=other").status_code == 403
    assert operator.get("/v1/dead/count").json()["count"] == 3
    answer = operator.post("/v1/dead/discard", {"filter": {"everything": True}})
    assert finish(operator, answer.json())["done"] == 3
    assert states(app, mine) == [None] * 3
    assert set(states(app, foreign)) == {State.DEAD}


def test_producers_change_no_dead_jobs(caller: Caller, app: Windlass, kill: Kill) -> None:
    dead = kill(1)
    for path in ("/v1/dead/retry", "/v1/dead/discard"):
        assert caller("producer").post(path, {"ids": dead}).status_code == 403
    assert caller("producer").get("/v1/dead/groups").status_code == 403
    assert states(app, dead) == [State.DEAD]
