"""The log lines of a worker at its start."""

from __future__ import annotations

import logging

import pytest

from windlass.worker.logs.events import describe
from windlass.worker.options import WorkerOptions
from windlass.worker.supervisor.startup_report import log_start


def test_a_started_worker_tells_its_tiers(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "windlass.worker"):
        log_start(WorkerOptions("shop:app", ("critical", "mail:3,hooks:3"), 2, 10))
        log_start(WorkerOptions("shop:app", (), 2, 10))
    first, second = caplog.records
    assert "10 slots, queues critical > mail:3, hooks:3" in first.getMessage()
    assert describe(first.msg, first.args)["queues"] == ["critical", "mail:3,hooks:3"]
    assert "every queue" in second.getMessage()
