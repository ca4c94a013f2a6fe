"""Amounts of memory as users write them."""

from __future__ import annotations

import pytest

from windlass.core.sizes import describe_bytes, to_bytes


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("512MB", 512 * 1024**2),
        ("512 mib", 512 * 1024**2),
        ("1.5g", 3 * 1024**3 // 2),
        ("2GB", 2 * 1024**3),
        ("64k", 65536),
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


def test_a_size_is_told_in_megabytes() -> None:
    assert [describe_bytes(count) for count in (5, 1024**2, 700 * 1024**2 + 5)] == [
        "5B",
        "1MB",
        "700MB",
    ]
