"""`windlass workers quiet`, `resume` and `stop` at a shell, and where their effect is shown."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Typing
from tests.cli.shell import Ran, Shell
from windlass import Windlass, WorkerState
from windlass.core.introduction import Introduction
from windlass.engine.contract import Beat, Plan
from windlass.lost_sessions import LossKind, try_note_loss
from windlass.testing.contract.world import claim_jobs


@pytest.fixture
def fleet(app: Windlass) -> Windlass:
    """Two workers. The first one serves all queues, and has two children."""
    for pid, child, queues in ((10, 11, ()), (10, 12, ()), (20, 21, ("mail",))):
        known = Introduction(host="web", worker=pid, child=child, queues=queues, lease_ms=30_000)
        app.engine.beat([Beat(session=f"web.{child}.x", info=known.pack())])
    return app


def test_the_limits_of_a_worker_that_scales_are_shown(
    shell: Shell, fleet: Windlass, type_here: Typing
) -> None:
    known = Introduction(host="web", worker=30, child=31, least_children=2, most_children=8)
    fleet.engine.beat([Beat(session="web.31.x", info=known.pack())])
    ran = type_here("workers", "--url", shell.url)
    children = {line.split()[1]: line for line in ran.out.splitlines() if line.startswith("web")}
    assert " 1 of 2..8 " in children["30"]
    assert " 2 " in children["10"]
    assert " of " not in children["10"]
    [scaling] = [worker for worker in fleet.workers() if worker.pid == 30]
    assert (scaling.least_children, scaling.most_children) == (2, 8)


def states(app: Windlass) -> dict[str, WorkerState]:
    return {worker.name: worker.state for worker in app.workers()}


QUIET_10 = {"web:10": WorkerState.QUIET, "web:20": WorkerState.RUNNING}


@pytest.mark.parametrize("name", ["web:10", "web.12.x"])
def test_workers_are_made_quiet_and_resumed(
    shell: Shell, fleet: Windlass, type_here: Typing, name: str
) -> None:
    fleet.tasks["tasks.add"].enqueue(1)
    claim_jobs(fleet.engine, "web.11.x", "nonce", Plan(), 1)
    ran = type_here("workers", "quiet", name, "--url", shell.url)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == "Worker web:10 claims no more jobs within 10s and finishes 1 job.\n"
    assert states(fleet) == QUIET_10
    ran = type_here("workers", "resume", name, "--url", shell.url)
    assert (ran.code, ran.out) == (0, "Worker web:10 claims jobs again within 10s.\n")
    assert set(states(fleet).values()) == {WorkerState.RUNNING}


def test_several_workers_are_stopped(shell: Shell, fleet: Windlass, type_here: Typing) -> None:
    ran = type_here("workers", "stop", "web:10", "web:20", "--url", shell.url)
    assert (ran.code, len(ran.out.splitlines())) == (0, 2)
    assert "Worker web:20 begins to stop within 10s.\n" in ran.out
    assert set(states(fleet).values()) == {WorkerState.STOPPING}
    again = type_here("workers", "stop", "web:10", "--url", shell.url)
    assert again.code == 0
    for command in ("quiet", "resume"):
        ran = type_here("workers", command, "web:10", "--url", shell.url)
        assert ran.code == 1
        assert "web:10 is stopping, which cannot be undone: start another one." in ran.out
    assert set(states(fleet).values()) == {WorkerState.STOPPING}


def test_the_answer_as_json(shell: Shell, fleet: Windlass, type_here: Typing) -> None:
    [told] = type_here("workers", "quiet", "web:20", "--json", "--url", shell.url).json
    assert (told["host"], told["pid"], told["state"]) == ("web", 20, "quiet")
    listed = type_here("workers", "--json", "--url", shell.url).json
    assert [one["state"] for one in listed] == ["running", "quiet"]


def test_an_unknown_worker_is_refused_with_the_known_ones(
    shell: Shell, fleet: Windlass, type_here: Typing
) -> None:
    ran = type_here("workers", "quiet", "web:10", "web:30", "--url", shell.url)
    assert (ran.code, ran.out) == (1, "")
    assert "There is no live worker web:30" in ran.err
    assert "web:10, web:20. `windlass workers` lists them." in ran.err
    assert set(states(fleet).values()) == {WorkerState.RUNNING}


@pytest.mark.parametrize("given", [(), ("web:10", "--all")])
def test_workers_are_named_or_all_are_meant(
    shell: Shell, fleet: Windlass, type_here: Typing, given: tuple[str, ...]
) -> None:
    ran = type_here("workers", "stop", *given, "--url", shell.url)
    assert ran.code == 2
    assert "or --all. Live workers: web:10, web:20." in ran.err
    assert set(states(fleet).values()) == {WorkerState.RUNNING}


@pytest.mark.parametrize("answer", ["y\n", "n\n", ""])
def test_all_workers_need_a_confirmation(shell: Shell, fleet: Windlass, answer: str) -> None:
    ran = shell.type("workers", "stop", "--all", "--url", shell.url, answer=answer)
    is_agreed = answer == "y\n"
    assert ran.code == (0 if is_agreed else 1)
    assert f"Stop 2 workers of sqlite {shell.database}? This cannot be undone." in ran.err
    assert ("Nothing was changed. Give --yes to skip the prompt." in ran.err) is not is_agreed
    wanted = WorkerState.STOPPING if is_agreed else WorkerState.RUNNING
    assert set(states(fleet).values()) == {wanted}


def test_all_means_those_that_are_not_stopping(
    shell: Shell, fleet: Windlass, type_here: Typing
) -> None:
    fleet.command_workers(["web:10"], "stop")
    ran = type_here("workers", "quiet", "--all", "--yes", "--url", shell.url)
    assert (ran.code, ran.out) == (0, "Worker web:20 claims no more jobs within 10s.\n")
    fleet.command_workers(["web:20"], "stop")
    ran = type_here("workers", "resume", "--all", "--url", shell.url)
    assert (ran.code, ran.out, ran.err) == (0, "", "No workers.\n")


@pytest.mark.parametrize("option", [("--url", "sqlite:///jobs.db"), ("--json",), ("--app", "a:b")])
def test_options_come_after_the_command(
    fleet: Windlass, type_here: Typing, option: tuple[str, ...]
) -> None:
    ran = type_here("workers", *option, "quiet", "web:10")
    assert ran.code == 2
    assert f"Write {option[0]} after quiet." in ran.err
    assert set(states(fleet).values()) == {WorkerState.RUNNING}


def test_who_commanded_whom_is_in_the_audit_trail(
    shell: Shell, fleet: Windlass, type_here: Typing
) -> None:
    type_here("workers", "quiet", "web.11.x", "--url", shell.url)
    type_here("workers", "stop", "--all", "--yes", "--url", shell.url)
    type_here("workers", "resume", "web:10", "--url", shell.url)
    refused, all_stopped, quiet = fleet.audit.list()
    assert (quiet.action, quiet.subject) == ("workers.quiet", "web.11.x")
    assert (quiet.details["workers"], quiet.outcome) == (["web:10"], "ok")
    assert all_stopped.details["workers"] == ["web:10", "web:20"]
    assert (refused.action, refused.outcome) == ("workers.resume", "refused")


# ------------------------------------------------------------------------------ where it is shown


def test_lists_show_the_state(shell: Shell, fleet: Windlass, type_here: Typing) -> None:
    fleet.command_workers(["web:20"], "quiet")
    for command in (("workers",), ("top", "--once", "--interval", "10ms")):
        rows = type_here(*command, "--url", shell.url).out.splitlines()
        assert [row.split()[2] for row in rows if row.startswith("web ")] == ["running", "quiet"]


def test_a_column_has_the_releases_if_there_are_any(
    shell: Shell, fleet: Windlass, type_here: Typing
) -> None:
    assert "release" not in type_here("workers", "--url", shell.url).out
    known = Introduction(host="web", worker=30, child=31, app="shop:app", lease_ms=30_000)
    for release in ("v1.4.2", "v1.4.3"):  # a child that was replaced has newer code
        session = f"web.31.{release}x@{release}"
        fleet.engine.beat([Beat(session=session, info=known.pack())])
    heads, *rows = type_here("workers", "--url", shell.url).out.splitlines()
    assert heads.split()[-3:] == ["app", "release", "queues"]
    assert "shop:app  v1.4.2, v1.4.3  every queue" in rows[-1]
    assert rows[0].split()[-3:] == ["-", "every", "queue"]


def test_status_counts_sessions_that_claim_nothing(
    shell: Shell, fleet: Windlass, type_here: Typing
) -> None:
    assert "Quiet" not in type_here("status", "--url", shell.url).err
    fleet.command_workers(["web:10"], "quiet")
    fleet.command_workers(["web:20"], "stop")
    said = type_here("status", "--url", shell.url).err
    assert "Active sessions: 3, holding 0 jobs.\n" in said
    assert "Quiet sessions: 2, holding 0 jobs. They claim no jobs: `" in said
    assert "Stopping sessions: 1, holding 0 jobs.\n" in said


def queues_of(ran: Ran) -> list[tuple[str, str]]:
    found = ran.json["findings"]
    return [(one["grade"], one["text"]) for one in found if one["subject"] == "queues"]


def test_doctor_names_queues_whose_workers_claim_nothing(
    shell: Shell, fleet: Windlass, type_here: Typing
) -> None:
    def advice() -> list[tuple[str, str]]:
        return queues_of(type_here("doctor", "--url", shell.url, "--json"))

    fleet.tasks["tasks.add"].enqueue(1)
    fleet.tasks["tasks.add"].using(queue="mail").enqueue(1)
    served = [("ok", "all queues with ready jobs are served")]
    assert advice() == served
    fleet.command_workers(["web:20"], "quiet")
    assert advice() == served, "the other worker serves mail too"
    fleet.command_workers(["web:10"], "quiet")
    default, mail = advice()
    assert default == (
        "advice",
        "default has 1 ready job, and its only workers are quiet: windlass workers resume web:10",
    )
    assert mail[1].endswith("are quiet: windlass workers resume web:10 web:20")
    told = type_here("doctor", "--url", shell.url).out
    assert "2 workers with 3 children, 2 of them quiet" in " ".join(told.split())
    fleet.command_workers(["web:10"], "stop")
    default, mail = advice()
    assert default[1].endswith("its only workers are stopping: start another one")
    assert mail[1].endswith("are quiet: windlass workers resume web:20")


def test_lost_sessions_are_listed(shell: Shell, app: Windlass, type_here: Typing) -> None:
    app.engine.migrate()
    ran = type_here("workers", "--lost", "--url", shell.url)
    assert (ran.code, ran.err) == (0, "No lost sessions.\nNo crash suspects.\n")
    ids = [app.tasks["tasks.add"].enqueue(number).id for number in range(2)]
    assert len(claim_jobs(app.engine, "web.8.a", f"{1:040x}", Plan(), 2).claims) == 2
    app.engine.close("web.8.a", ids, "signal 9")
    known = Introduction(host="web", worker=7)
    try_note_loss(
        app.engine, "web.8.a", LossKind.CRASHED, "signal 9", known, ids, job_count=2, suspects=ids
    )
    ran = type_here("workers", "--lost", "--url", shell.url)
    head, row, _, *suspects = ran.out.splitlines()
    assert head.split() == ["lost", "worker", "session", "kind", "cause", "jobs", "now"]
    assert row.split()[-8:] == ["web:7", "web.8.a", "crashed", "signal", "9", "2", "2", "ready"]
    assert {line.split()[0] for line in suspects} == set(ids)
    found = type_here("workers", "--lost", "--json", "--url", shell.url).json
    assert found["sessions"][0]["session"] == "web.8.a"
    assert len(found["suspects"]["waiting"]) == 2
    ran = type_here("workers", "--lost", "quiet", "web:7", "--url", shell.url)
    assert (ran.code, "--lost is not for quiet" in ran.err) == (2, True)
