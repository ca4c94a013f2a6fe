"""`windlass migrate`: what it moves, and what it prints."""

from __future__ import annotations

import json

from tests.cli.shell import Shell


def test_a_new_file_has_nothing_to_migrate(shell: Shell) -> None:
    assert shell.type_with_app("enqueue", "tasks.add", "--args", "[1]").code == 0
    ran = shell.type_with_app("migrate")
    assert ran.code == 0
    assert "nothing to migrate; the jobs have format" in ran.err


def test_the_numbers_as_json(shell: Shell) -> None:
    assert shell.type_with_app("enqueue", "tasks.add", "--args", "[1]").code == 0
    printed = json.loads(shell.type_with_app("migrate", "--json").out)
    assert {name: printed[name] for name in ("moved", "left")} == {"moved": 0, "left": 0}
