"""`windlass doctor`: a line for each finding, an exit code, and no traceback."""

from __future__ import annotations

import pytest

from tests.cli.shell import Shell
from tests.redis_server import free_port, private_server, shared_server
from windlass import Windlass

VERDICTS = {"ok", "advice", "problem"}


def test_a_file(shell: Shell, app: Windlass) -> None:
    app.engine.migrate()
    ran = shell.type("doctor", "--url", shell.url)
    head, *lines = ran.out.splitlines()
    assert ran.code == 0, ran.out
    assert head.split() == ["verdict", "about", "finding"]
    assert {line.split()[0] for line in lines} <= VERDICTS
    assert any(line.startswith("ok       journal      WAL") for line in lines)
    assert ran.err.startswith(f"sqlite {shell.database}: ")


def test_a_server(shell: Shell) -> None:
    server = shared_server()
    ran = shell.type("doctor", "--json", WINDLASS_URL=server.url())
    assert (ran.code, ran.err) == (0, "")
    assert ran.json["engine"] == f"redis 127.0.0.1:{server.port}/0"
    by_subject = {finding["subject"]: finding for finding in ran.json["findings"]}
    assert by_subject["eviction"]["grade"] == "ok"
    assert by_subject["persistence"]["grade"] == "advice"
    assert {finding["grade"] for finding in by_subject.values()} <= VERDICTS


def test_the_app_names_the_engine(shell: Shell, app: Windlass) -> None:
    app.engine.migrate()
    ran = shell.type_with_app("doctor")
    assert ran.code == 0
    assert "advice   durability   normal" in ran.out


def test_a_problem_is_told_by_the_exit_code(shell: Shell, app: Windlass) -> None:
    app.engine.migrate()
    shell.database.chmod(0o666)
    ran = shell.type("doctor", "--url", shell.url)
    assert ran.code == 1
    assert "problem  permissions  others may write to jobs.db" in ran.out
    assert "1 problem" in ran.err


def test_a_server_that_would_be_refused_is_looked_at(shell: Shell) -> None:
    server = private_server("--maxmemory-policy", "allkeys-lru", "--appendonly", "no")
    try:
        ran = shell.type("doctor", "--url", server.url())
    finally:
        server.end()
    assert ran.code == 1
    assert "problem  eviction" in ran.out
    assert "problem  persistence" in ran.out
    assert "2 problems" in ran.err


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_server_that_is_away_is_a_finding(shell: Shell, options: tuple[str, ...]) -> None:
    port = free_port()
    ran = shell.type("doctor", *options, "--url", f"redis://:secret@127.0.0.1:{port}/0")
    assert ran.code == 3
    assert "Traceback" not in ran.err
    assert "secret" not in ran.out + ran.err
    assert f"The Redis server at 127.0.0.1:{port}/0 did not answer" in ran.out
    if options:
        assert [finding["subject"] for finding in ran.json["findings"]] == ["connection"]


def test_a_wrong_password_is_a_finding(shell: Shell) -> None:
    ran = shell.type("doctor", "--url", shared_server().url_for("nobody"))
    assert ran.code == 1
    assert "problem  connection" in ran.out
    assert "refused the login" in ran.out


def test_no_database_is_made(shell: Shell) -> None:
    ran = shell.type("doctor", "--url", shell.url)
    assert ran.code == 1
    assert "There is no database" in ran.err
    assert not shell.database.exists()
