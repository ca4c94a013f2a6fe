"""`windlass token`: create, list and revoke."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Typing
from tests.cli.shell import Shell
from tests.contract.variants import fresh_url
from windlass import Role, Windlass

APP = ("--app", "tasks:app")


@pytest.fixture(params=["sqlite-file", "redis", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return fresh_url(request.param, tmp_path)


def test_the_life_of_a_token(url: str, type_here: Typing) -> None:
    """Also on an engine that was never used."""
    options = ("--role", "operator", "--queue", "mail*", "--queue", "web", "--expires", "30d")
    ran = type_here("token", "create", "deploy", *options, "--url", url)
    assert ran.code == 0
    text = ran.out.strip()
    assert text.startswith("wl_")
    assert "The access token deploy (operator) of " in ran.err
    assert "it is shown only this once" in ran.err
    with Windlass(url) as app:
        token = app.access_tokens.check(text)
        assert token is not None
        assert (token.role, token.queues) == (Role.OPERATOR, ("mail*", "web"))
    listed = type_here("token", "list", "--url", url)
    assert listed.code == 0
    head, row = listed.out.splitlines()
    assert head.split() == ["name", "role", "queues", "created", "expires", "id", "ends", "with"]
    assert row.startswith("deploy  operator  mail*, web  ")
    assert "in 29d" in row
    assert row.split()[-2:] == [token.id, text[-4:]]
    assert text not in listed.out
    revoked = type_here("token", "revoke", "deploy", "--url", url)
    assert (revoked.code, revoked.out) == (0, "The access token deploy is revoked.\n")
    with Windlass(url) as app:
        assert app.access_tokens.check(text) is None
    assert type_here("token", "list", "--url", url).err == "No access tokens.\n"


def test_as_json(shell: Shell, type_here: Typing, app: Windlass) -> None:
    ran = type_here("token", "create", "shop", "--role", "producer", "--json", *APP)
    made = ran.json
    text = made.pop("token")
    assert ran.err == ""
    assert (made["name"], made["role"], made["queues"]) == ("shop", "producer", [])
    assert made["expires_at"] is None
    assert type_here("token", "list", "--json", *APP).json == [made]
    assert app.access_tokens.check(text) is not None
    ran = type_here("token", "revoke", made["id"], "--json", *APP)
    assert ran.json == {"revoked": made["id"]}
    assert type_here("token", "list", "--json", *APP).json == []


def test_a_token_without_limits_says_so(type_here: Typing, app: Windlass) -> None:
    type_here("token", "create", "shop", "--role", "admin", *APP)
    row = type_here("token", "list", *APP).out.splitlines()[1]
    assert row.split()[:3] == ["shop", "admin", "all"]
    assert " never " in row


def test_a_name_is_used_once(type_here: Typing, app: Windlass) -> None:
    create = ("token", "create", "shop", "--role", "producer", *APP)
    assert type_here(*create).code == 0
    again = type_here(*create)
    assert (again.code, again.out) == (1, "")
    assert "Error: There is already an access token shop (" in again.err
    assert "`windlass token revoke shop`" in again.err
    assert len(app.access_tokens.list()) == 1


def test_an_unknown_token_is_told(type_here: Typing, app: Windlass) -> None:
    app.engine.migrate()
    ran = type_here("token", "revoke", "shop", *APP)
    assert ran.code == 1
    assert "Error: There is no access token shop in " in ran.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "Missing option '--role'"),
        (
            ("--role", "king"),
            "'king' is not one of 'producer', 'worker', 'viewer', 'operator', 'admin'",
        ),
        (("--role", "admin", "--queue", "a b"), "queues must be names or patterns such as"),
        (("--role", "admin", "--expires", "soon"), "expected a duration such as"),
        (("--role", "admin", "--expires", "0"), "expires must be in the future"),
    ],
)
def test_what_makes_no_sense_is_wrong_usage(
    type_here: Typing, app: Windlass, options: tuple[str, ...], words: str
) -> None:
    ran = type_here("token", "create", "shop", *options, *APP)
    assert ran.code == 2
    assert words in ran.err
    assert app.access_tokens.list() == ()


def test_a_wrong_name_is_wrong_usage(type_here: Typing, app: Windlass) -> None:
    ran = type_here("token", "create", "my shop", "--role", "admin", *APP)
    assert ran.code == 2
    assert "name must be 1 to 64 characters" in ran.err


def test_no_engine_is_made_by_chance(shell: Shell, type_here: Typing) -> None:
    """Neither by a command that lists, nor without an app and a url."""
    assert type_here("token", "list", *APP).code == 1
    ran = type_here("token", "create", "shop", "--role", "admin")
    assert ran.code == 1
    assert "Neither an app nor a url was given" in ran.err
    assert not shell.database.exists()
