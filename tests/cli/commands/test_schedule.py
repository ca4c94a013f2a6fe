"""`windlass schedule`: list, next, run, pause, resume, remove."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.cli.conftest import Typing
from tests.cli.shell import Shell
from tests.contract.variants import fresh_url
from windlass import Cron, Every, State, Windlass
from windlass.engine.contract import Filter, ScheduleChange


@pytest.fixture
def nightly(app: Windlass) -> str:
    schedule = Cron("30 3 * * *", tz="Europe/Paris", start=datetime(2030, 3, 29, tzinfo=UTC))
    app.schedules.save("nightly", app.tasks["tasks.add"].bind(1), schedule)
    return "nightly"


def test_list(shell: Shell, app: Windlass, nightly: str) -> None:
    app.schedules.save("hourly", app.tasks["tasks.add"].bind(1), Every("1h"))
    app.schedules.pause("hourly")
    (record,) = app.engine.get_schedules([nightly])
    assert record is not None
    broken = ScheduleChange(
        name="broken", expected="", revision="r", due_ms=5, note=record.note, body=b"{}"
    )
    app.engine.change_schedules([broken])
    lines = shell.type("schedule", "list", "--url", shell.url).out.splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [
        ["broken", "unreadable"],
        ["hourly", "paused"],
        ["nightly", "active"],
    ]
    assert "cron 30 3 * * * in Europe/Paris, from 2030-03-29T00:00:00Z" in lines[3]
    found = shell.type("schedule", "list", "--json", "--url", shell.url).json
    assert [info["name"] for info in found] == ["broken", "hourly", "nightly"]
    assert found[2]["next_at"] == "2030-03-29T02:30:00Z"
    assert shell.type("schedule", "remove", "broken", "--yes", "--url", shell.url).code == 0
    assert [info.name for info in app.schedules.list()] == ["hourly", "nightly"]


def test_no_schedules(shell: Shell, app: Windlass) -> None:
    app.engine.migrate()
    ran = shell.type("schedule", "list", "--url", shell.url)
    assert (ran.code, ran.err) == (0, "No schedules.\n")


def test_the_next_runs_are_shown_by_the_clock_of_their_zone(shell: Shell, nightly: str) -> None:
    """Over the night in which that clock is put forward."""
    lines = shell.type("schedule", "next", nightly, "-n", "3", "--url", shell.url).out.splitlines()
    assert lines[0].split() == ["local", "time", "zone", "UTC", "when"]
    assert [line.split()[:7] for line in lines[1:]] == [
        ["Fri", "2030-03-29", "03:30:00", "Europe/Paris", "Fri", "2030-03-29", "02:30:00"],
        ["Sat", "2030-03-30", "03:30:00", "Europe/Paris", "Sat", "2030-03-30", "02:30:00"],
        ["Sun", "2030-03-31", "03:30:00", "Europe/Paris", "Sun", "2030-03-31", "01:30:00"],
    ]
    found = shell.type("schedule", "next", nightly, "--json", "--url", shell.url).json
    assert (found["zone"], len(found["next"])) == ("Europe/Paris", 5)
    assert found["next"][2] == "2030-03-31T03:30:00+02:00"


def test_run_pause_resume_and_remove(shell: Shell, app: Windlass, nightly: str) -> None:
    ran = shell.type("schedule", "run", nightly, "--url", shell.url)
    (record,) = app.engine.find(Filter()).records
    assert (ran.code, ran.out.strip()) == (0, record.id)
    assert record.state is State.READY
    assert shell.type("schedule", "run", nightly, "--json", "--url", shell.url).json["task"]

    assert "is paused" in shell.type("schedule", "pause", nightly, "--url", shell.url).err
    assert app.schedules.get(nightly).state == "paused"
    assert "only after a resume" in shell.type("schedule", "next", nightly, "--url", shell.url).err
    assert "next run is in" in shell.type("schedule", "resume", nightly, "--url", shell.url).err
    assert app.schedules.get(nightly).state == "active"

    ran = shell.type("schedule", "remove", nightly, "--url", shell.url, answer="n\n")
    assert ran.code == 1
    assert [info.name for info in app.schedules.list()] == [nightly]
    ran = shell.type("schedule", "remove", nightly, "--yes", "--url", shell.url)
    assert (ran.code, app.schedules.list()) == (0, [])


@pytest.mark.parametrize("variant", ["sqlite-file", "redis", "postgres"])
def test_the_end_of_a_name_is_enough(tmp_path: Path, type_here: Typing, variant: str) -> None:
    url = fresh_url(variant, tmp_path)
    with Windlass(url) as app:
        call = app.task_named("add").bind(1)
        for name in ("shop.tasks.nightly", "shop.tasks.tick", "shop.mail.tick"):
            app.schedules.save(name, call, Every("1h"))
        assert type_here("schedule", "pause", "nightly", "--url", url).code == 0
        assert app.schedules.get("shop.tasks.nightly").state == "paused"
        for command in ("run", "next", "resume"):
            assert type_here("schedule", command, "tasks.nightly", "--url", url).code == 0
        told = type_here("schedule", "run", "tick", "--url", url)
        assert told.code == 2
        assert "'tick' is short for several schedules: shop.mail.tick, shop.tasks.tick." in told.err
        told = type_here("schedule", "run", "nigtly", "--url", url)
        assert told.code == 1
        assert "Did you mean shop.tasks.nightly?" in told.err
        assert "Did you mean" not in type_here("schedule", "run", "shop.tasks.gh", "--url", url).err
        assert type_here("schedule", "remove", "mail.tick", "--yes", "--url", url).code == 0
        assert len(app.schedules.list()) == 2


@pytest.mark.parametrize("command", ["next", "run", "pause", "resume", "remove"])
def test_an_unknown_name_is_told_the_nearest(shell: Shell, nightly: str, command: str) -> None:
    ran = shell.type("schedule", command, "nigthly", "--url", shell.url)
    assert ran.code == 1
    assert "Error: There is no schedule nigthly in sqlite" in ran.err
    assert "Did you mean nightly?" in ran.err
