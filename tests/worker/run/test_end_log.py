"""The line for each job that ends, and the line that sums up the others."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from tests.worker.yard import Worker, Yard, until
from windlass.core.states import Counters
from windlass.engine.contract import Claim, Outcome, Snoozed, Succeeded
from windlass.worker.run.end_log import MOST_LINES, WINDOW_S, EndLog


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Callable[[], str]:
    monkeypatch.setattr(logging.getLogger("windlass"), "propagate", True)
    caplog.set_level(logging.INFO, "windlass.worker")
    return lambda: "\n".join(record.getMessage() for record in caplog.records)


def end(ends: EndLog, name: str, at: float, outcome: Outcome | None = None) -> None:
    claim = Claim(
        id=name,
        token="t",
        task="resize",
        queue="default",
        priority=0,
        payload=b"",
        counters=Counters(attempt=2),
        created_ms=0,
    )
    if outcome is None and at < ends.silent_until:
        ends.count()  # as a runner does
    else:
        ends.note(claim, outcome or Succeeded(id=name, token="t"), at - 1.24, at)


def test_a_success_has_a_line(lines: Callable[[], str]) -> None:
    end(EndLog(), "one", 100.0)
    assert lines() == "job one of task resize succeeded in 1.2 s, attempt 2"


def test_many_successes_have_one_line_more(lines: Callable[[], str]) -> None:
    ends = EndLog()
    for number in range(500):
        end(ends, str(number), 100.0 + number / 1000)
    assert len(lines().splitlines()) == MOST_LINES
    end(ends, "later", 100.0 + WINDOW_S)
    assert lines().splitlines()[MOST_LINES:] == [
        "480 more jobs succeeded within a second",
        "job later of task resize succeeded in 1.2 s, attempt 2",
    ]


def test_the_number_is_logged_without_another_job(lines: Callable[[], str]) -> None:
    ends = EndLog()
    for number in range(MOST_LINES + 1):
        end(ends, str(number), 100.0)
    ends.flush(100.0 + WINDOW_S / 2)
    assert "more" not in lines()
    ends.flush(100.0 + WINDOW_S)
    assert lines().endswith("\n1 more job succeeded within a second")
    end(ends, "last", 101.0 + WINDOW_S)
    ends.flush()
    assert lines().count("more") == 1


def test_the_end_of_the_child_waits_for_no_second(lines: Callable[[], str]) -> None:
    ends = EndLog()
    for number in range(MOST_LINES + 2):
        end(ends, str(number), 100.0)
    ends.flush()
    assert lines().endswith("\n2 more jobs succeeded within a second")


def test_other_ends_have_lines_at_debug(
    lines: Callable[[], str], caplog: pytest.LogCaptureFixture
) -> None:
    snoozed = Snoozed(id="one", token="t", delay_ms=1)
    end(EndLog(), "one", 100.0, snoozed)
    assert lines() == ""
    caplog.set_level(logging.DEBUG, "windlass.worker")
    ends = EndLog()
    end(ends, "one", 100.0, snoozed)
    assert lines() == "job one of task resize ended as snoozed in 1.2 s, attempt 2"
    for number in range(2 * MOST_LINES):
        end(ends, str(number), 100.0)
    assert len(lines().splitlines()) == 1 + 2 * MOST_LINES


def accounted(worker: Worker) -> int:
    """The successes in the log of a worker."""
    lines = [line for line in worker.log().splitlines() if " succeeded " in line]
    more = [int(line.split("] ")[1].split()[0]) for line in lines if " more job" in line]
    return len(lines) - len(more) + sum(more)


def test_a_worker_accounts_for_every_job(yard: Yard) -> None:
    yard.script.plain.enqueue_many([(str(number), []) for number in range(60)])
    worker = yard.start(burst=True)
    assert worker.wait() == 0
    assert accounted(worker) == 60


@pytest.mark.local
def test_an_idle_worker_has_accounted_for_every_job(yard: Yard) -> None:
    yard.script.plain.enqueue_many([(str(number), []) for number in range(60)])
    worker = yard.start()
    until(lambda: accounted(worker) == 60, "the number of the jobs without a line")
