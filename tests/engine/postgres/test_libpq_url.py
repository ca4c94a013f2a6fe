"""A url means to windlass what it means to libpq."""

from __future__ import annotations

import pytest
from psycopg.conninfo import conninfo_to_dict

from windlass.engine.postgres.url import read_address


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:a+b@db/shop",
        "postgresql://db/shop?user=me&password=a+b",
        "postgresql://db/shop?password=a%2Bb%20c%26d%25",
        "postgresql:///shop?host=/run/a+b",
        "postgresql://[::1]:5432,other:1/shop?options=-c%20geqo%3Doff",
    ],
)
def test_the_driver_gets_what_the_url_says(url: str) -> None:
    assert conninfo_to_dict(read_address(url).conninfo) == conninfo_to_dict(url)
