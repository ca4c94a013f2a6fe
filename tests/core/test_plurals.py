"""Numbers with their nouns."""

from __future__ import annotations

from windlass.core.plurals import Count, count


def test_one_is_not_many() -> None:
    assert [count(number, "task") for number in (0, 1, 2)] == ["0 tasks", "1 task", "2 tasks"]
    assert count(1_000, "crash", "crashes") == "1,000 crashes"
    assert count(1, "crash", "crashes") == "1 crash"


def test_a_count_is_a_number_that_is_shown_with_its_noun() -> None:
    assert Count(1, "job") == 1
    assert f"{Count(1, 'job')}, {Count(2, 'job')!s}" == "1 job, 2 jobs"
    assert "%s" % Count(3, "job") == "3 jobs"  # noqa: UP031  # as log lines are made
