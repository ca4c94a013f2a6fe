"""The url of a PostgreSQL server: what it may be, and what a mistyped one is told."""

from __future__ import annotations

import pytest

from windlass.engine.postgres.url import read_address
from windlass.engine.url import check_url
from windlass.errors import EngineError, SettingError


@pytest.mark.parametrize(
    ("url", "conninfo", "place"),
    [
        ("postgresql://", "postgresql://", "local server"),
        ("postgresql:///shop", "postgresql:///shop", "local server/shop"),
        ("postgres://db/shop", "postgresql://db/shop", "db/shop"),
        ("postgresql://me:pw@a,b:1/shop", "postgresql://me:pw@a,b:1/shop", "a,b:1/shop"),
        (
            "postgresql:///shop?host=%2Frun%2Fpg&schema=jobs&port=1",
            "postgresql:///shop?host=%2Frun%2Fpg&port=1",
            "/run/pg:1/shop",
        ),
        ("postgresql://db/?service=x", "postgresql://db/?service=x", "db"),
        ("postgresql://u@db/shop?options=a%40b", "postgresql://u@db/shop?options=a%40b", "db/shop"),
    ],
)
def test_what_libpq_gets_and_messages_show(url: str, conninfo: str, place: str) -> None:
    address = read_address(url)
    assert (address.conninfo, str(address)) == (conninfo, place)


def test_messages_show_what_libpq_takes_from_its_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("PGHOST", "db"), ("PGPORT", "6432"), ("PGDATABASE", "shop")):
        monkeypatch.setenv(name, value)
    assert str(read_address("postgresql://")) == "db:6432/shop"
    assert str(read_address("postgresql://other:1/mine")) == "other:1/mine"


@pytest.mark.parametrize("mark", "#/?@")
def test_a_password_with_a_mark_is_refused_and_not_shown(mark: str) -> None:
    with pytest.raises(EngineError, match="In a password write") as refused:
        read_address(f"postgresql://me:pa{mark}word@db:5432/shop")
    assert "word@" not in str(refused.value)


@pytest.mark.parametrize("scheme", ["postgresql+asyncpg", "postgres+psycopg", "redis+x"])
def test_a_url_of_another_library_names_a_driver(scheme: str) -> None:
    plain = scheme.partition("+")[0]
    words = rf"^Expected a url without a driver: write {plain}://, found {plain}\+"
    with pytest.raises(SettingError, match=words):
        check_url(f"{scheme}://me:secret@localhost/shop")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("schema=", "Expected a schema of 1 to 63 lower case letters"),
        ("schema=pg_x", "found 'pg_x'"),
        ("pooler=session", "Expected pooler=none or pooler=transaction"),
        ("listen=db:1", "Add pooler=transaction"),
        ("pooler=transaction&listen=db", "Expected listen=HOST:PORT"),
        ("pooler=transaction&listen=db:0", "Expected listen=HOST:PORT"),
        ("windlass_schema=x", "the options schema, pooler, listen and those of libpq"),
    ],
)
def test_wrong_options(options: str, words: str) -> None:
    with pytest.raises(EngineError, match=words):
        read_address(f"postgresql://db/shop?{options}")
