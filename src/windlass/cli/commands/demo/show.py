"""The demo: enqueue, run, kill, watch, and prove that nothing was lost.

1. Enqueue a few hundred jobs of the shop: on a database in a new folder or, if WINDLASS_URL names a
   server, under a new namespace there.
2. Run the jobs by a worker with two children, and show the progress.
3. While jobs run, kill a child with SIGKILL.
4. When all jobs have ended, stop the worker, and compare the ledger of the tasks with the engine.
5. Print how to look at the result, in the terminal and in the dashboard.
"""

from __future__ import annotations

import os
import random
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from windlass.app import Windlass
from windlass.cli.commands.demo.place import choose_url, print_removal, removed_on_error
from windlass.cli.commands.demo.proof import Proof, prove
from windlass.cli.commands.demo.screen import Screen
from windlass.cli.commands.demo.worker_process import describe_exit, start_worker, stop
from windlass.cli.commands.serve import missing_packages
from windlass.cli.support.output import console
from windlass.cli.support.wording import program
from windlass.core import install_command
from windlass.core.quantities import count
from windlass.core.states import FINAL
from windlass.engine.contract import Stats
from windlass.job import Job
from windlass.settings import without_secrets
from windlass.task import Call

#: The time limit of the demo, in seconds.
LONGEST_S: Final = 55.0
#: The share of ended jobs at which a child is killed.
KILL_AT: Final = 0.25
#: The app of the shop.
APP: Final = "windlass.cli.commands.demo.shop:app"
#: How often the terminal is refreshed, in seconds.
REFRESH_S: Final = 0.1


def run_show() -> int:
    """Run the whole demo; return the exit code."""
    folder = Path(tempfile.mkdtemp(prefix="windlass-demo-"))
    ledger = folder / "ledger.txt"
    ledger.touch(mode=0o600)
    url = choose_url(os.environ.get("WINDLASS_URL", ""), folder)
    # The worker's children read these too, each in its own interpreter.
    os.environ["WINDLASS_URL"] = url
    os.environ["DEMO_LEDGER"] = str(ledger)
    with removed_on_error(folder):
        from windlass.cli.commands.demo import shop

    out = console()
    with shop.app, Screen(out) as screen:
        with removed_on_error(folder):
            jobs = enqueue_all(screen)
        worker = start_worker(APP, folder / "worker.log")
        try:
            watch(shop.app, len(jobs), worker, screen)
        finally:
            exit_code = stop(worker)
            screen.note(describe_exit(exit_code, folder / "worker.log"))
        proof = prove(shop.app.engine, [job.id for job in jobs], ledger, exit_code)
    print_summary(out, proof, url, folder)
    return 0 if proof.holds else 1


def enqueue_all(screen: Screen) -> list[Job[Any]]:
    """Enqueue a few hundred jobs, task by task, and the urgent jobs last."""
    started = time.perf_counter()
    jobs: list[Job[Any]] = []
    for task, calls in all_calls():
        jobs += task.enqueue_many(calls)
    elapsed_ms = (time.perf_counter() - started) * 1000
    screen.note(f"{len(jobs)} jobs enqueued in {elapsed_ms:.0f} ms, each one stored")
    return jobs


def all_calls() -> Iterator[tuple[Any, list[Call[Any]]]]:
    from windlass.cli.commands.demo import shop

    yield shop.resize, [shop.resize.bind(f"cat-{n}.jpg", 320) for n in range(260)]
    yield shop.welcome, [shop.welcome.bind(n) for n in range(160)]
    yield shop.charge, [shop.charge.bind(n) for n in range(45)]
    yield shop.report, [shop.report.bind(month) for month in (1, 2)]
    yield shop.refund, [shop.refund.bind(n) for n in range(4)]
    yield shop.newsletter, [shop.newsletter.bind(n) for n in range(4)]
    for n in range(30):
        later = shop.remind.using(run_after=random.uniform(1, 8))
        yield later, [later.bind(n)]
    first = shop.urgent.using(priority=100)
    yield first, [first.bind(n) for n in range(10)]


def watch(app: Windlass, total: int, worker: subprocess.Popen[bytes], screen: Screen) -> None:
    """Wait until all jobs have ended, or until the time limit."""
    deadline = time.monotonic() + LONGEST_S
    killed = False
    while time.monotonic() < deadline:
        stats = app.engine.stats()
        ended = count_ended(stats)
        screen.show(stats, ended, total)
        if ended == total:
            screen.note("every job has ended")
            return
        if worker.poll() is not None:
            screen.note("the worker ended early; the numbers below are incomplete")
            return
        if not killed and ended >= total * KILL_AT:
            killed = kill_a_child(app, screen)
        time.sleep(REFRESH_S)
    screen.note("the demo took too long; the numbers below are incomplete")


def count_ended(stats: Stats) -> int:
    return sum(
        number
        for counts in stats.queues.values()
        for state, number in counts.items()
        if state in FINAL
    )


def kill_a_child(app: Windlass, screen: Screen) -> bool:
    """Kill a child with running jobs. Its pid is in the session id, host.pid.random."""
    for session in app.engine.sessions():
        if session.jobs > 1:
            pid = int(session.session.split(".")[1])
            os.kill(pid, signal.SIGKILL)
            screen.note(
                f"child process {pid} was killed with SIGKILL while it held "
                f"{count(session.jobs, 'job')}"
            )
            return True
    return False


def print_summary(out: Console, proof: Proof, url: str, folder: Path) -> None:
    verdict = "[bold green]Nothing was lost." if proof.holds else "[bold red]Something is wrong."
    shown = shlex.quote(without_secrets(url))
    out.print()
    for line in proof.lines():
        out.print(f"  {line}", markup=False)
    out.print(f"\n{verdict}\n")
    out.print("Inspect the result:", style="bold")
    for command in (
        "status",
        "job list",
        "dead list",
        "dead retry --all",
        f"worker {APP}",
        "check",
    ):
        out.print(f"  {program()} {command} --url {shown}", markup=False)
    out.print("Write your own:", style="bold")
    out.print("  docs/quickstart.md takes five minutes")
    print_removal(out, url, folder)
    out.print("Open the dashboard, on this result or on a shop under load:", style="bold")
    if missing_packages():
        out.print(f"  first {install_command('server')}", markup=False)
    out.print(f"  {program()} dashboard {APP} --url {shown}", markup=False)
    out.print(f"  {program()} demo --serve", markup=False)
