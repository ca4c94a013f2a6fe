"""`windlass check`: what it finds, and how it is repaired."""

from __future__ import annotations

import apsw
import pytest

from tests.cli.shell import Shell


@pytest.fixture
def damaged(shell: Shell) -> Shell:
    """A job without a payload, and a counter that is wrong."""
    assert shell.type_with_app("enqueue", "tasks.add", "--args", "[1]").code == 0
    vandalise(shell, "UPDATE jobs SET call = NULL", "UPDATE counters SET number = 7")
    return shell


def vandalise(shell: Shell, *statements: str) -> None:
    vandal = apsw.Connection(shell.url.removeprefix("sqlite:///"))
    for statement in statements:
        vandal.execute(statement)
    vandal.close()


def test_where_nothing_is_wrong_there_is_nothing_to_repair(shell: Shell) -> None:
    assert shell.type_with_app("enqueue", "tasks.add", "--args", "[1]").code == 0
    assert shell.type_with_app("check").code == 0
    ran = shell.type_with_app("check", "--repair")
    assert ran.code == 0
    assert "nothing to repair" in ran.err


def test_a_check_says_how_to_repair(damaged: Shell) -> None:
    ran = damaged.type_with_app("check")
    assert ran.code == 1
    assert "has no payload" in ran.out
    assert "check --repair` shows what can be repaired" in ran.err


def test_a_dry_run_changes_nothing(damaged: Shell) -> None:
    ran = damaged.type_with_app("check", "--repair", "--dry-run")
    assert ran.code == 1
    assert "it gets an empty one" in ran.out
    assert "2 problems would be repaired" in ran.err
    assert len(damaged.type_with_app("check", "--json").json["problems"]) == 2


def test_a_repair_shows_what_it_would_do_and_asks(damaged: Shell) -> None:
    ran = damaged.type_with_app("check", "--repair", answer="n\n")
    assert ran.code == 1
    assert "Queue default counts 7 jobs as ready, but there are 1: corrected." in ran.out
    assert "Repair 2 problems in" in ran.err
    assert "Nothing was changed" in ran.err
    assert damaged.type_with_app("check", "--repair", answer="").code == 1
    assert damaged.type_with_app("check").code == 1
    ran = damaged.type_with_app("check", "--repair", answer="y\n")
    assert ran.code == 0
    assert "2 problems repaired" in ran.err
    assert damaged.type_with_app("check").code == 0
    assert "nothing to repair" in damaged.type_with_app("check", "--repair").err


def test_a_repair_for_scripts(damaged: Shell) -> None:
    would = damaged.type_with_app("check", "--repair", "--dry-run", "--json")
    assert (would.code, len(would.json["would_be_repaired"])) == (1, 2)
    done = damaged.type_with_app("check", "--repair", "--yes", "--json")
    assert (done.code, len(done.json["repaired"]), done.json["beyond_repair"]) == (0, 2, [])
    again = damaged.type_with_app("check", "--repair", "--yes", "--json")
    assert (again.code, again.json["repaired"]) == (0, [])


def test_what_is_beyond_repair_is_told(damaged: Shell) -> None:
    vandalise(damaged, "UPDATE jobs SET starts = 3")
    ran = damaged.type_with_app("check", "--repair", "--yes")
    assert ran.code == 1
    assert "Beyond repair: Job" in ran.out
    assert "1 problem cannot be repaired" in ran.err


def test_options_of_a_repair_need_it(shell: Shell) -> None:
    ran = shell.type_with_app("check", "--yes")
    assert ran.code == 2
    assert "belong to --repair" in ran.err


def test_status_tells_of_what_was_dropped(damaged: Shell) -> None:
    assert "Dropped from indexes" not in damaged.type_with_app("status").err
    vandalise(damaged, "INSERT INTO totals VALUES ('orphans', 3)")
    assert "because their jobs are missing: 3 entries." in damaged.type_with_app("status").err
