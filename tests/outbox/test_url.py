"""The setting `outbox`: what it takes, what it shows, and what it refuses."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from windlass import SettingError, Windlass
from windlass.engine.contract import Dialect
from windlass.outbox.url import OutboxUrl, read_outbox
from windlass.settings import describe_unusual, read_settings

SECRET = "postgresql://shop:hunter2@db.internal:5433/shop?sslmode=require&namespace=mail"


def test_postgresql() -> None:
    url = read_outbox("outbox", SECRET)
    assert url.dialect is Dialect.POSTGRESQL
    assert url.namespace == "mail"
    assert url.database == "postgresql://shop:hunter2@db.internal:5433/shop?sslmode=require"
    assert url.location == "postgresql://db.internal:5433/shop"
    assert read_outbox("outbox", "postgres://localhost/shop").dialect is Dialect.POSTGRESQL


def test_sqlite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    url = read_outbox("outbox", "sqlite:///shop.db?namespace=mail")
    assert url.dialect is Dialect.SQLITE
    assert url.namespace == "mail"
    assert url.database == f"sqlite:///{os.getcwd()}/shop.db"
    assert read_outbox("outbox", "sqlite:///shop.db").namespace == "windlass_outbox"


def test_none() -> None:
    assert not read_outbox("outbox", "")
    assert not read_settings({}, {}).outbox


def test_no_password_is_shown() -> None:
    settings = read_settings({"outbox": SECRET}, {})
    shown = [str(settings.outbox), repr(settings.outbox), repr(settings)]
    shown += [settings.outbox.location, *describe_unusual(settings).values()]
    assert "db.internal" in describe_unusual(settings)["outbox"]
    assert [text for text in shown if "hunter2" in text] == []


def test_it_comes_from_the_environment() -> None:
    settings = read_settings({}, {"WINDLASS_OUTBOX": "sqlite:////srv/shop.db"})
    assert settings.outbox == OutboxUrl("sqlite:////srv/shop.db")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("shop.db", "found text without ://"),
        (7, "found int"),
        ("mysql://localhost/shop", "found the scheme mysql://"),
        ("postgresql+psycopg://localhost/shop", "write postgresql://, found postgresql\\+psycopg"),
        ("sqlite+aiosqlite:///shop.db", "write sqlite://, found sqlite\\+aiosqlite"),
        ("sqlite://shop.db", "three slashes"),
        ("sqlite:///", "three slashes"),
        ("sqlite:///:memory:", "no worker sees it"),
        ("sqlite:///shop.db?durability=full", "option namespace after sqlite:///, found dur"),
        ("sqlite:///shop.db?namespace=Shop", "namespace of at most 40 small letters.*'Shop'"),
        ("postgresql://localhost/shop?namespace=pg_shop", "not pg_; found 'pg_shop'"),
        ("postgresql://localhost/shop?namespace=", "found ''"),
        (f"postgresql://localhost/shop?namespace={'s' * 41}", "at most 40"),
        ("postgresql://localhost/shop?namespace=a;DROP", "found 'a;DROP'"),
    ],
)
def test_what_is_refused(value: object, text: str) -> None:
    with pytest.raises(SettingError, match=text):
        read_settings({"outbox": value}, {})


def test_no_error_shows_a_password() -> None:
    for value in (SECRET.replace("postgresql", "mysql"), SECRET.replace("mail", "-")):
        with pytest.raises(SettingError) as caught:
            Windlass("sqlite:///:memory:", outbox=value)
        assert "hunter2" not in str(caught.value)
