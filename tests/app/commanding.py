"""Run all read-only commands, and commands without effect, in this process. WINDLASS_URL is the
engine."""

from __future__ import annotations

import sys

from click.testing import CliRunner

from windlass.cli import root

APP = ("--app", "tests.app.travelling:app")
COMMANDS = (
    ("enqueue", "tests.app.travelling.double", "--args", "[1]"),
    *(
        ("status",),
        ("workers",),
        ("check",),
        ("config",),
        ("tasks",),
        ("dead", "list"),
        ("queue", "list"),
    ),
    *(("schedule", "list"), ("queue", "pause", "default"), ("queue", "resume", "default")),
)

if __name__ == "__main__":
    for command in COMMANDS:
        ran = CliRunner().invoke(root.windlass, [*command, *APP])
        if ran.exit_code != 0:
            sys.exit(f"{command}: {ran.exit_code}\n{ran.output}\n{ran.exception!r}")
