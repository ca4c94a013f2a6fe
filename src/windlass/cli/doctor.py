"""`windlass doctor`: is the place where jobs live in a state in which they are safe?

An engine says by itself what it looks at. What keeps it from answering is a finding too, so that a
program which reads the JSON always gets some.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import click

from windlass.cli.connecting import connect
from windlass.cli.output import print_json, print_table, say
from windlass.cli.parameters import connection_options, json_option
from windlass.cli.wording import count
from windlass.engine.contract import Engine, Finding, Grade
from windlass.errors import EngineError, EngineUnavailable

#: The exit codes of every command: 1 failed, 3 engine away.
_FAILED: Final = 1
_ENGINE_AWAY: Final = 3


@click.command(short_help="Look at the engine itself, and advise.")
@connection_options
@json_option
@click.pass_context
def doctor(ctx: click.Context, app_path: str | None, url: str | None, as_json: bool) -> None:
    """Look at the engine: versions, durability, room, rights. Exits with 1 if there is a problem.

    It changes nothing, and may run beside workers. `windlass check` looks at the jobs instead.

    \b
    windlass doctor --app shop.tasks:app
    windlass doctor --url redis://localhost:6379/0 --json
    """
    with connect(app_path, url) as app:
        location = app.engine.location
        findings, code = _examine(app.engine)
    if as_json:
        print_json({"engine": location, "findings": findings})
    else:
        print_table(
            ["verdict", "about", "finding"],
            ((finding.grade, finding.subject, finding.text) for finding in findings),
        )
        say(_summary(location, findings))
    ctx.exit(code)


def _examine(engine: Engine) -> tuple[Sequence[Finding], int]:
    """The findings, and the exit code that they make."""
    try:
        findings = engine.examine()
    except EngineUnavailable as error:
        return [Finding(Grade.PROBLEM, "connection", str(error))], _ENGINE_AWAY
    except EngineError as error:
        return [Finding(Grade.PROBLEM, "connection", str(error))], _FAILED
    has_problem = any(finding.grade is Grade.PROBLEM for finding in findings)
    return findings, _FAILED if has_problem else 0


def _summary(location: str, findings: Sequence[Finding]) -> str:
    graded = Counter(finding.grade for finding in findings)
    problems, advice = graded[Grade.PROBLEM], graded[Grade.ADVICE]
    if not problems and not advice:
        return f"{location}: all is well."
    return f"{location}: {count(problems, 'problem')}, {advice} times advice."
