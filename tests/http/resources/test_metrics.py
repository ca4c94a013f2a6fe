"""`GET /metrics`: the numbers of queues, schedules and the fleet for Prometheus."""

from __future__ import annotations

import time
from typing import Any, cast

import pytest

from tests.app.hand import Hand
from tests.http.client import Client
from tests.http.conftest import Caller
from tests.telemetry.scrape import Scrape
from tests.worker.yard import until
from windlass import Windlass
from windlass.core.introduction import Introduction
from windlass.core.states import State
from windlass.engine.contract import Beat, Engine, ScheduleChange
from windlass.http import metrics_feed
from windlass.telemetry.metric_table import TABLE, Place
from windlass.testing.faults import Faults


def read(client: Client) -> Scrape:
    response = client.get("/metrics")
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return Scrape(response.text)


def beat(app: Windlass, session: str, worker: int, slots: int, *, is_solo: bool = False) -> None:
    known = Introduction(host="web-1", worker=worker, child=1, slots=slots, is_solo=is_solo)
    app.engine.beat([Beat(session=session, info=known.pack())])


def test_only_metrics_of_the_server_are_served(client: Client) -> None:
    types = {line.split()[2] for line in read(client).text.splitlines() if line[:6] == "# TYPE"}
    assert types == {one.name for one in TABLE if one.place is not Place.WORKER}


def test_openmetrics_is_served_if_asked_for(client: Client) -> None:
    response = client.get("/metrics", headers={"accept": "application/openmetrics-text"})
    assert response.headers["content-type"].startswith("application/openmetrics-text")
    assert response.text.endswith("# EOF\n")


def test_the_counts_are_those_of_the_engine(client: Client, app: Windlass, hand: Hand) -> None:
    send = app.tasks["shop.mail.send"]
    send.enqueue_many(send.bind(f"{number}") for number in range(7))
    hand.succeed("sent")
    hand.take()
    app.queue("mail").pause()
    found = read(client)
    counts = {State.READY: 5, State.RUNNING: 1, State.SUCCEEDED: 1}
    for state in State:
        assert found.value("windlass_queue_jobs", "mail", state) == counts.get(state, 0)
    assert found.value("windlass_jobs_enqueued_total", "mail", "shop.mail.send") == 7
    assert found.value("windlass_queue_paused", "mail") == 1
    assert found.value("windlass_queue_drain_seconds", "mail") == float("inf")
    assert found.value("windlass_queue_demand_slots", "mail") >= 1
    assert found.value("windlass_queue_oldest_ready_seconds", "mail") >= 0
    assert found.value("windlass_up") == 1


def test_live_workers_and_their_slots_are_counted(client: Client, app: Windlass) -> None:
    beat(app, "a", 1, 10)
    beat(app, "b", 1, 10)
    beat(app, "c", 2, 4)
    beat(app, "d", 2, 1, is_solo=True)
    app.engine.lose("b", "killed")
    found = read(client)
    assert found.value("windlass_workers") == 2
    assert found.value("windlass_slots", "free") == 14
    assert found.value("windlass_slots", "busy") == 0
    assert found.value("windlass_sessions_lost_total") == 1


def test_a_schedule_lags_from_when_it_was_due(client: Client, app: Windlass) -> None:
    now_ms = app.engine.due_schedules().now_ms
    due = {"late": now_ms - 60_000, "later": now_ms + 60_000, "paused": None}
    app.engine.change_schedules(
        [
            ScheduleChange(name=name, expected="", revision=name, due_ms=due_ms, note=b"", body=b"")
            for name, due_ms in due.items()
        ]
    )
    lags = read(client).samples("windlass_schedule_lag_seconds")
    assert 60 <= lags.pop(("late",)) < 90
    assert lags == {("later",): 0, ("paused",): 0}


def test_scrapers_share_a_snapshot(
    client: Client, app: Windlass, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_feed, "FRESH_S", 60.0)  # longer than this test takes
    calls = []

    class Counting:
        def __getattr__(self, name: str) -> Any:
            calls.append(name)
            return getattr(engine, name)

    engine = app.engine
    with app.replace_engine(cast(Engine, Counting())):
        requests = [client.start("GET", "/metrics") for _ in range(20)]
        assert {client.finish(one).status_code for one in requests} == {200}
        read(client)
    assert calls.count("stats") == 1
    assert calls.count("sessions") == 1
    assert calls.count("history") <= 2


def test_a_later_scrape_reads_the_engine_again(
    client: Client, app: Windlass, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_feed, "FRESH_S", 0.0)  # a second has passed
    send = app.tasks["shop.mail.send"]
    for number in (1, 2):
        send.enqueue("a@example.com")
        assert read(client).value("windlass_queue_jobs", "mail", "ready") == number


@pytest.mark.parametrize("verb", ["stats", "sessions", "history", "due_schedules"])
def test_without_an_answer_of_the_engine_there_are_no_numbers(
    client: Client, app: Windlass, verb: str
) -> None:
    faults = Faults(app.engine)
    with app.replace_engine(faults.engine):
        faults.refuse(verb, times=5)
        found = read(client)
    assert found.names == {"windlass_up"}
    assert found.value("windlass_up") == 0


def test_numbers_that_took_too_long_are_dropped(client: Client, app: Windlass) -> None:
    """They may be of different instants."""
    faults = Faults(app.engine)
    with app.replace_engine(faults.engine):
        faults.delay(f"{metrics_feed.LATE_S + 2}s", "stats")
        began = time.monotonic()
        assert read(client).names == {"windlass_up"}
        assert time.monotonic() - began < metrics_feed.LATE_S + 1.9, "the scraper does not wait"
        assert read(client).names == {"windlass_up"}, "the same call is still under way"
        until(lambda: read(client).value("windlass_up") == 1, "the end of the outage")


def test_an_outage_is_told_to_a_caller_that_cannot_be_identified(
    app: Windlass, caller: Caller, client: Client
) -> None:
    operator = caller("operator")
    app.tasks["shop.mail.send"].enqueue("a@example.com")
    faults = Faults(app.engine)
    with app.replace_engine(faults.engine):
        faults.refuse("get_documents", times=50)
        found = read(operator)
    assert found.names == {"windlass_up"}
    assert found.value("windlass_up") == 0


@pytest.mark.parametrize(
    ("role", "status"),
    [("viewer", 200), ("operator", 200), ("admin", 200), ("producer", 403), ("worker", 403)],
)
def test_viewers_and_operators_may_read_metrics(caller: Caller, role: str, status: int) -> None:
    assert caller(role).get("/metrics").status_code == status


def test_a_closed_api_needs_a_token(caller: Caller, client: Client) -> None:
    caller("operator")
    assert client.get("/metrics").status_code == 401


def test_a_caller_for_some_queues_sees_only_those(app: Windlass, caller: Caller) -> None:
    app.tasks["shop.mail.send"].enqueue("a@example.com")
    app.tasks["shop.report"].enqueue()
    found = read(caller("operator", "mail"))
    assert {queue for queue, _ in found.samples("windlass_queue_jobs")} == {"mail"}
    assert list(found.samples("windlass_jobs_enqueued_total")) == [("mail", "shop.mail.send")]
    assert not found.samples("windlass_workers")
