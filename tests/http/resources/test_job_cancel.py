"""Cancel many jobs through the API: by id, and by filter."""

from __future__ import annotations

from typing import Any

import pytest

from tests.app.hand import Hand
from tests.http.client import Client
from tests.http.conftest import Caller
from tests.worker.yard import until
from windlass import State, Windlass
from windlass.core.ids import new_id


def enqueue(app: Windlass, number: int, queue: str = "mail", **options: Any) -> list[str]:
    task = app.tasks["shop.mail.send"].using(queue=queue, **options)
    return [task.enqueue("ann", password="hunter2").id for _ in range(number)]


def states(app: Windlass, ids: list[str]) -> set[State]:
    return {one.state for one in app.jobs.get_many(ids) if one is not None}


def test_each_id_has_a_verdict(client: Client, app: Windlass, hand: Hand) -> None:
    (ended,) = enqueue(app, 1)
    hand.bury(ValueError("no such user"))
    waiting, unknown = enqueue(app, 2), new_id(1)
    answer = client.post("/v1/jobs/cancel", json={"ids": [*waiting, ended, unknown, waiting[0]]})
    assert answer.status_code == 200
    expected = {waiting[0]: "cancelled", waiting[1]: "cancelled", ended: "final"}
    assert answer.json() == {"jobs": {**expected, unknown: "unknown"}}
    assert states(app, waiting) == {State.CANCELLED}


def test_a_filter_starts_an_operation_for_what_was_counted(client: Client, app: Windlass) -> None:
    chosen = enqueue(app, 3, run_after="1h")
    others = [*enqueue(app, 1), *enqueue(app, 1, queue="web", run_after="1h")]
    wanted = {"queue": "mail", "state": "scheduled"}
    counted = client.get("/v1/jobs/count?queue=mail&state=scheduled").json()
    assert counted == {"count": 3, "is_exact": True}
    answer = client.post("/v1/jobs/cancel", json={"filter": wanted})
    assert answer.status_code == 202
    path = f"/v1/operations/{answer.json()['id']}"
    until(lambda: client.get(path).json()["state"] == "finished", "the end of the operation")
    assert client.get(path).json()["done"] == 3
    assert states(app, chosen) == {State.CANCELLED}
    assert State.CANCELLED not in states(app, others)


def test_a_count_without_a_filter_is_that_of_all_open_jobs(client: Client, app: Windlass) -> None:
    enqueue(app, 2)
    enqueue(app, 1, queue="web", run_after="1h")
    assert client.get("/v1/jobs/count").json()["count"] == 3
    assert client.get("/v1/jobs/count?until=2020-01-01T00:00:00Z").json()["count"] == 0


@pytest.mark.parametrize(
    ("body", "path", "text"),
    [
        ({}, "body", "ids or a filter"),
        ({"ids": ["0" * 26], "filter": {}}, "body", "ids or a filter"),
        ({"ids": ["0" * 26], "rate": 3}, "body.rate", "rate with a filter only"),
        ({"filter": {}}, "body.filter", "everything for all open jobs"),
        ({"filter": {"everything": True, "task": "x"}}, "body.filter", "everything for all"),
        ({"filter": {"state": "dead"}}, "body.filter.state", "found dead"),
    ],
)
def test_unclear_requests_are_refused(
    client: Client, body: dict[str, Any], path: str, text: str
) -> None:
    answer = client.post("/v1/jobs/cancel", json=body)
    assert answer.status_code == 422
    (field,) = answer.json()["fields"]
    assert field["path"] == path
    assert text in field["detail"]


def test_a_caller_for_some_queues_cancels_only_their_jobs(app: Windlass, caller: Caller) -> None:
    mine, foreign = enqueue(app, 1), enqueue(app, 1, queue="web")
    mail = caller("operator", "mail")
    answer = mail.post("/v1/jobs/cancel", json={"ids": [*mine, *foreign]})
    assert answer.json()["jobs"] == {mine[0]: "cancelled", foreign[0]: "unknown"}
    assert states(app, foreign) == {State.READY}
    assert mail.post("/v1/jobs/cancel", json={"filter": {"queue": "web"}}).status_code == 403
    assert mail.get("/v1/jobs/count").json()["count"] == 0
    assert caller("viewer").post("/v1/jobs/cancel", json={"ids": mine}).status_code == 403
