"""`windlass status --since` at a shell."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.app.past import Past
from tests.cli.conftest import Typing
from tests.contract.variants import fresh_url
from windlass import Windlass
from windlass.core.history import MINUTE_MS


def nothing() -> None:
    """A task."""


@pytest.fixture(params=["sqlite-file-normal", "redis-4", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place with a past: 60 jobs of one task a minute, 40 runs of it, and a run of another task
    an hour ago."""
    url = fresh_url(request.param, tmp_path)
    with Windlass(url) as app:
        app.task(name="shop.send", queue="mail")(nothing)
        past = Past(app)
        past.go_to(-65)
        past.record("old", "shop.clean", run_s=0.5, succeeded=1)
        past.go_to(-6)  # so that the last sample is in the minute that has begun
        for _ in range(5):
            past.tend()
            app.enqueue_many(app.tasks["shop.send"].bind() for _ in range(60))
            past.record("mail", "shop.send", wait_s=0.02, run_s=2.0, succeeded=30, dead=10)
            app.engine.clock_offset_ms += MINUTE_MS
        past.tend()
    return url


def test_queues_and_tasks_of_the_last_hour(url: str, type_here: Typing) -> None:
    ran = type_here("status", "--since", "30m", "--url", url)
    assert ran.code == 0
    lines = [line.split() for line in ran.out.splitlines()]
    head, row = lines[:2]
    assert " ".join(head[:9]) == "queue ready running next waits in/s out/s wait p50"
    assert " ".join(head[9:]) == "p99 run p50 p99 failed drains in demand"
    assert row[:3] == ["mail", "300", "0"]
    assert row[-3:-1] == ["25%", "never"]
    wait_p50, wait_p99, run_p50, run_p99 = row[-7:-3]
    assert wait_p50.endswith("ms")
    assert wait_p99.endswith("ms")
    assert float(run_p50.removesuffix("s")) == pytest.approx(1.75, abs=0.1)
    assert float(run_p99.removesuffix("s")) == pytest.approx(2.5, abs=0.1)
    assert float(row[-9]) == pytest.approx(1, rel=0.1)
    assert lines[2] == []
    assert " ".join(lines[3]) == "task enqueued runs failed wait p50 p99 run p50 p99"
    assert lines[4][:4] == ["shop.send", "300", "200", "25%"]
    assert len(lines) == 5


def test_more_of_the_past_has_more_tasks(url: str, type_here: Typing) -> None:
    for since in ("2h", "2d", (datetime.now(UTC) - timedelta(hours=2)).isoformat()):
        found = type_here("status", "--since", since, "--json", "--url", url).json
        assert found["tasks"].keys() == {"shop.clean", "shop.send"}
        assert found["queues"]["old"]["run_p99_s"] == pytest.approx(0.5, abs=0.01)
        assert found["queues"]["mail"]["outcomes"]["dead"] == 50
        assert {load["queue"]: load["ready"] for load in found["loads"]} == {"mail": 300, "old": 0}
        assert found["peaks"]["mail"]["ready"] == 300
        assert found["step"] == ("hour" if since == "2d" else "minute")


def test_one_queue_or_task_of_the_past(url: str, type_here: Typing) -> None:
    for option, value in (("--queue", "old"), ("--task", "shop.clean")):
        ran = type_here("status", "--since", "2h", option, value, "--json", "--url", url)
        found = ran.json
        assert found["tasks"].keys() == {"shop.clean"}
        assert found["queues"].keys() == {"old"}
        assert [load["queue"] for load in found["loads"]] == ["old"]
        assert set(found["peaks"]) <= {"old"}
    ran = type_here("status", "--since", "30m", "--task", "nothing", "--url", url)
    assert ran.out == ""
    assert ran.err.endswith("No jobs of the task nothing, and no history since then.\n")


@pytest.mark.parametrize("option", ["--queue", "--task"])
def test_one_queue_or_task_needs_a_time(url: str, type_here: Typing, option: str) -> None:
    ran = type_here("status", option, "mail", "--url", url)
    assert ran.code == 2
    assert f"Expected --since with {option}: add --since 1h, or use " in ran.err
    assert f" job list {option} mail` for the jobs themselves." in ran.err


def test_the_history_says_that_no_worker_runs(url: str, type_here: Typing) -> None:
    ran = type_here("status", "--since", "30m", "--url", url)
    assert "Active sessions: none." in ran.err


def test_the_history_says_what_is_paused(url: str, type_here: Typing) -> None:
    with Windlass(url) as app:
        app.queue("mail").pause()
        app.engine.pause_task("shop.send")
    ran = type_here("status", "--since", "30m", "--url", url)
    assert "Paused: mail." in ran.err
    assert "Paused tasks: shop.send." in ran.err


def test_without_a_past(tmp_path: Path, type_here: Typing) -> None:
    url = f"sqlite:///{tmp_path}/empty.db"
    with Windlass(url) as app:
        app.engine.migrate()
    ran = type_here("status", "--since", "1h", "--url", url)
    assert (ran.code, ran.out) == (0, "")
    assert ran.err.endswith("No jobs, and no history since then.\n")


@pytest.mark.parametrize(
    ("since", "message"),
    [
        ("40d", "since must be at most 30d ago with the step hour, found 40d"),
        ("soon", "expected an age such as 90s"),
        ("2100-01-01T00:00+00:00", "since must be before now"),
    ],
)
def test_what_cannot_be_read_is_refused(
    tmp_path: Path, type_here: Typing, since: str, message: str
) -> None:
    url = f"sqlite:///{tmp_path}/empty.db"
    with Windlass(url) as app:
        app.engine.migrate()
    ran = type_here("status", "--since", since, "--url", url)
    assert ran.code == 2
    assert message in " ".join(ran.err.split())
