"""The state machine: what its table allows, where it leads, and what each event costs."""

from collections import Counter
from enum import StrEnum
from itertools import product

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.states import (
    AFTER_CANCEL_REQUEST,
    FENCED,
    FINAL,
    TABLE,
    Counters,
    Event,
    Hold,
    Reason,
    State,
    charge,
    is_allowed,
    next_state,
    stray_delay_ms,
)

#: Every move, written a second time: state, event, next state ("-": the record is gone).
MOVES = """
    waiting    cancel      cancelled
    waiting    clear       -
    scheduled  due         ready
    scheduled  cancel      cancelled
    scheduled  clear       -
    ready      due         ready
    ready      claim       running
    ready      expire      cancelled
    ready      cancel      cancelled
    ready      clear       -
    running    succeed     succeeded
    running    retry       retrying
    running    bury        dead
    running    release     ready
    running    snooze      scheduled
    running    unroutable  ready
    running    progress    running
    running    lose        ready
    running    crash       ready
    running    suspect     ready
    running    cancel      running
    retrying   due         ready
    retrying   cancel      cancelled
    retrying   clear       -
    succeeded  purge       -
    dead       revive      ready
    dead       discard     -
    dead       purge       -
    cancelled  revive      ready
    cancelled  discard     -
    cancelled  purge       -
"""
EXPECTED = {(state, event): to for state, event, to in map(str.split, MOVES.strip().splitlines())}

#: Where a job is when it is put.
ENTRY = (State.WAITING, State.SCHEDULED, State.READY)
BUDGETS = ("attempt", "crashes", "losses", "interruptions", "snoozes")

every_cell = pytest.mark.parametrize(("state", "event"), list(product(State, Event)))


def events_of(state: State) -> list[Event]:
    return [event for event in Event if is_allowed(state, event)]


def reachable_from(state: State) -> set[State | None]:
    seen: set[State | None] = set()
    front: list[State | None] = [state]
    while front:
        here = front.pop()
        if here is None or here in seen:
            seen.add(here)
            continue
        seen.add(here)
        front += [next_state(here, event) for event in events_of(here)]
    return seen


# -------------------------------------------------------------------------------------------- moves


@every_cell
def test_every_cell_is_a_move_or_refused(state: State, event: Event) -> None:
    expected = EXPECTED.get((state, event))
    assert is_allowed(state, event) == (expected is not None)
    if expected is None:
        with pytest.raises(KeyError):
            next_state(state, event)
    else:
        assert (next_state(state, event) or "-") == expected


def test_every_event_and_every_state_has_a_move() -> None:
    assert {event for _, event in TABLE} == set(Event)
    assert {state for state, _ in TABLE} == set(State)


@pytest.mark.parametrize("state", State)
def test_a_final_state_is_left_only_on_purpose_or_by_age(state: State) -> None:
    assert state.is_final == (state in FINAL)
    on_purpose = {Event.REVIVE, Event.DISCARD, Event.PURGE}
    if state.is_final:
        assert set(events_of(state)) <= on_purpose
        assert Event.PURGE in events_of(state)
    else:
        assert not on_purpose.intersection(events_of(state))


@pytest.mark.parametrize("state", sorted(set(State) - FINAL))
def test_every_other_state_can_end(state: State) -> None:
    assert FINAL.intersection(reachable_from(state))
    assert None in reachable_from(state)


def test_every_state_can_be_reached() -> None:
    reached = set().union(*map(reachable_from, ENTRY))
    assert reached == {*State, None}


@pytest.mark.parametrize("event", sorted(FENCED))
def test_an_event_with_a_token_happens_only_to_a_running_job(event: Event) -> None:
    assert [state for state in State if is_allowed(state, event)] == [State.RUNNING]


def test_a_running_job_is_moved_without_a_token_only_from_outside() -> None:
    outside = {Event.LOSE, Event.CRASH, Event.SUSPECT, Event.CANCEL}
    assert set(events_of(State.RUNNING)) - FENCED == outside


