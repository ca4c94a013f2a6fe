"""When alerts fire and clear: once each in an incident, whatever the numbers do."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from windlass import Alert, AlertEvent
from windlass.core.alerts.states import (
    GAP_MS,
    GROWTH_MS,
    MAX_SUBJECTS,
    MAX_UNTOLD,
    AlertRecord,
    Reading,
    advance,
    make_test_event,
    note_deaths,
)
from windlass.engine.contract import MAX_DOCUMENT_BYTES

T0 = 1_700_000_000_000
LOOK_MS = 10_000


class Incident:
    """A rule that is looked at every ten seconds."""

    def __init__(self, rule: Alert) -> None:
        self.record = AlertRecord(rule=rule)
        self.at_ms = T0

    def look(self, wait_ms: int = LOOK_MS, **values: float | Reading) -> list[str]:
        """Look at these numbers, and tell which alerts fire or clear."""
        self.at_ms += wait_ms
        readings = {
            name: value if isinstance(value, Reading) else Reading(value)
            for name, value in values.items()
        }
        self.record = advance(self.record, readings, self.at_ms)
        events, self.record = self.record.untold, msgspec.structs.replace(self.record, untold=())
        return [f"{event.subject} {event.state}" for event in events]


def test_an_alert_fires_once_and_clears_once() -> None:
    incident = Incident(Alert.dead_letters(100))
    said = [incident.look(all=number) for number in (100, 101, 500, 90, 101, 80, 80, 200)]
    assert said == [[], ["all firing"], [], [], [], ["all cleared"], [], ["all firing"]]


def test_a_number_must_stay_high_before_an_alert_fires() -> None:
    incident = Incident(Alert.oldest_age("1m", for_="30s"))
    assert [incident.look(mail=61) for _ in range(3)] == [[], [], []]
    assert incident.look(mail=60) == []
    assert [incident.look(mail=61) for _ in range(4)] == [[], [], [], ["mail firing"]]


def test_a_number_must_stay_low_before_an_alert_clears() -> None:
    incident = Incident(Alert.oldest_age("1m", for_="20s"))
    assert [incident.look(mail=61) for _ in range(3)] == [[], [], ["mail firing"]]
    assert [incident.look(mail=age) for age in (48, 48, 49)] == [[], [], []]
    assert [incident.look(mail=48) for _ in range(3)] == [[], [], ["mail cleared"]]


def test_an_alert_clears_within_a_minute() -> None:
    incident = Incident(Alert.no_worker(for_="1h"))
    while not incident.look(wait_ms=60_000, mail=1):
        assert incident.at_ms < T0 + 62 * 60_000
    assert [incident.look(wait_ms=30_000) for _ in range(3)] == [[], [], ["mail cleared"]]


def test_a_subject_that_is_gone_has_the_number_0() -> None:
    incident = Incident(Alert.oldest_age("1m"))
    assert incident.look(mail=61, other=1) == ["mail firing"]
    assert incident.look() == ["mail cleared"]


def test_subjects_have_states_of_their_own() -> None:
    incident = Incident(Alert.oldest_age("1m"))
    assert incident.look(mail=61) == ["mail firing"]
    assert incident.look(mail=61, web=90) == ["web firing"]
    assert incident.look(web=90) == ["mail cleared"]


def test_few_runs_make_nothing_fire_and_let_nothing_clear() -> None:
    incident = Incident(Alert.failure_rate(0.5, for_=0))
    assert incident.look(send=Reading(0.9, is_enough=False)) == []
    assert incident.look(send=Reading(0.9)) == ["send firing"]
    assert incident.look(send=Reading(0.9, is_enough=False)) == []
    assert incident.look(send=Reading(0.1, is_enough=False)) == ["send cleared"]


def test_time_without_a_look_does_not_count() -> None:
    incident = Incident(Alert.oldest_age("1m", for_="5m"))
    incident.look(mail=61)
    assert incident.look(wait_ms=600_000, mail=700) == []
    assert incident.look(wait_ms=GAP_MS, mail=700) == []
    assert incident.look(wait_ms=GAP_MS, mail=700) == []
    assert incident.look(wait_ms=GAP_MS, mail=700) == ["mail firing"]


def test_a_clock_that_is_set_back_delays_no_alert() -> None:
    incident = Incident(Alert.oldest_age("1m", for_="20s"))
    incident.look(mail=61)
    assert [incident.look(wait_ms=wait, mail=61) for wait in (-3_600_000, LOOK_MS)] == [[], []]
    assert incident.look(mail=61) == ["mail firing"]
    incident.look(mail=1)
    assert [incident.look(wait_ms=wait, mail=1) for wait in (-3_600_000, LOOK_MS)] == [[], []]
    assert incident.look(mail=1) == ["mail cleared"]


def test_an_incident_has_one_id() -> None:
    record = AlertRecord(rule=Alert.dead_letters(1))
    for at, number in enumerate((2, 0, 2)):
        record = advance(record, {"": Reading(number)}, T0 + at)
    fired, cleared, again = record.untold
    assert fired.id == cleared.id != again.id
    assert (fired.value, fired.threshold, fired.since) == (2, 1, fired.at)
    assert cleared.at - cleared.since == timedelta(milliseconds=1)


def test_the_worst_subjects_are_watched_and_the_stored_state_is_bounded() -> None:
    rule = Alert.oldest_age("1s")
    readings = {f"{number:03d}{'é' * 125}": Reading(number) for number in range(2, 300)}
    record = AlertRecord(rule=rule)
    for at in range(20):
        record = advance(record, readings if at % 2 == 0 else {}, T0 + at)
        assert len(record.subjects) in (0, MAX_SUBJECTS)
        assert len(record.pack()) < MAX_DOCUMENT_BYTES
    assert len(record.untold) == MAX_UNTOLD
    assert {name[:3] for name in advance(record, readings, T0).subjects} == {
        str(number) for number in range(280, 300)
    }


def test_a_stored_state_is_read_again() -> None:
    record = AlertRecord(rule=Alert.oldest_age("1m", queue="mail"), died=((T0, 3),))
    record = advance(record, {"mail": Reading(61.0)}, T0)
    assert AlertRecord.unpack(record.pack()) == record
    assert AlertRecord.unpack(b"{") is None


def test_a_test_event_is_marked() -> None:
    event = make_test_event(Alert.run_time("3s", task="send"), T0)
    assert (event.state, event.subject, event.value) == ("test", "send", 3)
    assert event.at == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)


# ------------------------------------------------------------------------------------------ growth


def test_growth_is_that_of_five_minutes() -> None:
    died, grown = note_deaths((), 1_000, T0)
    assert (died, grown) == (((T0, 1_000),), 0)
    died, grown = note_deaths(died, 1_007, T0 + 10_000)
    assert (len(died), grown) == (1, 7)
    died, grown = note_deaths(died, 1_010, T0 + 200_000)
    died, grown = note_deaths(died, 1_010, T0 + GROWTH_MS)
    assert (died[0][1], grown) == (1_010, 0)


def test_an_emptied_engine_does_not_grow() -> None:
    died, _ = note_deaths((), 1_000, T0)
    assert note_deaths(died, 3, T0 + 10_000) == (((T0 + 10_000, 3),), 0)


def test_growth_is_that_of_five_minutes_after_the_clock_was_set_back() -> None:
    died, _ = note_deaths((), 1_000, T0)
    for minute in range(60):
        died, grown = note_deaths(died, 1_001 + minute, T0 - 3_600_000 + 60_000 * minute)
        assert grown <= 5


@given(st.lists(st.tuples(st.integers(1, 60_000), st.integers(0, 50)), max_size=60))
def test_samples_are_bounded_and_growth_is_what_was_added(steps: list[tuple[int, int]]) -> None:
    died: tuple[tuple[int, int], ...] = ()
    at_ms, total = T0, 0
    totals: list[tuple[int, int]] = []
    for wait_ms, added in steps:
        at_ms, total = at_ms + wait_ms, total + added
        totals.append((at_ms, total))
        died, grown = note_deaths(died, total, at_ms)
        recent = [before for then, before in totals if then > at_ms - GROWTH_MS]
        assert len(died) <= 13
        assert 0 <= grown <= total - recent[0]


# -------------------------------------------------------------------------------------- properties

RULES = st.builds(
    lambda over, for_, share: Alert.oldest_age(over, for_=for_, clear_at=over * share),
    st.integers(0, 10),
    st.sampled_from([0, 10, 25, 90]),
    st.sampled_from([0.0, 0.5, 0.8, 1.0]),
)
LOOKS = st.lists(
    st.tuples(
        st.sampled_from([1, 10_000, 60_000, GAP_MS + 1]),
        st.dictionaries(
            st.sampled_from("abc"), st.builds(Reading, st.integers(0, 12), st.booleans())
        ),
    ),
    max_size=40,
)


@given(RULES, LOOKS)
def test_an_alert_never_fires_twice_without_clearing(
    rule: Alert, looks: list[tuple[int, dict[str, Reading]]]
) -> None:
    record, at_ms = AlertRecord(rule=rule), T0
    told: dict[str, list[AlertEvent]] = {"a": [], "b": [], "c": []}
    for wait_ms, readings in looks:
        at_ms += wait_ms
        record = advance(record, readings, at_ms)
        for event in record.untold:
            told[event.subject].append(event)
        record = msgspec.structs.replace(record, untold=())
    for subject, events in told.items():
        assert [event.state for event in events[:1]] in ([], ["firing"])
        assert all(before.state != after.state for before, after in pairwise(events))
        assert all(event.value > rule.over for event in events if event.state == "firing")
        assert all(event.value <= rule.clear_at for event in events if event.state == "cleared")
        is_firing = bool(events) and events[-1].state == "firing"
        state = record.subjects.get(subject)
        assert is_firing == (state is not None and bool(state.fired_ms))


@given(RULES, st.integers(1, 30))
def test_a_number_that_stays_high_fires_in_time(rule: Alert, seconds: int) -> None:
    record, at_ms = AlertRecord(rule=rule), T0
    while not record.untold:
        record = advance(record, {"a": Reading(rule.over + 1)}, at_ms)
        assert at_ms <= T0 + rule.for_ms + seconds * 1000
        at_ms += seconds * 1000
