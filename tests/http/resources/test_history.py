"""The history and the demand of queues through the API."""

from __future__ import annotations

from threading import Event
from typing import Any, cast

import pytest

from tests.app.hand import Hand
from tests.app.past import Past, measure
from tests.http.client import Client
from tests.http.conftest import Caller
from tests.worker.faulty import Faulty
from windlass import EngineUnavailable, Windlass
from windlass.core.durations import instant
from windlass.core.history import MINUTE_MS
from windlass.engine.contract import Engine, Unroutable
from windlass.http.resources import history as history_resource
from windlass.http.resources import scale as scale_resource
from windlass.queue_loads import read_loads

HISTORY, SCALE = "/v1/history", "/v1/scale"
SEND, CHARGE = "shop.mail.send", "shop.charge"


@pytest.fixture
def past(app: Windlass) -> Past:
    return Past(app)


def enqueue(app: Windlass, number: int, queue: str = "mail") -> None:
    task = app.tasks[SEND].using(queue=queue)
    app.enqueue_many(task.bind("ann") for _ in range(number))


def live(past: Past) -> None:
    """Three minutes with 60 jobs of each queue, and the runs of 30."""
    for minute in range(3):
        past.go_to(minute)
        past.tend()
        enqueue(past.app, 60)
        enqueue(past.app, 60, "payments")
        runs = measure("mail", SEND, succeeded=30), measure("payments", CHARGE, dead=30)
        past.record_all(runs)
    past.go_to(3)
    past.tend()
    past.go_to(3.5)


def read_all(client: Client, **query: Any) -> list[dict[str, Any]]:
    """All pages."""
    pages = [client.get(HISTORY, params=query).json()]
    while pages[-1]["cursor"] is not None:
        pages.append(client.get(HISTORY, params={**query, "cursor": pages[-1]["cursor"]}).json())
    return pages


def without_rates(row: dict[str, Any]) -> dict[str, Any]:
    """Rates of the current step change while time passes."""
    return {name: value for name, value in row.items() if not name.endswith("_rate")}


# ---------------------------------------------------------------------------------------- history


def test_the_history_is_that_of_the_app(client: Client, app: Windlass, past: Past) -> None:
    live(past)
    answer = client.get(HISTORY, params={"since_s": 600}).json()
    history = app.history("10m")
    assert answer["cursor"] is None
    assert [(row["at"], row["queue"], row["task"], row["enqueued"]) for row in answer["rows"]] == [
        (row.at.isoformat().replace("+00:00", "Z"), row.queue, row.task, row.enqueued)
        for row in history.rows
    ]
    assert len(answer["depths"]) == len(history.depths) > 0
    row = next(row for row in answer["rows"] if row["outcomes"]["dead"])
    assert (row["failure_rate"], row["mean_run_s"]) == (1.0, 2.0)
    assert set(row) == {
        *("at", "queue", "task", "enqueued", "outcomes", "in_rate", "out_rate", "failure_rate"),
        *("mean_run_s", "wait_p50_s", "wait_p99_s", "run_p50_s", "run_p99_s"),
    }


@pytest.mark.parametrize("step", ["minute", "hour"])
@pytest.mark.parametrize("limit", [1, 5])
def test_pages_have_everything_once(client: Client, past: Past, step: str, limit: int) -> None:
    live(past)
    whole = client.get(HISTORY, params={"since_s": 600, "step": step}).json()
    pages = read_all(client, since_s=600, step=step, limit=limit)
    for part in ("rows", "depths"):
        found = [without_rates(row) for page in pages for row in page[part]]
        assert found == list(map(without_rates, whole[part]))
    assert step == "hour" or len(pages) > 1


def test_a_page_reads_a_bounded_part(
    client: Client, past: Past, monkeypatch: pytest.MonkeyPatch
) -> None:
    live(past)
    monkeypatch.setattr(history_resource, "MAX_READ", 3)
    pages = read_all(client, since_s=600, task=CHARGE)
    assert len(pages) > 2
    assert sum(row["outcomes"]["dead"] for page in pages for row in page["rows"]) == 90


