"""The notation of queue plans, and whose turn it is: shares hold after every single start."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.queues.plans import Tier, Turns, allot, describe_tiers, read_tiers

weights = st.lists(st.integers(1, 1000), min_size=1, max_size=8)


def test_each_text_is_a_tier() -> None:
    assert read_tiers(["critical", "default:5,low"]) == (
        Tier(("critical",), (1,)),
        Tier(("default", "low"), (5, 1)),
    )
    assert read_tiers([]) == ()


def test_tiers_in_one_line() -> None:
    assert describe_tiers(["critical", "mail:3, hooks:3", "bulk"]) == (
        "critical > mail:3, hooks:3 > bulk"
    )
    assert describe_tiers([]) == ""


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        (["a", "a"], "named twice"),
        (["a,b:2,a"], "named twice"),
        ([""], "found ''"),
        (["a,"], "found ''"),
        (["a:0"], "found '0'"),
        (["a:1001"], "found '1001'"),
        (["a:x"], "found 'x'"),
        (["a:"], "found ''"),
        (["a:\u0663"], "found '\u0663'"),
        ([" "], "found ' '"),
        (["a+gpu"], "found 'a+gpu'"),
        ([",".join(f"q{number}" for number in range(101))], "found 101"),
    ],
)
def test_another_notation_is_refused(texts: list[str], found: str) -> None:
    with pytest.raises(ValueError, match=r"found|named") as error:
        read_tiers(texts)
    assert found in str(error.value)


@given(weights, st.integers(1, 300))
def test_every_queue_is_within_one_of_its_share_after_every_start(
    weights: list[int], number: int
) -> None:
    counts: Counter[int] = Counter()
    for starts, turn in enumerate(Turns(weights).ahead(number), 1):
        counts[turn] += 1
        for queue, weight in enumerate(weights):
            assert abs(counts[queue] - starts * weight / sum(weights)) < 1 + 1e-6


@given(weights, st.lists(st.integers(1, 20), min_size=1, max_size=40))
def test_it_does_not_matter_how_many_are_claimed_at_a_time(
    weights: list[int], rooms: list[int]
) -> None:
    """The queues give all jobs that were asked for: the turns continue."""
    turns, got = Turns(weights), b""
    for room in rooms:
        asked = Counter(turns.ahead(room))
        shares = [asked[queue] for queue in range(len(weights))]
        got += turns.take(shares, shares)
    assert got == Turns(weights).ahead(sum(rooms))


def test_an_empty_queue_saves_up_nothing() -> None:
    turns = Turns([5, 1])
    for _ in range(100):
        asked = turns.ahead(6)
        assert turns.take([6, 0], [asked.count(0), asked.count(1)]) == bytes(6)
    assert Counter(turns.ahead(60))[1] in (10, 11)


def test_what_was_not_asked_for_is_owed() -> None:
    """One slot: a queue whose turn it was not is not empty for that."""
    turns, starts = Turns([5, 1]), b""
    for _ in range(6000):
        asked = turns.ahead(1)
        shares = [asked.count(0), asked.count(1)]
        starts += turns.take(shares, shares)
    assert Counter(starts) == {0: 5000, 1: 1000}


@given(weights, st.integers(0, 50), st.data())
def test_nothing_is_left_while_there_is_room(
    weights: list[int], room: int, data: st.DataObject
) -> None:
    waiting = [data.draw(st.integers(0, 40)) for _ in weights]
    turns = Turns(weights).ahead(room)
    taken = allot(turns, waiting, room)
    assert sum(taken) == min(room, sum(waiting))
    asked = Counter(turns)
    for queue, number in enumerate(taken):
        assert min(asked[queue], waiting[queue]) <= number <= waiting[queue]
