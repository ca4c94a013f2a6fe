"""`windlass top` and `windlass workers` at a shell."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import time
from typing import Any

import msgspec
import pytest

from tests.app.hand import Hand
from tests.app.past import Past
from tests.cli.forks import SCRIPT
from tests.cli.shell import Shell
from windlass import Windlass
from windlass.cli.commands.top import SHOWN_WORKERS, Looks
from windlass.core.history import MINUTE_MS
from windlass.core.ids import new_id
from windlass.core.introduction import HTTP, Introduction, RemoteIntroduction
from windlass.engine.contract import Beat, NewJob, Plan
from windlass.fleet import read_fleet
from windlass.queue_loads import read_loads
from windlass.testing.contract.world import claim_jobs


def test_without_workers_it_says_so(shell: Shell, app: Windlass) -> None:
    app.engine.migrate()
    ran = shell.type("workers", "--url", shell.url)
    assert (ran.code, ran.out, ran.err) == (0, "", "No workers.\n")
    assert shell.type("workers", "--json", "--url", shell.url).json == []


def test_what_a_worker_says_of_itself_is_inert(shell: Shell, app: Windlass) -> None:
    info = Introduction(host="\x1b[31mevil\n", worker=7, app="[red]x[/red]").pack()
    app.engine.beat([Beat(session="host.7.abc", info=info), Beat(session="s", info=b"no JSON")])
    for command in (("workers",), ("top", "--once", "--interval", "10ms")):
        ran = shell.type(*command, "--url", shell.url)
        assert r"\x1b[31mevil" in ran.out
        assert "[red]x[/red]" in ran.out
        assert all(char.isprintable() or char == "\n" for char in ran.out)


def test_a_remote_worker_is_shown_by_name_without_its_secret(shell: Shell, app: Windlass) -> None:
    known = RemoteIntroduction(
        host="billing", kind=HTTP, tasks=("charge",), slots=2, principal="token:js", secret="hush"
    )
    beats = [Beat(session=f"~billing.0.{n}", info=known.pack()) for n in range(2)]
    app.engine.beat(beats)
    shown = shell.type("workers", "--url", shell.url).out
    assert shown.splitlines()[1].split()[:5] == ["billing", "http", "running", "2", "4"]
    listed = shell.type("workers", "--json", "--url", shell.url)
    [worker] = listed.json
    assert (worker["host"], worker["kind"], worker["tasks"]) == ("billing", "http", ["charge"])
    assert "hush" not in listed.out + shown
    assert (
        "billing http" in shell.type("top", "--once", "--interval", "10ms", "--url", shell.url).out
    )


def test_in_a_pipe_no_line_is_cut(shell: Shell, app: Windlass) -> None:
    name = "a" * 150
    app.engine.beat([Beat(session="h.7.x", info=Introduction(host="h", worker=7, app=name).pack())])
    command = ("top", "--once", "--interval", "10ms", "--url", shell.url)
    assert name in shell.type(*command, TERM="xterm", FORCE_COLOR="1").out
    shown = shell.type(*command).out
    assert name in shown
    assert "every queue" in shown
    assert all(line == line.rstrip() for line in shown.splitlines())


def test_a_session_whose_lease_has_run_out_is_not_there(app: Windlass) -> None:
    app.engine.beat([Beat(session="host.7.abc", info=Introduction(host="h", worker=7).pack())])
    assert [worker.pid for worker in read_fleet(app.engine)] == [7]
    app.engine.clock_offset_ms += app.settings.lease_ms + 1_000
    assert len(app.engine.sessions()) == 1
    assert read_fleet(app.engine) == []


def test_rates_are_the_difference_of_two_looks(app: Windlass, hand: Hand) -> None:
    looks = Looks(app.engine)
    looks.take()
    begin = time.monotonic()
    for _ in range(10):
        app.tasks["tasks.add"].enqueue(1)
    rates = looks.take().rates
    assert 10 / (time.monotonic() - begin + 0.1) <= rates["enqueued"] <= 10 / 0.001
    assert rates["succeeded"] == 0
    assert looks.take().rates["enqueued"] == 0


def test_in_a_pipe_it_wants_to_be_told_when_to_end(shell: Shell, app: Windlass) -> None:
    app.engine.migrate()
    ran = shell.type("top", "--url", shell.url)
    assert ran.code == 2
    assert "Use --once or --json in scripts" in ran.err


def test_tiers_are_told_apart(shell: Shell, app: Windlass) -> None:
    known = Introduction(host="h", worker=7, queues=("critical", "mail:3,hooks:3", "bulk"))
    app.engine.beat([Beat(session="h.7.x", info=known.pack())])
    for command in (("workers",), ("top", "--once", "--interval", "10ms")):
        ran = shell.type(*command, "--url", shell.url)
        assert "critical > mail:3, hooks:3 > bulk" in ran.out


def test_as_many_workers_as_there_is_room_for(shell: Shell, app: Windlass) -> None:
    app.engine.migrate()
    command = ("top", "--once", "--interval", "10ms", "--url", shell.url)
    assert "No workers." in shell.type(*command).out
    pids = range(1000, 1500)
    infos = [Introduction(host="h", worker=pid, slots=1).pack() for pid in pids]
    app.engine.beat(
        [Beat(session=f"h.{pid}.x", info=info) for pid, info in zip(pids, infos, strict=True)]
    )
    app.engine.put([NewJob(id=new_id(1), task="t", queue="default", payload=b"")])
    claim_jobs(app.engine, "h.1499.x", "nonce", Plan(), 1)
    shown = shell.type(*command).out
    assert "h 1499" in shown, "the busy one"
    assert shown.count("h 1") == SHOWN_WORKERS
    assert "and 480 more" in shown
    assert len(shell.type("workers", "--json", "--url", shell.url).json) == 500


def test_an_interval_of_nothing_is_refused(shell: Shell) -> None:
    ran = shell.type("top", "--interval", "0", "--url", shell.url)
    assert ran.code == 2
    assert "--interval" in ran.err


def test_on_a_terminal_it_goes_on_until_interrupted(shell: Shell, app: Windlass) -> None:
    app.tasks["tasks.add"].enqueue(1)
    ours, theirs = pty.openpty()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # else it may be ignored
    watching = subprocess.Popen(
        [SCRIPT, "top", "--interval", "50ms", "--url", shell.url],
        env={**shell.environment({"TERM": "xterm"}), "COLUMNS": "120", "LINES": "30"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    signal.signal(signal.SIGINT, before)
    os.close(theirs)
    sent = ""
    while sent.count("next waits") < 3:  # drawn again and again
        sent += os.read(ours, 65536).decode()
    watching.send_signal(signal.SIGINT)
    try:
        while chunk := os.read(ours, 65536):
            sent += chunk.decode()
    except OSError:
        pass  # the other end is closed
    os.close(ours)
    assert watching.wait(20) == 0
    assert "default" in sent
    assert "No longer watching" in sent


@pytest.mark.parametrize("columns", [100, 80, 60])
def test_a_narrow_terminal_cuts_no_number(shell: Shell, app: Windlass, columns: int) -> None:
    past = Past(app)
    past.go_to(-1)
    past.record("default", "tasks.add", run_s=2.0, succeeded=30, dead=10)
    ours, theirs = pty.openpty()
    looking = subprocess.Popen(
        [SCRIPT, "top", "--once", "--interval", "10ms", "--url", shell.url],
        env={**shell.environment({"TERM": "xterm"}), "COLUMNS": str(columns), "LINES": "30"},
        stdout=theirs,
    )
    os.close(theirs)
    sent = ""
    try:
        while chunk := os.read(ours, 65536):
            sent += chunk.decode()
    except OSError:
        pass  # the other end is closed
    os.close(ours)
    assert looking.wait(20) == 0
    assert "drains in" in sent
    assert "25%" in sent
    assert "\N{HORIZONTAL ELLIPSIS}" not in sent


def test_one_document(shell: Shell, app: Windlass) -> None:
    app.tasks["tasks.add"].enqueue(1)
    ran = shell.type("top", "--json", "--interval", "10ms", "--url", shell.url)
    document: Any = msgspec.json.decode(ran.out)
    assert document.keys() == {"engine", "stats", "rates", "loads", "activity", "workers"}
    assert document["stats"]["queues"] == {"default": {"ready": 1}}
    assert document["stats"]["enqueued"] == {"default": {"tasks.add": 1}}


def test_the_load_is_that_of_the_reader(shell: Shell, app: Windlass) -> None:
    """The same numbers as `/v1/scale`, and the rates and times of the last minutes."""
    past = Past(app)
    past.go_to(-7)
    for _ in range(7):
        past.tend()
        app.enqueue_many(app.tasks["tasks.add"].bind(1) for _ in range(60))
        past.record("default", "tasks.add", run_s=2.0, succeeded=30, dead=10)
        app.engine.clock_offset_ms += MINUTE_MS
    past.tend()
    app.engine.clock_offset_ms = 0
    document: Any = shell.type("top", "--json", "--interval", "10ms", "--url", shell.url).json
    (load,) = document["loads"]
    (read,) = read_loads(app.engine)
    assert (load["ready"], load["demand_slots"]) == (read.ready, read.demand_slots)
    assert load["demand_slots"] >= 2 + 420 * 2 // 60
    assert load["in_rate"] == pytest.approx(1, rel=0.1)
    assert document["activity"]["default"]["failure_rate"] == 0.25
    shown = shell.type("top", "--once", "--interval", "10ms", "--url", shell.url).out
    head, row = (line.split() for line in shown.splitlines()[6:8])
    assert head[-3:] == ["drains", "in", "demand"]
    assert row[:3] == ["default", "420", "0"]
    assert row[-3:] == ["25%", "never", str(read.demand_slots)]
