"""Bytes in words."""

from __future__ import annotations

import pytest

from windlass.core.sizes import describe_bytes


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1_000, "1.0 kB"),
        (15_300, "15 kB"),
        (2_340_000, "2.3 MB"),
        (82 * 10**9, "82 GB"),
        (5 * 10**15, "5000 TB"),
    ],
)
def test_two_digits_that_count(number: int, text: str) -> None:
    assert describe_bytes(number) == text
