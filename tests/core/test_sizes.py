"""Sizes of memory, parsed and formatted."""

from __future__ import annotations

import pytest

from windlass.core.sizes import describe_bytes, to_bytes


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


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("512MB", 512_000_000),
        ("512 mb", 512_000_000),
        ("1.5g", 1_500_000_000),
        ("2GB", 2_000_000_000),
        ("64k", 64_000),
        ("1000", 1000),
        ("7B", 7),
    ],
)
def test_a_size_is_read(text: str, count: int) -> None:
    assert to_bytes(text, name="it") == count


@pytest.mark.parametrize("text", ["", "MB", "-1MB", "1XB", "1MB2", "1,5GB"])
def test_what_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match='max_memory must be a size such as "512MB"'):
        to_bytes(text, name="max_memory")
