"""Fingerprints of failures: by type, place and message, never by values."""

from __future__ import annotations

import json

import pytest

from windlass import FailureText
from windlass.core.failures import MAX_COMPARED, place_of, without_values


def refuse(text: str) -> None:
    raise ValueError(text)


def refuse_elsewhere(text: str) -> None:
    raise ValueError(text)


def failure(text: str) -> FailureText:
    try:
        refuse(text)
    except ValueError as error:
        return FailureText.of(error)
    raise AssertionError


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("no order 17", "no order 4711"),
        ("a width of -3", "a width of 0"),
        ("took 1.5s of 3:00", "took 27.25s of 12:30"),
        ("no user 'ann'", "no user 'bob'"),
        ('no file "a b.txt"', 'no file "c.txt"'),
        ("<object at 0x7f00aa>", "<object at 0x10BEEF>"),
        (
            "job 6d1f5b7e-8a55-4d0e-9f0e-2c1fd9a4c111 failed",
            "job 00000000-0000-4000-8000-000000000000 failed",
        ),
        ("job 01m7gk6tx900smjc57av0rnpgb", "job 01m7hjc0k2001sqzbhggxf9pgk"),
        ("cannot reach <ann@example.com>", "cannot reach <bob.r@mail.example.org>"),
        ("cut  off\n here", "cut off here"),
    ],
)
def test_values_do_not_count(one: str, other: str) -> None:
    assert without_values(one) == without_values(other)
    assert failure(one).fingerprint == failure(other).fingerprint


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("no such order", "no such user"),
        ("can't read what's there", "can't write what's there"),
        ("connection refused", "connection reset"),
    ],
)
def test_words_do(one: str, other: str) -> None:
    assert failure(one).fingerprint != failure(other).fingerprint


def test_the_type_and_the_place_count() -> None:
    first = failure("no")
    assert first.place == f"{__name__}.refuse"
    with pytest.raises(ValueError, match="no") as caught:
        refuse_elsewhere("no")
    assert FailureText.of(caught.value).fingerprint != first.fingerprint
    other = FailureText(type="TypeError", message="no", place=first.place)
    assert other.fingerprint != first.fingerprint


def test_the_place_is_where_our_own_code_called_the_library() -> None:
    with pytest.raises(json.JSONDecodeError) as caught:
        json.loads("[")
    assert place_of(caught.value.__traceback__).startswith(f"{__name__}.test_the_place_is")


def test_it_is_the_same_after_it_was_stored_and_in_every_process() -> None:
    text = failure("no order 17")
    assert FailureText.unpack(text.pack()).fingerprint == text.fingerprint
    fixed = FailureText(type="ValueError", message="no order 1", place="shop.charge")
    assert fixed.fingerprint == "23ec85330275"


def test_a_long_message_costs_little() -> None:
    assert len(without_values("x'" * 1_000_000)) <= MAX_COMPARED


@pytest.mark.parametrize(
    ("failure", "line"),
    [
        (FailureText.of(ValueError("no such order")), "ValueError: no such order"),
        (FailureText.of(ValueError("first\nsecond")), "ValueError: first ..."),
        (FailureText.of(KeyError()), "KeyError"),
        (FailureText(type="windlass.errors.TimedOut", message="too long"), "TimedOut: too long"),
        (FailureText(message="killed by signal 9"), "killed by signal 9"),
        (FailureText(), ""),
    ],
)
def test_a_failure_is_one_line_as_text(failure: FailureText, line: str) -> None:
    assert str(failure) == f"{failure}" == line
