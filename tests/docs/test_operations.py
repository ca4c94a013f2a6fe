"""The commands on the page about operations do what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import DOCS, PROJECT, blocks, code_in, table_rows
from windlass import State, Windlass
from windlass.testing.contract.model_state import COUNTED

OPERATIONS = DOCS / "operations.md"


def run(script: str, folder: Path) -> str:
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-euc", script],
        cwd=folder,
        env={**os.environ, "PATH": programs},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout


def test_a_backup_is_whole_and_private(tmp_path: Path) -> None:
    [script] = [block.text for block in blocks(OPERATIONS) if "VACUUM INTO" in block.text]
    with Windlass(f"sqlite:///{tmp_path / 'jobs.db'}") as app:
        job = app.task(name="nothing")(nothing).enqueue()
        run(script, tmp_path)  # while the app has the database open
    backup = tmp_path / "backup.db"
    assert backup.stat().st_mode & 0o777 == 0o600
    with Windlass(f"sqlite:///{backup}") as restored:
        assert restored.job(job.id).info().state is State.READY
        assert restored.engine.check() == []


def nothing() -> None:
    """A task for the jobs of these tests."""


def test_every_total_is_told_of() -> None:
    scripts = (PROJECT / "src/windlass/engine/redis/lua").rglob("*.lua")
    named = {name for file in scripts for name in re.findall(r"total\('(\w+)'", file.read_text())}
    assert {"cleared", "succeeded"} <= named
    told = {code for row in table_rows(OPERATIONS) for code in code_in(row[0])}
    assert named | {*COUNTED.values()} <= told


def test_what_is_monitored_is_there(tmp_path: Path) -> None:
    with Windlass(f"sqlite:///{tmp_path / 'jobs.db'}") as app:
        app.task(name="nothing")(nothing).enqueue()
        printed = run("windlass status --json --url sqlite:///jobs.db", tmp_path)
    for row in table_rows(OPERATIONS):
        for field in code_in(row[0]):
            if field in ("engine", "sessions") or field.startswith("stats."):
                assert f'"{field.removeprefix("stats.")}": ' in printed, field
