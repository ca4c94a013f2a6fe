"""`windlass copy`: what it copies, what it prints, and its exit codes."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from pathlib import Path
from typing import Final

from tests.cli.shell import Shell
from tests.contract.variants import fresh_url
from tests.worker.yard import until
from windlass import State, Windlass
from windlass.engine.contract import Plan, Succeeded
from windlass.testing.contract.world import claim_jobs

TO: Final = "sqlite:///new.db"
#: A task that waits for a file.
SLOW: Final = """
import pathlib
import time

from windlass import State, Windlass

app = Windlass("sqlite:///jobs.db?durability=normal")


@app.task
def add(a: int, b: int = 2) -> int:
    while not pathlib.Path("go").exists():
        time.sleep(0.01)
    return a + b
"""


def enqueue(shell: Shell, number: int = 3, queue: str = "default") -> None:
    with Windlass(shell.url) as app:
        task = app.task(name="tasks.add")(add).using(queue=queue)
        task.enqueue_many((at,) for at in range(number))


def add(a: int, b: int = 2) -> int:
    return a + b


def target_of(shell: Shell) -> str:
    return f"sqlite:///{shell.folder}/new.db"


def ready_at(url: str) -> int:
    """How many jobs a worker could claim."""
    with Windlass(url) as app:
        engine = app.engine
        claims = claim_jobs(engine, f"looks-{os.urandom(8).hex()}", "1" * 40, Plan(), 1_000).claims
        return len(claims)


def test_jobs_are_copied_and_the_counts_of_both_sides_are_printed(shell: Shell) -> None:
    enqueue(shell)
    ran = shell.type("copy", "--from", shell.url, "--to", TO)
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert [line.split() for line in lines] == [
        ["queue", "state", "source", "target"],
        ["default", "ready", "3", "3"],
    ]
    assert "3 jobs copied in this run, 0 idempotency keys, 0 schedules." in ran.err
    assert "keeps its jobs, with all queues and schedules paused: do not resume them." in ran.err
    again = shell.type("copy", "--from", shell.url, "--to", TO)
    assert (again.code, again.out) == (0, "")
    assert "This run looked only at jobs that came after the first copy." in again.err
    assert ready_at(target_of(shell)) == 3
    assert ready_at(shell.url) == 0


def test_nothing_advises_to_resume_the_queues_of_a_source(shell: Shell) -> None:
    enqueue(shell)
    assert shell.type("copy", "--from", shell.url, "--to", TO).code == 0
    source = shell.type("doctor", "--url", shell.url)
    assert source.code == 0  # no ready job waits for a worker
    assert "default is paused, and 3 jobs wait there: `windlass copy` has paused it" in source.out
    assert f"copied to sqlite {shell.folder}/new.db. Do not resume it" in source.out
    shown = shell.type("status", "--url", shell.url)
    assert "Paused: default. Jobs of this engine are copied to sqlite" in shown.err
    assert "queue resume" not in source.out + shown.out + shown.err


def test_the_queues_of_a_source_are_resumed_only_with_consent(shell: Shell) -> None:
    enqueue(shell)
    assert shell.type("copy", "--from", shell.url, "--to", TO).code == 0
    resume = ("queue", "resume", "default", "--url", shell.url)
    refused = shell.type(*resume)
    assert refused.code == 1
    assert "jobs of the queue default would run on both sides" in refused.err
    assert "Paused: default" in shell.type("status", "--url", shell.url).err
    assert shell.type(*resume, "--yes").code == 0


def test_copied_jobs_are_jobs_that_were_stored(shell: Shell) -> None:
    enqueue(shell)
    assert shell.type("copy", "--from", shell.url, "--to", TO).code == 0
    assert "none was ever stored" not in shell.type("doctor", "--url", TO).out
    assert ready_at(target_of(shell)) == 3


def test_the_report_as_json(shell: Shell) -> None:
    enqueue(shell, 2)
    ran = shell.type("copy", "--from", shell.url, "--to", TO, "--json")
    assert ran.code == 0
    assert ran.json == {
        "source": f"sqlite {shell.database}",
        "target": f"sqlite {shell.folder}/new.db",
        "is_complete": True,
        "is_late": False,
        "copied": 2,
        "newer": 0,
        "renamed": 0,
        "jobs": [{"queue": "default", "state": "ready", "source": 2, "target": 2}],
        "refused": [],
        "keys": 0,
        "schedules": 0,
    }


def test_another_engine_is_the_target(shell: Shell, tmp_path: Path) -> None:
    enqueue(shell)
    redis = fresh_url("redis-4", tmp_path)
    assert shell.type("copy", "--from", shell.url, "--to", redis).code == 0
    assert shell.type("copy", "--from", redis, "--to", TO).code == 0
    assert shell.type("check", "--url", TO).code == 0
    assert ready_at(target_of(shell)) == 3


def test_sides_that_differ_exit_with_1(shell: Shell) -> None:
    with Windlass(shell.url) as source, Windlass(target_of(shell)) as target:
        jobs = [
            app.task(name="tasks.add")(add).using(idempotency_key="order 1").enqueue(1)
            for app in (source, target)
        ]
    ran = shell.type("copy", "--from", shell.url, "--to", TO)
    assert ran.code == 1
    assert ran.out.splitlines()[1].split() == ["default", "ready", "1", "0"]
    assert f"{jobs[0].id}: another job of the target holds its key." in ran.err
    assert "in the target, other jobs hold the keys of 1 job. Cancel one of the two" in ran.err
    assert (
        shell.type("copy", "--from", shell.url, "--to", TO, "--json").json["is_complete"] is False
    )
    assert shell.type("job", "cancel", jobs[0].id, "--url", shell.url).code == 0
    assert shell.type("copy", "--from", shell.url, "--to", TO).code == 0
    assert ready_at(target_of(shell)) == 1


def test_live_workers_are_refused_or_drained(shell: Shell) -> None:
    enqueue(shell, 1)
    (shell.folder / "tasks.py").write_text(SLOW, encoding="utf-8")
    worker = shell.start("worker", "tasks:app", "-p", "1", "-q", "default")
    try:
        with Windlass(shell.url) as app:
            until(lambda: app.stats().jobs.get(State.RUNNING), "a running job")
            refused = shell.type("copy", "--from", shell.url, "--to", TO)
            assert refused.code == 1
            assert "Stop them, or give --drain" in refused.err
            assert not (shell.folder / "new.db").exists()
            enqueue(shell, 2, "other")
            copy = shell.start("copy", "--from", shell.url, "--to", TO, "--drain")
            until(app.engine.queues, "a paused queue")
            (shell.folder / "go").touch()
            out, err = copy.communicate(timeout=60)
        assert copy.returncode == 0, err
        assert "Stop its workers, which are quiet." in err
        assert out.splitlines()[1].split() == ["other", "ready", "2", "2"]
    finally:
        worker.send_signal(signal.SIGINT)
        worker.communicate(timeout=60)


def test_a_copy_can_be_undone(shell: Shell) -> None:
    enqueue(shell)
    with Windlass(target_of(shell)) as app:  # so that the copy is not complete
        app.task(name="tasks.add")(add).using(idempotency_key="k").enqueue(1)
    with Windlass(shell.url) as app:
        app.task(name="tasks.add")(add).using(idempotency_key="k").enqueue(1)
    assert shell.type("copy", "--from", shell.url, "--to", TO).code == 1
    assert ready_at(shell.url) == 0
    undone = shell.type("copy", "--from", shell.url, "--to", TO, "--undo")
    assert undone.code == 0
    assert undone.out == (
        f"The copy is undone. sqlite {shell.database} is open as before; sqlite "
        f"{shell.folder}/new.db has no copied jobs.\n"
    )
    assert (ready_at(shell.url), ready_at(target_of(shell))) == (4, 1)
    again = shell.type("copy", "--from", shell.url, "--to", TO, "--undo", "--json")
    assert again.code == 1
    assert "there is nothing to undo" in again.err


def test_an_undo_as_json(shell: Shell) -> None:
    with Windlass(shell.url) as app, Windlass(target_of(shell)) as other:
        for one in (app, other):
            one.task(name="tasks.add")(add).using(idempotency_key="k").enqueue(1)
    assert shell.type("copy", "--from", shell.url, "--to", TO).code == 1
    undone = shell.type("copy", "--from", shell.url, "--to", TO, "--undo", "--json").json
    assert undone["undone"] is True


def test_mistakes(shell: Shell) -> None:
    enqueue(shell, 1)
    for words, said in (
        ((), "Missing option '--from'"),
        (("--from", shell.url), "Missing option '--to'"),
        (("--from", shell.url, "--to", "nonsense"), "The setting url must be text such as"),
        (("--from", shell.url, "--to", "sqlite:///:memory:"), "exist only in the process"),
        (("--from", shell.url, "--to", TO, "--drain", "--undo"), "--drain is not for --undo"),
    ):
        ran = shell.type("copy", *words)
        assert (ran.code, said in ran.err) == (2, True), ran.err
    same = shell.type("copy", "--from", shell.url, "--to", "sqlite:///jobs.db")
    assert (same.code, "are the same place" in same.err) == (1, True)
    missing = shell.type("copy", "--from", "sqlite:///none.db", "--to", TO)
    assert (missing.code, "There is no database" in missing.err) == (1, True)
    away = shell.type("copy", "--from", shell.url, "--to", "redis://127.0.0.1:1/0")
    assert away.code == 3


def test_both_sides_have_an_entry_in_their_audit_trail(shell: Shell) -> None:
    enqueue(shell, 1)
    assert shell.type("copy", "--from", shell.url, "--to", TO).code == 0
    for url in (shell.url, TO):
        (entry,) = shell.type("audit", "--url", url, "--json").json
        assert (entry["action"], entry["outcome"]) == ("copy", "ok")
        assert entry["details"] == {
            "source": f"sqlite {shell.database}",
            "target": f"sqlite {shell.folder}/new.db",
            "copied": 1,
            "complete": True,
        }


def test_ctrl_c_ends_a_copy_that_then_goes_on(shell: Shell) -> None:
    enqueue(shell, 1)
    with Windlass(shell.url) as app:
        (claim,) = claim_jobs(app.engine, "silent", "1" * 40, Plan(), 1).claims
        copy = shell.start("copy", "--from", shell.url, "--to", TO, "--drain")
        until(app.engine.queues, "a paused queue")
        copy.send_signal(signal.SIGINT)
        out, err = copy.communicate(timeout=60)
        assert (copy.returncode, out) == (1, "")
        assert "Stopped between two steps. Both sides stay paused" in err
        app.engine.finish([Succeeded(id=claim.id, token=claim.token)])
        app.engine.close("silent", [], "ended")
    assert shell.type("copy", "--from", shell.url, "--to", TO).code == 0


def test_a_copy_that_is_killed_again_and_again_copies_each_job_once(
    shell: Shell, tmp_path: Path
) -> None:
    """The proof `copy` does this with more jobs and more kills."""
    number, rng = 2_000, random.Random(5)
    enqueue(shell, number)
    redis = fresh_url("redis", tmp_path)
    kills = 0
    for source, target in ((shell.url, redis), (redis, target_of(shell))):
        for _ in range(2):
            kills += kill_on_its_way(shell, source, target, saves=rng.randrange(1, 4))
        assert shell.type("copy", "--from", source, "--to", target).code == 0
    assert kills > 1
    with Windlass(target_of(shell)) as app:
        ran = Counter[str]()
        while claims := claim_jobs(app.engine, "s", f"{len(ran):040}", Plan(), 500).claims:
            ran.update(claim.id for claim in claims)
            app.engine.finish([Succeeded(id=one.id, token=one.token) for one in claims])
        assert (len(ran), set(ran.values())) == (number, {1})
        assert app.engine.check() == []


def kill_on_its_way(shell: Shell, source: str, target: str, saves: int) -> bool:
    """Start a copy, and kill it after it has saved its state this often; return whether it had not
    ended before."""
    with Windlass(source) as app:
        seen = {revision_of(app)}

        def has_saved() -> bool:
            seen.add(revision_of(app))
            return len(seen) > saves or copy.poll() is not None

        copy = shell.start("copy", "--from", source, "--to", target)
        until(has_saved, "a few pages")
        copy.kill()
        copy.communicate(timeout=60)
        return copy.returncode == -signal.SIGKILL


def revision_of(app: Windlass) -> str:
    (state,) = app.engine.get_documents("copy", ["state"])
    return "" if state is None else state.revision
