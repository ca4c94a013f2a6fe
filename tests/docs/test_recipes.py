"""The recipes make a program that runs; they and the tutorial pass a strict type checker."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest
import sentry_sdk
from mypy import api
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

from tests.docs.pages import DOCS, blocks, program
from tests.docs.test_examples import files_of
from windlass import JobEvent, Retry, Windlass
from windlass.testing import Sandbox

RECIPES = DOCS / "recipes.md"
TUTORIAL = DOCS / "tutorial.md"


def test_the_program_of_the_recipes_runs(tmp_path: Path) -> None:
    (tmp_path / "recipes.py").write_text(program(RECIPES), encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "recipes.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert "20 of 20" in ran.stdout


@pytest.mark.parametrize("page", [RECIPES, TUTORIAL], ids=lambda page: page.stem)
def test_their_code_is_typed(page: Path, tmp_path: Path) -> None:
    for name, text in files_of(page).items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    text, _, code = api.run(["--strict", "--no-error-summary", *map(str, tmp_path.iterdir())])
    assert code == 0, text


def test_every_python_block_of_the_recipes_is_run() -> None:
    kinds = {(block.language, block.label) for block in blocks(RECIPES)}
    assert kinds == {("python", ""), ("dockerfile", ""), ("sh", "")}


class Collected(Transport):
    """The test transport: keeps events instead of sending them."""

    events: ClassVar[list[dict[str, Any]]] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        event = envelope.get_event()
        if event is not None:
            self.events.append(dict(event))


def test_dead_jobs_are_reported_to_sentry(monkeypatch: pytest.MonkeyPatch) -> None:
    """One event for a job, with its error, its task and its headers."""
    [recipe] = [block.text for block in blocks(RECIPES) if "sentry_sdk.init()" in block.text]
    app = Windlass("sqlite:///:memory:")
    options = {"dsn": "https://key@sentry.example/1", "transport": Collected}
    code = recipe.replace("sentry_sdk.init()", "sentry_sdk.init(**options)")
    monkeypatch.setattr(Collected, "events", [])
    exec(code, {"app": app, "options": options, "JobEvent": JobEvent})  # noqa: S102  # as the page

    @app.task(name="charge", headers={"user": "ann"}, retry=Retry(2, delays=[0], jitter=0))
    def charge(cents: int) -> None:
        raise ConnectionError(f"no answer for {cents}")

    with Sandbox(app) as box:
        job = charge.enqueue(5)
        box.drain(raise_errors=False)
    sentry_sdk.init()  # off again
    [event] = Collected.events
    [error] = event["exception"]["values"]
    assert (error["type"], error["value"]) == ("ConnectionError", "no answer for 5")
    assert error["stacktrace"]["frames"][-1]["function"] == "charge"
    assert event["tags"] == {"task": "charge", "reason": "exhausted"}
    assert event["contexts"]["job"] == {"id": job.id, "queue": "default", "user": "ann"}