@pytest.mark.parametrize("event", events_of(State.RUNNING))
def test_after_a_cancel_request_only_a_success_is_not_cancelled(event: Event) -> None:
    plain = next_state(State.RUNNING, event)
    requested = next_state(State.RUNNING, event, cancel_requested=True)
    if plain in (State.RUNNING, State.SUCCEEDED):
        assert requested == plain
    else:
        assert requested == State.CANCELLED
        assert event in AFTER_CANCEL_REQUEST


@pytest.mark.parametrize("names", [State, Hold, Reason, Event])
def test_stored_names_are_the_names_in_the_code(names: type[StrEnum]) -> None:
    assert [str(name) for name in names] == [name.name.lower() for name in names]


# ------------------------------------------------------------------------------------------ charges


class Step(msgspec.Struct, frozen=True):
    """A job at one moment of its life."""

    state: State | None
    counters: Counters = Counters()
    cancel_requested: bool = False
    #: What happened since the budgets were fresh; an event before user code ran has "early-".
    happened: tuple[str, ...] = ()

    def after(self, event: Event, *, started: bool) -> "Step":
        assert self.state is not None
        state = next_state(self.state, event, cancel_requested=self.cancel_requested)
        fresh = event is Event.REVIVE
        requested = self.cancel_requested or (self.state, event) == (State.RUNNING, Event.CANCEL)
        name = event if started else f"early-{event}"
        return Step(
            state=state,
            counters=charge(self.counters, event, started=started),
            cancel_requested=requested and not fresh,
            happened=() if fresh else (*self.happened, name),
        )


@st.composite
def lives(draw: st.DrawFn) -> list[Step]:
    """A job's life: any moves that the table allows, one after another."""
    steps = [Step(draw(st.sampled_from(ENTRY)))]
    for _ in range(draw(st.integers(0, 60))):
        here = steps[-1]
        if here.state is None:
            break
        event = draw(st.sampled_from(events_of(here.state)))
        may_be_early = event in (Event.RELEASE, Event.BURY)
        steps.append(here.after(event, started=not may_be_early or draw(st.booleans())))
    return steps


@given(life=lives())
def test_every_start_is_in_exactly_one_budget(life: list[Step]) -> None:
    for step in life:
        budgets = msgspec.structs.asdict(step.counters)
        assert min(budgets.values()) >= 0
        assert step.counters.starts == sum(budgets[name] for name in BUDGETS)


@given(life=lives())
def test_counters_tell_what_happened(life: list[Step]) -> None:
    for step in life:
        seen = Counter(step.happened)
        under_way = int(step.state is State.RUNNING)
        assert step.counters == Counters(
            attempt=seen["succeed"] + seen["retry"] + seen["bury"] + under_way,
            starts=seen["claim"] - seen["early-release"] - seen["early-bury"] - seen["unroutable"],
            crashes=seen["crash"],
            losses=seen["lose"],
            interruptions=seen["release"] + seen["suspect"],
            snoozes=seen["snooze"],
            strays=seen["unroutable"],
        )


@given(life=lives())
def test_a_requested_cancellation_is_never_forgotten(life: list[Step]) -> None:
    for step in life:
        if step.cancel_requested:
            assert step.state is None or step.state is State.RUNNING or step.state.is_final


@pytest.mark.parametrize("started", [True, False])
@pytest.mark.parametrize("event", events_of(State.RUNNING))
def test_no_event_takes_more_than_its_claim_gave(event: Event, started: bool) -> None:
    claimed = charge(Counters(), Event.CLAIM)
    after = charge(claimed, event, started=started)
    assert min(msgspec.structs.asdict(after).values()) >= 0


def test_an_operators_retry_has_fresh_budgets() -> None:
    spent = Counters(
        attempt=5, starts=21, crashes=2, losses=3, interruptions=4, snoozes=7, strays=9
    )
    assert charge(spent, Event.REVIVE) == Counters()


# ------------------------------------------------------------------------------------------- strays


def test_a_stray_job_rests_longer_each_time_up_to_a_minute() -> None:
    delays = [stray_delay_ms(strays) for strays in range(12)]
    assert delays[:7] == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000]
    assert set(delays[6:]) == {60_000}
    assert stray_delay_ms(10**9) == 60_000
