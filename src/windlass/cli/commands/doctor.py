"""`windlass doctor`: check that jobs are stored safely, and that workers run them.

1. The doctor checks the program and its app, then the engine, the jobs, and the outbox. The engine
   has its own checks; `support/checks.py` and `support/outbox.py` have all others.
2. An error during a check is a finding too, so that a reader of the JSON always gets findings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import click

from windlass.app import Windlass
from windlass.cli.support.checks import examine_answers, examine_jobs, examine_program
from windlass.cli.support.connection import connect, find_optional_app_path
from windlass.cli.support.outbox import examine_outbox
from windlass.cli.support.output import (
    FAILED,
    USAGE,
    USAGE_ERRORS,
    exit_code_for,
    print_json,
    print_table,
    say,
)
from windlass.cli.support.parameters import connection_options, json_option
from windlass.cli.support.wording import count
from windlass.engine.contract import Finding, Grade
from windlass.errors import EngineError, SettingError


@click.command(short_help="Check app, engine, workers and jobs, and give advice.")
@connection_options
@json_option
def doctor(app_path: str | None, url: str | None, as_json: bool) -> int:
    """Check the app, the engine, the workers and the queues. Exits with 1 if there is a problem.

    It changes nothing, and may run while workers run. `windlass check` verifies the stored data.

    \b
    windlass doctor --app shop.tasks:app
    windlass doctor --url redis://localhost:6379/0 --json
    """
    location = ""
    try:
        with connect(app_path, url, even_unused=True) as app:
            location = app.engine.location
            path = find_optional_app_path(app_path, url)
            findings, code = _examine(app, "" if path is None else path.target)
    except USAGE_ERRORS as error:
        subject = "settings" if isinstance(error, SettingError) else "app"
        text = " ".join([str(error), *getattr(error, "__notes__", ())])
        findings, code = [Finding(Grade.PROBLEM, subject, text)], USAGE
    if as_json:
        print_json({"engine": location, "findings": findings})
    else:
        print_table(
            ["grade", "subject", "text"],
            ((finding.grade, finding.subject, finding.text) for finding in findings),
        )
        say(_summary(location, findings))
    return code


def _examine(app: Windlass, name: str) -> tuple[Sequence[Finding], int]:
    """Return the findings, and their exit code."""
    findings, code = list(examine_program(app, name)), 0
    try:
        findings.extend(_examine_place(app))
    except EngineError as error:
        has_cause = any(finding.grade is Grade.PROBLEM for finding in findings)
        if not has_cause:  # otherwise a finding already says why jobs cannot be read
            findings.append(Finding(Grade.PROBLEM, "connection", str(error)))
        code = exit_code_for(error)
    findings.extend(examine_outbox(app.settings.outbox))
    has_problem = any(finding.grade is Grade.PROBLEM for finding in findings)
    return findings, code or (FAILED if has_problem else 0)


def _examine_place(app: Windlass) -> Iterator[Finding]:
    engine = app.engine
    findings = engine.examine()
    yield from findings
    has_round_trip = any(finding.subject == "round trip" for finding in findings)
    if not has_round_trip and engine.is_used():  # otherwise the question would set up the engine
        yield examine_answers(engine)
    yield from examine_jobs(app)


def _summary(location: str, findings: Sequence[Finding]) -> str:
    graded = Counter(finding.grade for finding in findings)
    problems, advice = graded[Grade.PROBLEM], graded[Grade.ADVICE]
    place = f"{location}: " if location else ""
    if not problems and not advice:
        return f"{place}all is well."
    advised = count(advice, "piece of advice", "pieces of advice")
    return f"{place}{count(problems, 'problem')}, {advised}."
