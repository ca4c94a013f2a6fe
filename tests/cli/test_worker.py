"""What the options of `windlass worker` become."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from windlass.cli.root import windlass
from windlass.worker import supervisor
from windlass.worker.options import WorkerOptions


def options_of(monkeypatch: pytest.MonkeyPatch, *typed: str) -> WorkerOptions:
    """What the worker would be started with."""
    given: list[WorkerOptions] = []

    class Noting:
        def __init__(self, options: WorkerOptions) -> None:
            given.append(options)

        def run(self) -> int:
            return 0

    monkeypatch.setattr(supervisor, "Supervisor", Noting)
    result = CliRunner().invoke(windlass, ["worker", "shop.tasks:app", *typed])
    assert result.exit_code == 0, result.output
    return given[0]


def test_the_limits_of_a_child_arrive_in_their_units(monkeypatch: pytest.MonkeyPatch) -> None:
    typed = ("--max-jobs", "500", "--max-age", "1h30m", "--max-memory", "512MB")
    options = options_of(monkeypatch, *typed)
    limits = (options.max_jobs, options.max_age_ms, options.max_memory)
    assert limits == (500, 90 * 60 * 1000, 512 * 10**6)


def test_there_are_none_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    options = options_of(monkeypatch)
    assert (options.max_jobs, options.max_age_ms, options.max_memory) == (None, None, None)
