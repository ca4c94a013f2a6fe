"""`windlass config`, and the messages about ignored environment variables."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.conftest import Typing
from tests.cli.shell import Shell
from windlass.settings import SETTINGS

APP = "from windlass import Windlass\napp = Windlass({})\n"


def rows(type_here: Typing, *options: str, **environment: str) -> dict[str, dict[str, Any]]:
    ran = type_here("config", "--json", *options, **environment)
    assert ran.code == 0, ran.err
    return {row["name"]: row for row in ran.json}


def test_every_setting_has_its_source(shell: Shell, type_here: Typing) -> None:
    (shell.folder / "tasks.py").write_text(APP.format("lease='10s'"))
    found = rows(type_here, WINDLASS_APP="tasks:app", WINDLASS_DEAD_TTL="2d", WINDLASS_LEASE="20s")
    assert list(found) == ["app", *SETTINGS]
    assert found["app"]["value"] == "tasks:app"
    assert found["app"]["source"] == "WINDLASS_APP"
    assert found["dead_ttl"]["value"] == "2d"
    assert found["dead_ttl"]["source"] == "WINDLASS_DEAD_TTL"
    assert found["max_crashes"] == {
        "name": "max_crashes",
        "value": 3,
        "source": "default",
        "overruled": "",
    }
    assert found["secret"]["value"] == ""
    lease = {"name": "lease", "value": "10s", "source": "code", "overruled": "WINDLASS_LEASE"}
    assert found["lease"] == lease


def test_values_are_of_their_types_and_in_a_table_as_in_the_environment(
    type_here: Typing,
) -> None:
    variables = {"INCLUDE": "os,sys", "ROUTES": "shop.*=shop", "MAX_PAYLOAD": "2048"}
    environment = {f"WINDLASS_{name}": value for name, value in variables.items()}
    found = {name: row["value"] for name, row in rows(type_here, **environment).items()}
    assert (found["include"], found["routes"]) == (["os", "sys"], {"shop.*": "shop"})
    assert (found["max_payload"], found["encrypt"], found["app"]) == (2048, False, None)
    assert found["lease"] == "30s"
    assert found["retry"].startswith("Retry(max_attempts=5")
    shown = [line.split() for line in type_here("config", **environment).out.splitlines()]
    for name, value in variables.items():
        assert [name.lower(), f"WINDLASS_{name}", value] in shown
    assert ["encrypt", "default", "false"] in shown


def test_pyproject_names_the_app_and_an_option_the_url(shell: Shell, type_here: Typing) -> None:
    (shell.folder / "pyproject.toml").write_text('[tool.windlass]\napp = "tasks:app"\n')
    found = rows(type_here, "--url", "redis://user:hunter2@host/0")
    assert found["app"]["source"] == str(shell.folder / "pyproject.toml")
    assert found["url"]["value"] == "redis://***@host/0"
    assert found["url"]["source"] == "--url"


def test_it_fits_into_a_terminal_and_nothing_is_left_out(shell: Shell) -> None:
    (shell.folder / "pyproject.toml").write_text('[tool.windlass]\napp = "tasks:app"\n')
    (shell.folder / "tasks.py").write_text(APP.format(f"'sqlite:///{'long/' * 20}jobs.db'"))
    lines = shell.type_on_terminal("config", columns=80).splitlines()
    assert max(len(line) for line in lines if "\x1b" not in line) <= 80
    assert any(line.split() == ["app", "pyproject.toml", "tasks:app"] for line in lines)
    squeezed = "".join("".join(lines).split())
    assert "long/" * 20 + "jobs.db" in squeezed
    assert "jitter=0.25)" in squeezed


def test_without_an_app_and_without_an_engine(type_here: Typing) -> None:
    ran = type_here("config", WINDLASS_URL="redis://:hunter2@127.0.0.1:1/0")
    assert ran.code == 0
    assert ran.out.splitlines()[0].split() == ["setting", "source", "value"]
    assert ["url", "WINDLASS_URL", "redis://***@127.0.0.1:1/0"] in [
        line.split() for line in ran.out.splitlines()
    ]
    assert "hunter2" not in ran.out + ran.err


def test_a_setting_that_is_wrong_is_named(type_here: Typing) -> None:
    ran = type_here("config", WINDLASS_LAESE="5s")
    assert ran.code == 2
    assert "Did you mean WINDLASS_LEASE?" in ran.err


@pytest.mark.parametrize("command", [("status",), ("enqueue", "tasks.add", "--args", "[1]")])
def test_a_url_that_is_not_heeded_is_told_of(
    shell: Shell, type_here: Typing, command: tuple[str, ...]
) -> None:
    type_here("enqueue", "tasks.add", "--args", "[1]", WINDLASS_APP="tasks:app")
    environment = {"WINDLASS_APP": "tasks:app", "WINDLASS_URL": "redis://:hunter2@host/0"}
    told = type_here(*command, **environment)
    assert told.code == 0
    assert "WINDLASS_URL ignored: overridden in code by sqlite:///" in told.err
    assert "hunter2" not in told.err
    same = {**environment, "WINDLASS_URL": "sqlite:///jobs.db?durability=normal"}
    assert "overridden in code" not in type_here(*command, **same).err
    assert "overridden in code" not in type_here(*command, "--url", shell.url, **environment).err


def test_a_worker_tells_of_it_too(shell: Shell) -> None:
    command = ("worker", "tasks:app", "-p", "1", "--burst")
    told = shell.type(*command, WINDLASS_URL="sqlite:///other.db")
    assert told.code == 0
    assert "WINDLASS_URL ignored: overridden in code by url" in told.err
    assert not (shell.folder / "other.db").exists()