def test_a_history_is_filtered(client: Client, past: Past) -> None:
    live(past)
    mail = client.get(HISTORY, params={"since_s": 600, "queue": "mail"}).json()
    assert {row["queue"] for row in (*mail["rows"], *mail["depths"])} == {"mail"}
    charged = client.get(HISTORY, params={"since_s": 600, "task": CHARGE}).json()
    assert {row["task"] for row in charged["rows"]} == {CHARGE}
    recent = client.get(HISTORY, params={"since_s": 60}).json()
    begin = instant(past.first_ms + 2 * MINUTE_MS).isoformat().replace("+00:00", "Z")
    assert min(row["at"] for row in recent["rows"]) == begin


def test_a_scoped_caller_sees_its_queues(caller: Caller, past: Past) -> None:
    live(past)
    scoped = caller("operator", "mail")
    answer = scoped.get(HISTORY, params={"since_s": 600}).json()
    assert {row["queue"] for row in (*answer["rows"], *answer["depths"])} == {"mail"}
    assert scoped.get(HISTORY, params={"queue": "payments"}).status_code == 403


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"since_s": 90_000}, "query.since_s"),
        ({"since_s": -1}, "query.since_s"),
        ({"since_s": 10_000_000, "step": "hour"}, "query.since_s"),
        ({"step": "second"}, "query.step"),
        ({"cursor": "x"}, "query.cursor"),
        ({"limit": 0}, "query.limit"),
        ({"queues": "mail"}, "query.queues"),
    ],
)
def test_a_wrong_query_is_refused(client: Client, query: dict[str, Any], field: str) -> None:
    answer = client.get(HISTORY, params=query)
    assert answer.status_code == 422
    assert [one["path"] for one in answer.json()["fields"]] == [field]


def test_a_cursor_of_another_time_is_harmless(client: Client, past: Past) -> None:
    live(past)
    late = client.get(HISTORY, params={"since_s": 600, "cursor": "999999999999999"}).json()
    assert (late["rows"], late["cursor"]) == ([], None)
    early = client.get(HISTORY, params={"since_s": 600, "cursor": "1"}).json()
    whole = client.get(HISTORY, params={"since_s": 600}).json()
    assert list(map(without_rates, early["rows"])) == list(map(without_rates, whole["rows"]))


# ------------------------------------------------------------------------------------------ scale


def test_the_scale_is_the_load(client: Client, app: Windlass, past: Past, hand: Hand) -> None:
    live(past)
    hand.take()
    answer = client.get(SCALE, params={"queue": "mail"}).json()
    (load,) = read_loads(app.engine, ["mail"])
    assert (answer["ready"], answer["running"]) == (load.ready, load.running) == (179, 1)
    assert answer["demand_slots"] == load.demand_slots > 0
    assert answer["oldest_s"] == pytest.approx(load.oldest_s, abs=5)
    assert answer["drain_s"] is None, "more jobs enter than leave"
    (queue,) = answer["queues"]
    assert queue["queue"] == "mail"
    assert queue["mean_run_s"] == 2.0
    assert queue["in_rate"] == pytest.approx(load.in_rate, abs=0.001)


def test_several_queues_are_added_up(client: Client, app: Windlass, past: Past) -> None:
    live(past)
    enqueue(app, 1, "slow")
    both = client.get(f"{SCALE}?queue=mail&queue=slow&queue=mail").json()
    mail, slow = (client.get(SCALE, params={"queue": name}).json() for name in ("mail", "slow"))
    assert [one["queue"] for one in both["queues"]] == ["mail", "slow"]
    assert both["ready"] == mail["ready"] + slow["ready"] == 181
    assert both["demand_slots"] == mail["demand_slots"] + slow["demand_slots"]
    assert both["oldest_s"] == pytest.approx(mail["oldest_s"], abs=5)
    assert slow["oldest_s"] < 60 < mail["oldest_s"]
    all_queues = client.get(SCALE).json()
    assert [one["queue"] for one in all_queues["queues"]] == ["mail", "payments", "slow"]


