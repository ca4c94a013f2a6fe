"""Rules are evaluated by one process at a time: each alert fires once, also after a change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from tests.alerts.helpers import bury
from tests.worker.faulty import Faulty, lose_reply, lose_request, once
from windlass import Alert, AlertEvent, EngineUnavailable, Windlass
from windlass.alerts import watch
from windlass.alerts.delivery import AlertDelivery
from windlass.alerts.watch import ABANDONED_S, CLEAN_S, DELIVERY_S, KIND, LOOK_S, TAKEOVER_S
from windlass.core.alerts.states import AlertRecord
from windlass.engine.contract import DocumentChange, Engine

DEAD = Alert.dead_letters(3)


class Clock:
    """A monotonic clock that tests move."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(watch, "monotonic", clock)
    return clock


class Process:
    """One process that evaluates rules."""

    def __init__(self, engine: Engine, *rules: Alert) -> None:
        self.events: list[AlertEvent] = []
        self.delivery = AlertDelivery(self.events.append, lambda event, why: None)
        self.watch = watch.AlertWatch(engine, rules or (DEAD,), self.delivery)
        self.look = self.watch.look

    def states(self) -> list[str]:
        return [event.state for event in self.events]


def record_of(app: Windlass, rule: Alert = DEAD) -> AlertRecord:
    [document] = app.engine.get_documents(KIND, [rule.key])
    assert document is not None
    record = AlertRecord.unpack(document.body)
    assert record is not None
    return record


def test_an_incident_fires_once_and_clears_once(app: Windlass, clock: Clock) -> None:
    process = Process(app.engine)
    ids = bury(app, 3)
    assert process.look() == LOOK_S
    assert process.states() == []
    ids += bury(app, 1)
    assert process.look() == DELIVERY_S
    assert process.look() == LOOK_S
    assert process.states() == ["firing"]
    assert record_of(app).untold == ()
    app.dead.discard(*ids[:1])
    process.look()  # three is not well below three
    assert process.states() == ["firing"]
    app.dead.discard(*ids[1:])
    process.look()
    process.look()
    assert process.states() == ["firing", "cleared"]
    bury(app, 4)
    process.look()
    assert process.states() == ["firing", "cleared", "firing"]
    assert [event.value for event in process.events] == [4, 0, 4]


def test_growth_is_stored_with_the_rule(app: Windlass, clock: Clock) -> None:
    """So another process continues to count where the first one died."""
    rule = Alert.dead_growth(4)
    bury(app, 9)
    first, second = Process(app.engine, rule), Process(app.engine, rule)
    first.look()
    app.dead.discard(*bury(app, 4))
    second.look()
    clock.now_s += TAKEOVER_S
    second.look()
    assert second.states() == []
    app.dead.discard(*bury(app, 1))
    second.look()
    assert [(event.state, event.value) for event in second.events] == [("firing", 5)]
    app.engine.clock_offset_ms += 400_000
    second.look()
    assert second.states() == ["firing", "cleared"]


def test_one_process_speaks_for_all(app: Windlass, clock: Clock) -> None:
    first, second = Process(app.engine), Process(app.engine)
    bury(app, 4)
    for _ in range(10):
        first.look()
        second.look()
        clock.now_s += LOOK_S
    assert (first.states(), second.states()) == (["firing"], [])


def test_a_dead_holder_is_replaced_and_nothing_fires_again(app: Windlass, clock: Clock) -> None:
    first, second = Process(app.engine), Process(app.engine)
    ids = bury(app, 4)
    first.look()
    first.look()
    second.look()
    clock.now_s += TAKEOVER_S - 1
    second.look()
    assert record_of(app).holder == first.watch._holder
    clock.now_s += 1
    second.look()
    assert record_of(app).holder == second.watch._holder
    assert (first.states(), second.states()) == (["firing"], [])
    app.dead.discard(*ids)
    first.look()  # it was frozen, and finds that another process holds the rule
    second.look()
    assert (first.states(), second.states()) == (["firing"], ["cleared"])


def test_a_holder_that_writes_late_changes_nothing(app: Windlass, clock: Clock) -> None:
    """It was frozen between its reading and its writing."""
    faulty = Faulty(app.engine)
    first, second = Process(cast(Engine, faulty)), Process(app.engine)
    first.look()
    second.look()
    bury(app, 4)

    def freeze(real: Callable[[], Any]) -> Any:
        clock.now_s += TAKEOVER_S
        second.look()
        return real()

    faulty.faults["change_documents"] = once(freeze)
    first.look()
    assert (first.states(), second.states()) == ([], ["firing"])


def test_an_event_that_was_not_delivered_is_delivered_by_the_next(
    app: Windlass, clock: Clock
) -> None:
    """The holder stored its decision and died."""
    faulty = Faulty(app.engine)
    first, second = Process(cast(Engine, faulty)), Process(app.engine)
    first.look()
    bury(app, 4)
    faulty.faults["change_documents"] = once(lose_reply)
    with pytest.raises(EngineUnavailable):
        first.look()
    assert [event.state for event in record_of(app).untold] == ["firing"]
    second.look()
    clock.now_s += TAKEOVER_S
    second.look()
    second.look()
    assert (first.states(), second.states()) == ([], ["firing"])
    assert record_of(app).untold == ()


