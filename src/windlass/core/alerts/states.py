"""When an alert fires and clears.

1. `AlertRecord` is the stored state of a rule. Times are by the engine's clock.
2. `advance` decides, from the last states of the subjects and from new readings, which alerts fire
   and which clear. An alert that has fired does not fire again before it has cleared.
3. `note_deaths` measures how the number of dead jobs grows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Self

import msgspec
from msgspec.structs import replace

from windlass.core.alerts.rules import Alert, AlertEvent, EventState
from windlass.core.durations import instant

#: After a longer time without a look, a number counts as high, or low, from now on only.
GAP_MS: Final = 120_000
#: The number of dead jobs is compared with that of this time ago, in milliseconds.
GROWTH_MS: Final = 300_000
#: One rule watches at most this many subjects at a time, those with the largest numbers first.
MAX_SUBJECTS: Final = 20
#: A stored state has at most this many events that were not delivered.
MAX_UNTOLD: Final = 3 * MAX_SUBJECTS
#: The shortest time between two samples of the number of jobs that died, in milliseconds.
_SAMPLE_MS: Final = 25_000


class Reading(msgspec.Struct, frozen=True):
    """The number of one subject. With too few runs, `is_enough` is False: such a number can keep
    an alert from clearing, and does not make one fire."""

    value: float
    is_enough: bool = True


class SubjectState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A subject whose number is above the threshold, or whose alert has not cleared."""

    since_ms: int  # when the number exceeded the threshold
    value: float
    fired_ms: int = 0  # 0 while the alert is pending
    calm_ms: int = 0  # since when the number is low; 0 if it is not


class AlertRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The stored state of a rule."""

    rule: Alert
    holder: str = ""  # the process that evaluates the rule; empty if it has handed the rule over
    at_ms: int = 0  # the last look
    value: float = 0.0  # the largest number of that look, and its subject
    worst: str = ""
    subjects: dict[str, SubjectState] = {}
    untold: tuple[AlertEvent, ...] = ()  # decided, and not known to be delivered
    died: tuple[tuple[int, int], ...] = ()  # times, and totals of jobs that died until then

    def pack(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def unpack(cls, data: bytes) -> Self | None:
        """Decode a stored state; None for that of another version."""
        try:
            return msgspec.json.decode(data, type=cls)
        except msgspec.MsgspecError:
            return None


def advance(record: AlertRecord, readings: Mapping[str, Reading], at_ms: int) -> AlertRecord:
    """Take a look: return the state after `readings`, which belong to the instant `at_ms`. A
    subject without a reading has the number 0."""
    rule = record.rule
    known = record.subjects
    if at_ms - record.at_ms > GAP_MS:
        known = {name: _after_gap(state, at_ms) for name, state in known.items()}
    elif at_ms < record.at_ms:
        known = {name: _after_set_back(state, at_ms) for name, state in known.items()}
    states: dict[str, SubjectState] = {}
    events: list[AlertEvent] = []
    for name in _chosen(known, readings):
        reading = readings.get(name, Reading(0.0))
        state, event = _advance(rule, name, known.get(name), reading, at_ms)
        if state is not None:
            states[name] = state
        if event is not None:
            events.append(event)
    worst = max(readings, key=lambda name: readings[name].value, default="")
    return replace(
        record,
        at_ms=at_ms,
        value=readings[worst].value if readings else 0.0,
        worst=worst,
        subjects=states,
        untold=(*record.untold, *events)[-MAX_UNTOLD:],
    )


def _chosen(known: Mapping[str, SubjectState], readings: Mapping[str, Reading]) -> list[str]:
    """Every known subject, and new ones while there is room, the largest number first."""
    new = sorted(
        (name for name in readings if name not in known), key=lambda name: -readings[name].value
    )
    return [*known, *new[: max(0, MAX_SUBJECTS - len(known))]]


def _after_gap(state: SubjectState, at_ms: int) -> SubjectState:
    """Forget how long a number was high or low: it was not watched meanwhile."""
    return replace(state, calm_ms=0) if state.fired_ms else replace(state, since_ms=at_ms)


def _after_set_back(state: SubjectState, at_ms: int) -> SubjectState:
    """Let no time begin later than now: the clock was set back. The begin of an incident is a part
    of its id, and stays."""
    if state.fired_ms:
        return replace(state, calm_ms=min(state.calm_ms, at_ms))
    return replace(state, since_ms=min(state.since_ms, at_ms))


def _advance(
    rule: Alert, name: str, state: SubjectState | None, reading: Reading, at_ms: int
) -> tuple[SubjectState | None, AlertEvent | None]:
    if state is not None and state.fired_ms:
        return _advance_firing(rule, name, state, reading, at_ms)
    if not reading.is_enough or reading.value <= rule.over:
        return None, None
    since_ms = at_ms if state is None else state.since_ms
    if at_ms - since_ms < rule.for_ms:
        return SubjectState(since_ms=since_ms, value=reading.value), None
    fired = SubjectState(since_ms=since_ms, value=reading.value, fired_ms=at_ms)
    return fired, _event(rule, name, fired, "firing", at_ms)


def _advance_firing(
    rule: Alert, name: str, state: SubjectState, reading: Reading, at_ms: int
) -> tuple[SubjectState | None, AlertEvent | None]:
    state = replace(state, value=reading.value)
    if reading.value > rule.clear_at:
        return replace(state, calm_ms=0), None
    state = replace(state, calm_ms=state.calm_ms or at_ms)
    if at_ms - state.calm_ms < rule.calm_ms:
        return state, None
    return None, _event(rule, name, state, "cleared", at_ms)


def _event(
    rule: Alert, name: str, state: SubjectState, becomes: EventState, at_ms: int
) -> AlertEvent:
    return AlertEvent(
        id=f"{rule.key}.{name}.{state.since_ms}",
        state=becomes,
        kind=rule.kind,
        rule=str(rule),
        subject=name,
        value=state.value,
        threshold=rule.over,
        since=instant(state.since_ms),
        at=instant(at_ms),
    )


def make_test_event(rule: Alert, at_ms: int) -> AlertEvent:
    """An event of `windlass alerts test`, with the threshold as its number."""
    state = SubjectState(since_ms=at_ms, value=rule.over)
    return _event(rule, rule.subject, state, "test", at_ms)


# ------------------------------------------------------------------------------------------- growth


def note_deaths(
    died: Sequence[tuple[int, int]], total: int, at_ms: int
) -> tuple[tuple[tuple[int, int], ...], int]:
    """Note the total of jobs that died; return the samples of the last minutes, and how much the
    total has grown since the first of them. A total that shrinks is that of an emptied engine, and
    a sample of a later time is one from before the clock was set back."""
    recent = [(then, before) for then, before in died if at_ms - GROWTH_MS < then <= at_ms]
    if any(before > total for _, before in recent):
        recent = []
    if not recent or at_ms - recent[-1][0] >= _SAMPLE_MS:
        recent.append((at_ms, total))
    return tuple(recent), total - recent[0][1]