def test_a_queue_of_held_jobs_only_never_drains(client: Client, app: Windlass, hand: Hand) -> None:
    enqueue(app, 1)
    assert not client.get(SCALE, params={"queue": "mail"}).json()["queues"][0]["held"]
    claim = hand.take()
    app.engine.finish([Unroutable(id=claim.id, token=claim.token)])
    answer = client.get(SCALE, params={"queue": "mail"}).json()
    (queue,) = answer["queues"]
    assert (queue["held"], queue["drain_s"], answer["drain_s"]) == (True, None, None)
    page = client.get("/status").text
    assert "<td>held</td>" in page
    assert "<td>never</td>" not in page


def test_a_shorter_drain_target_demands_more(client: Client, past: Past) -> None:
    live(past)
    demands = [
        client.get(SCALE, params={"queue": "mail", "drain_target_s": target}).json()["demand_slots"]
        for target in (10, 60, 3600)
    ]
    assert demands == sorted(demands, reverse=True)
    assert len(set(demands)) == 3
    assert client.get(SCALE, params={"drain_target_s": 0}).status_code == 422


def test_too_many_queues_are_refused(client: Client) -> None:
    answer = client.get(SCALE, params=[("queue", f"q{number}") for number in range(101)])
    assert answer.status_code == 422
    assert "at most 100 queues, found 101" in answer.json()["detail"]


def test_a_queue_without_jobs_demands_nothing(client: Client) -> None:
    answer = client.get(SCALE, params={"queue": "nope"}).json()
    queues = answer.pop("queues")
    assert answer == {
        "ready": 0, "running": 0, "oldest_s": 0.0, "drain_s": 0.0, "demand_slots": 0
    }  # fmt: skip
    assert [one["queue"] for one in queues] == ["nope"]


def test_a_scoped_caller_scales_its_queues(caller: Caller, past: Past) -> None:
    live(past)
    scoped = caller("operator", "mail")
    answer = scoped.get(SCALE).json()
    assert [one["queue"] for one in answer["queues"]] == ["mail"]
    assert answer["ready"] == 180
    assert scoped.get(f"{SCALE}?queue=mail&queue=payments").status_code == 403


@pytest.mark.parametrize("verb", ["stats", "queues", "history", "due_schedules"])
def test_without_the_engine_there_is_a_problem_and_no_number(
    client: Client, app: Windlass, verb: str
) -> None:
    faulty = Faulty(app.engine)

    def refuse(_real: Any, _arguments: Any) -> None:
        raise EngineUnavailable("no answer")

    with app.replace_engine(cast(Engine, faulty)):
        faulty.faults[verb] = refuse
        answer = client.get(SCALE, params={"queue": "mail"})
    assert answer.status_code == 503
    assert "idempotency" not in answer.json()["detail"], "a read has no effect"
    assert answer.json()["type"] == "urn:windlass:problem:engine-away"
    assert "demand_slots" not in answer.json()


def test_a_frozen_engine_is_away_in_time(
    client: Client, app: Windlass, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scale_resource, "ANSWER_S", 0.1)
    faulty, thawed = Faulty(app.engine), Event()

    def freeze(real: Any, _arguments: Any) -> Any:
        thawed.wait(20)
        return real()

    with app.replace_engine(cast(Engine, faulty)):
        faulty.faults["stats"] = freeze
        answer = client.get(SCALE)
        assert not thawed.is_set()
        thawed.set()
    assert answer.status_code == 503
    assert answer.json()["type"] == "urn:windlass:problem:engine-away"