@pytest.mark.parametrize("lose", [lose_request, lose_reply])
def test_a_holder_repeats_what_it_could_not_store(
    app: Windlass, clock: Clock, lose: Callable[[Callable[[], Any]], Any]
) -> None:
    faulty = Faulty(app.engine)
    process = Process(cast(Engine, faulty))
    process.look()
    bury(app, 4)
    faulty.faults["change_documents"] = once(lose)
    with pytest.raises(EngineUnavailable):
        process.look()
    process.look()
    process.look()
    assert process.states() == ["firing"]


def test_a_process_that_stops_hands_its_rules_over(app: Windlass, clock: Clock) -> None:
    first, second = Process(app.engine), Process(app.engine)
    first.look()
    second.look()
    second.watch.release()  # it holds nothing
    assert record_of(app).holder == first.watch._holder
    first.watch.release()
    assert record_of(app).holder == ""
    bury(app, 4)
    second.look()
    assert second.states() == ["firing"]


def test_every_process_evaluates_the_rules_that_others_do_not_have(
    app: Windlass, clock: Clock
) -> None:
    strict = Alert.dead_letters(1)
    first, second = Process(app.engine), Process(app.engine, DEAD, strict)
    first.look()
    bury(app, 2)
    first.look()
    second.look()
    assert [event.rule for event in first.events + second.events] == ["dead_letters > 1"]


def test_an_emptied_engine_is_watched_again(app: Windlass, clock: Clock) -> None:
    process = Process(app.engine)
    process.look()
    [document] = app.engine.get_documents(KIND, [DEAD.key])
    assert document is not None
    removal = DocumentChange(
        kind=KIND, key=DEAD.key, expected=document.revision, revision="gone", body=None
    )
    app.engine.change_documents([removal])
    bury(app, 4)
    process.look()
    assert process.states() == ["firing"]


def test_the_state_of_an_abandoned_rule_is_removed(app: Windlass, clock: Clock) -> None:
    old = Alert.dead_letters(5)
    Process(app.engine, old).look()
    process = Process(app.engine)
    for _ in range(int(ABANDONED_S / CLEAN_S) + 2):
        clock.now_s += CLEAN_S
        process.look()
        process.look()
    assert app.engine.get_documents(KIND, [old.key]) == [None]
    assert record_of(app).holder == process.watch._holder


def test_without_rules_nothing_is_read(app: Windlass) -> None:
    faulty = Faulty(app.engine)
    delivery = AlertDelivery(lambda event: None, lambda event, why: None)
    assert watch.AlertWatch(cast(Engine, faulty), (), delivery).look() == float("inf")
    assert faulty.calls == []


def test_the_cost_of_a_look_is_bounded(app: Windlass, clock: Clock) -> None:
    """And a process that holds nothing makes one call."""
    rules = (
        DEAD,
        Alert.dead_growth(3),
        Alert.oldest_age("5m"),
        Alert.no_worker(),
        Alert.failure_rate(0.5),
        Alert.run_time("5s"),
        Alert.overdue_schedule(),
        Alert.engine_memory(),
    )
    app.tasks["number"].enqueue_many((number,) for number in range(50))
    app.engine.clock_offset_ms += 60_000
    holder, other = Faulty(app.engine), Faulty(app.engine)
    Process(cast(Engine, holder), *rules).look()
    assert sorted(holder.calls) == [
        *("change_documents", "due_schedules", "get_documents", "history"),
        *("sessions", "space", "stats"),
    ]
    Process(cast(Engine, other), *rules).look()
    assert other.calls == ["get_documents"]


# ----------------------------------------------------------------------------------------- listing


def test_the_list_of_alerts(app: Windlass, clock: Clock) -> None:
    assert {one.state for one in app.alerts.list()} == {"unknown"}
    other = Alert.oldest_age("1m", queue="mail", for_="5m")
    process = Process(app.engine, DEAD, other)
    bury(app, 4)
    app.tasks["number"].using(queue="mail").enqueue(1)
    app.engine.clock_offset_ms += 61_000
    process.look()
    found = [(one.rule, one.state, one.subject) for one in app.alerts.list()]
    assert found[:2] == [
        ("dead_letters > 3", "firing", ""),
        ("oldest_age(mail) > 1m for 5m", "pending", "mail"),
    ]
    assert {state for _, state, _ in found[2:]} == {"unknown"}
    first = app.alerts.list()[0]
    assert (first.value, first.threshold, first.since) == (4, 3, first.checked_at)
    assert first.holder == process.watch._holder


def test_coroutines_list_alerts(app: Windlass) -> None:
    assert asyncio.run(app.alerts.alist()) == app.alerts.list()
