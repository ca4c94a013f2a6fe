"""Ids: their order, what they carry, and that no two are alike."""

import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.ids import (
    check_id,
    created_ms_of,
    derived_digits,
    derived_id,
    new_id,
    new_ids,
    new_nonce,
    new_session,
    partition_of,
    release_of,
)

times = st.integers(0, 2**50 - 1)
partitions = st.integers(0, 1023)


@given(times, partitions)
def test_an_id_carries_its_time_and_its_partition(wall_ms: int, partition: int) -> None:
    job_id = new_id(wall_ms, partition)
    assert re.fullmatch(r"[0-9a-hjkmnp-tv-z]{26}", job_id)
    assert created_ms_of(job_id) == wall_ms
    assert partition_of(job_id) == partition
    assert check_id(job_id) == job_id


@given(times, times, partitions, partitions)
def test_ids_sort_by_time(first: int, second: int, one: int, other: int) -> None:
    if first != second:
        assert (new_id(first, one) < new_id(second, other)) == (first < second)


def test_ids_of_one_moment_differ() -> None:
    assert len({new_id(1_700_000_000_000) for _ in range(10_000)}) == 10_000


@given(st.integers(0, 20), times, partitions)
def test_many_ids_are_like_single_ones(number: int, wall_ms: int, partition: int) -> None:
    ids = new_ids(number, wall_ms, partition)
    assert len(ids) == len({check_id(id) for id in ids}) == number
    for job_id in ids:
        assert re.fullmatch(r"[0-9a-hjkmnp-tv-z]{26}", job_id)
        assert (created_ms_of(job_id), partition_of(job_id)) == (wall_ms, partition)


def test_many_ids_of_one_moment_differ() -> None:
    ids = [id for _ in range(20) for id in new_ids(500, 1_700_000_000_000)]
    assert len(set(ids)) == 10_000
    for at in range(12, 26):  # each of the random digits has all values
        assert len({id[at] for id in ids}) == 32


@given(times, partitions, st.text())
def test_a_derived_id_is_like_any_other(wall_ms: int, partition: int, origin: str) -> None:
    job_id = derived_id(wall_ms, origin, partition)
    assert re.fullmatch(r"[0-9a-hjkmnp-tv-z]{26}", job_id)
    assert created_ms_of(job_id) == wall_ms
    assert partition_of(job_id) == partition
    assert job_id[:12] == new_id(wall_ms, partition)[:12]
    assert job_id[12:] == derived_digits(wall_ms, origin)


def test_a_derived_id_never_changes() -> None:
    """Two versions of windlass that run side by side derive the same ids."""
    assert derived_id(1_700_000_000_000, "schedule:clean_up", 10) == "01hf7yat000azyk9rea5r7jyeq"


def test_derived_ids_differ() -> None:
    digits = {derived_digits(wall_ms, f"{n}") for wall_ms in range(100) for n in range(100)}
    assert len(digits) == 10_000
    assert derived_digits(1, "1:1") != derived_digits(11, ":1")
    for position in range(14):
        assert len({text[position] for text in digits}) == 32


@pytest.mark.parametrize(("wall_ms", "partition"), [(-1, 0), (2**50, 0), (0, -1), (0, 1024)])
def test_what_a_derived_id_cannot_carry_is_refused(wall_ms: int, partition: int) -> None:
    with pytest.raises(ValueError, match="an id carries a time of 0 to"):
        derived_id(wall_ms, "schedule:clean_up", partition)


def test_every_random_digit_is_used() -> None:
    ids = [new_id(0)[12:] for _ in range(2_000)]
    for position in range(14):
        assert len({text[position] for text in ids}) == 32


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_makes_ids_of_its_own() -> None:
    new_id(0)
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write_end, new_id(0).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write_end)
    with os.fdopen(read_end) as pipe:
        assert pipe.read() != new_id(0)


@pytest.mark.parametrize(("wall_ms", "partition"), [(-1, 0), (2**50, 0), (0, -1), (0, 1024)])
def test_refuses_what_an_id_cannot_carry(wall_ms: int, partition: int) -> None:
    with pytest.raises(ValueError, match=rf"0 to 1023; found {wall_ms} and {partition}"):
        new_id(wall_ms, partition)


@pytest.mark.parametrize("job_id", ["", "signup-42", "0" * 25, "0" * 27, "O" * 26, "u" * 26])
def test_only_generated_ids_carry_something(job_id: str) -> None:
    for read in (partition_of, created_ms_of):
        with pytest.raises(ValueError, match="expected a job id of 26 characters"):
            read(job_id)


@pytest.mark.parametrize("text", ["a", "signup-42", "A.b_c~d", "_x", "-", "x" * 64])
def test_an_id_of_ones_own_is_kept(text: str) -> None:
    assert check_id(text) == text


@pytest.mark.parametrize(
    "text", ["", "x" * 65, "a b", "a/b", "..", "ü", "a\n", "a\0", "a?", "a%20"]
)
def test_refuses_an_id_that_does_not_fit_a_url(text: str) -> None:
    with pytest.raises(ValueError, match=rf"1 to 64 characters .*\({len(text)} characters\)"):
        check_id(text)


def test_a_nonce_has_128_random_bits() -> None:
    assert re.fullmatch(r"0000000a[0-9a-f]{32}", new_nonce(10))
    assert new_nonce(1) != new_nonce(1)


def test_later_nonces_sort_after_earlier_ones() -> None:
    nonces = [new_nonce(number) for number in (1, 2, 9, 10, 255, 256, 65_536)]
    assert nonces == sorted(nonces)


@pytest.mark.parametrize(
    ("host", "shown"),
    [("web-1", "web-1"), ("web.example.org", "web-example-org"), ("ü/\n", "host"), ("", "host")],
)
def test_a_session_says_where_it_runs(host: str, shown: str) -> None:
    assert re.fullmatch(rf"{shown}\.42\.[0-9a-f]{{16}}", new_session(host, 42))


def test_sessions_are_short_and_never_the_same() -> None:
    first, second = (new_session("h" * 200, 4_194_304) for _ in range(2))
    assert first != second
    assert check_id(first).startswith("h" * 24 + ".")


def test_a_session_names_its_release() -> None:
    session = new_session("web-1", 42, "v1.4.2+5")
    assert session.startswith("web-1.42.")
    assert release_of(session) == "v1.4.2+5"
    assert release_of(new_session("web-1", 42)) is None
    assert release_of(None) is None
