"""`GET /v1/alerts`, and the evaluation of alerts by the server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.app.hand import Hand
from tests.http.client import Client
from tests.http.conftest import Caller
from tests.http.shop import add_tasks
from tests.worker.yard import until
from windlass import Alert, Windlass
from windlass.alerts import watch


@pytest.fixture
def app(engine_url: str) -> Iterator[Windlass]:
    rules = [Alert.oldest_age("1h", queue="mail"), Alert.overdue_schedule()]
    with Windlass(engine_url, alerts=rules, dead_alert=1) as app:
        add_tasks(app)
        yield app


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "LOOK_S", 0.02)
    monkeypatch.setattr(watch, "DELIVERY_S", 0.02)


def states(client: Client) -> dict[str, str]:
    found = client.get("/v1/alerts").json()["alerts"]
    return {one["rule"]: one["state"] for one in found}


def test_the_server_evaluates_and_lists_alerts(client: Client, app: Windlass, hand: Hand) -> None:
    seen: list[str] = []
    app.on_alert(lambda event: seen.append(event.state))
    until(lambda: set(states(client).values()) == {"ok"}, "the first look")
    for number in range(2):
        app.task_named("unknown").enqueue(number)
        hand.bury(ValueError("no"))
    until(lambda: states(client)["dead_letters > 1"] == "firing", "the alert")
    first = client.get("/v1/alerts").json()["alerts"][0]
    assert (first["kind"], first["value"], first["threshold"]) == ("dead_letters", 2, 1)
    assert first["holder"]
    assert first["since"] <= first["checked_at"]
    app.dead.discard(*[letter.id for letter in app.dead.list()])
    until(lambda: states(client)["dead_letters > 1"] == "ok", "the end of the alert")
    until(lambda: seen == ["firing", "cleared"], "the hook")


def test_a_caller_for_some_queues_sees_their_alerts(client: Client, caller: Caller) -> None:
    until(lambda: set(states(client).values()) == {"ok"}, "the first look")
    operator = caller("operator")
    assert len(states(operator)) == 4
    assert states(caller("operator", "mail")) == {"oldest_age(mail) > 1h": "ok"}
    assert states(caller("operator", "web")) == {}
    assert caller("producer").get("/v1/alerts").status_code == 403
