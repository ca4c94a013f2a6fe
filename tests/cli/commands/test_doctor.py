"""`windlass doctor`: a line for each finding, an exit code, and no traceback."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.cli.conftest import Typing
from tests.cli.shell import Shell
from tests.contract.variants import fresh_url
from tests.redis_server import free_port, private_server, shared_server
from windlass import Windlass
from windlass.cli.support.checks import MANY_DEAD, dead_letters, examine_jobs
from windlass.cli.support.wording import never_stored
from windlass.core.introduction import Introduction
from windlass.engine.contract import Beat, Finding, Grade, Plan, Unroutable
from windlass.testing.contract.world import claim_jobs
from windlass.worker.ipc.process_identity import machine, start_of

VERDICTS = {"ok", "advice", "problem"}


def test_a_file(shell: Shell, app: Windlass) -> None:
    app.engine.migrate()
    ran = shell.type("doctor", "--url", shell.url)
    head, *lines = ran.out.splitlines()
    assert ran.code == 0, ran.out
    assert head.split() == ["grade", "subject", "text"]
    assert {line.split()[0] for line in lines} <= VERDICTS
    assert any(line.split()[:3] == ["ok", "journal", "WAL,"] for line in lines)
    assert ran.err.startswith(f"sqlite {shell.database}: ")


def test_a_server(shell: Shell) -> None:
    server = shared_server()
    ran = shell.type("doctor", "--json", WINDLASS_URL=server.url(namespace="of-doctor"))
    assert (ran.code, ran.err) == (0, "")
    assert ran.json["engine"] == f"redis 127.0.0.1:{server.port}/0 (namespace of-doctor)"
    by_subject = {finding["subject"]: finding for finding in ran.json["findings"]}
    assert by_subject["eviction"]["grade"] == "ok"
    assert by_subject["persistence"]["grade"] == "advice"
    assert {finding["grade"] for finding in by_subject.values()} <= VERDICTS


def test_the_app_names_the_engine(shell: Shell, app: Windlass) -> None:
    app.engine.migrate()
    ran = shell.type_with_app("doctor")
    assert ran.code == 0
    assert re.search("advice +durability +normal", ran.out)


def test_a_problem_is_told_by_the_exit_code(shell: Shell, app: Windlass) -> None:
    app.engine.migrate()
    shell.database.chmod(0o666)
    ran = shell.type("doctor", "--url", shell.url)
    assert ran.code == 1
    assert re.search("problem +permissions +others may write to jobs.db", ran.out)
    assert "1 problem" in ran.err


def test_a_server_that_would_be_refused_is_looked_at(shell: Shell) -> None:
    server = private_server("--maxmemory-policy", "allkeys-lru", "--appendonly", "no")
    try:
        ran = shell.type("doctor", "--url", server.url())
    finally:
        server.end()
    assert ran.code == 1
    assert "problem  eviction" in ran.out
    assert "problem  persistence" in ran.out
    assert "2 problems" in ran.err


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_server_that_is_away_is_a_finding(shell: Shell, options: tuple[str, ...]) -> None:
    port = free_port()
    ran = shell.type("doctor", *options, "--url", f"redis://:secret@127.0.0.1:{port}/0")
    assert ran.code == 3
    assert "Traceback" not in ran.err
    assert "secret" not in ran.out + ran.err
    assert f"The Redis server at 127.0.0.1:{port}/0 did not answer" in ran.out
    if options:
        assert ran.json["findings"][-1]["subject"] == "connection"


def test_a_wrong_password_is_a_finding(shell: Shell) -> None:
    ran = shell.type("doctor", "--url", shared_server().url_for("unknown"))
    assert ran.code == 1
    assert "problem  connection" in ran.out
    assert "refused the login" in ran.out


def test_no_database_is_made(shell: Shell) -> None:
    ran = shell.type("doctor", "--json", "--url", shell.url)
    assert (ran.code, ran.err) == (1, "")
    by_subject = {finding["subject"]: finding for finding in ran.json["findings"]}
    assert by_subject["file"]["grade"] == "problem"
    assert f"there is no database {shell.database} yet" in by_subject["file"]["text"]
    assert by_subject["jobs"]["text"] == never_stored("sqlite")
    assert not list(shell.folder.glob("jobs.db*"))


def test_neither_an_app_nor_a_url(shell: Shell) -> None:
    ran = shell.type("doctor")
    assert ran.code == 1
    assert "Neither an app nor a url was given" in ran.err


def findings(type_here: Typing, **environment: str) -> dict[str, tuple[str, str]]:
    ran = type_here("doctor", "--json", **environment)
    return {one["subject"]: (one["grade"], one["text"]) for one in ran.json["findings"]}


def test_the_program_is_looked_at(app: Windlass, type_here: Typing) -> None:
    app.engine.migrate()
    found = findings(type_here, WINDLASS_APP="tasks:app", WINDLASS_URL="sqlite:///other.db")
    assert found["program"][1].startswith("Python 3.")
    assert found["app"] == ("ok", "tasks:app, 4 tasks")
    assert found["settings"][0] == "advice"
    assert "WINDLASS_URL ignored" in found["settings"][1]
    assert found["format"][0] == "ok"
    assert found["round trip"][0] == "ok"


def test_an_app_that_cannot_be_imported_is_a_finding(shell: Shell, type_here: Typing) -> None:
    (shell.folder / "tasks.py").write_text("1 / 0")
    ran = type_here("doctor", "--json", "--app", "tasks:app")
    assert ran.code == 2
    [finding] = ran.json["findings"]
    assert (finding["grade"], finding["subject"]) == ("problem", "app")
    assert "ZeroDivisionError: division by zero (tasks.py, line 1)" in finding["text"]


def test_modules_to_be_included_are_looked_at(
    shell: Shell, app: Windlass, type_here: Typing
) -> None:
    app.engine.migrate()
    text = f"app = Windlass({shell.url!r}, include=['no_such_module'])\n"
    (shell.folder / "lone.py").write_text(f"from windlass import Windlass\n{text}")
    ran = type_here("doctor", "--app", "lone:app", "--json")
    assert ran.code == 2
    assert "The module no_such_module" in ran.json["findings"][0]["text"]


def test_jobs_that_nobody_runs(shell: Shell, app: Windlass, type_here: Typing) -> None:
    environment = {"WINDLASS_URL": shell.url}
    app.engine.migrate()
    found = findings(type_here, **environment)
    assert found["workers"][0] == "advice"
    assert found["jobs"] == ("advice", never_stored("sqlite"))
    task = app.tasks["tasks.add"]
    task.using(queue="mail").enqueue(1)
    app.queue("mail").pause()
    found = findings(type_here, **environment)
    assert found["workers"][0] == "problem"
    assert "1 ready job will wait" in found["workers"][1]
    assert found["queues"][0] == "advice"
    assert "mail is paused, and 1 job waits there" in found["queues"][1]
    app.queue("mail").resume()
    task.pause()
    found = findings(type_here, **environment)
    assert found["tasks"][0] == "advice"
    resumes = "tasks.add is paused, and its jobs wait: windlass task resume tasks.add resumes it"
    assert resumes in found["tasks"][1]
    task.resume()
    app.task_named("pay").pause()  # without jobs
    assert "tasks" not in findings(type_here, **environment)
    known = Introduction(host="h", worker=7, queues=("default:5,low:1",))
    app.engine.beat([Beat(session="h.7.x", info=known.pack())])
    app.queue("mail").resume()
    found = findings(type_here, **environment)
    assert found["workers"] == ("ok", "1 worker with 1 child")
    assert found["queues"][0] == "problem"
    assert "mail has 1 ready job, and no worker serves it" in found["queues"][1]


@pytest.mark.parametrize(
    ("queues", "options"),
    [((), "--label gpu --label large"), (("mail",), "-q default --label gpu --label large")],
    ids=["the label is missing", "queue and label are missing"],
)
def test_jobs_that_wait_for_a_label(app: Windlass, queues: tuple[str, ...], options: str) -> None:
    app.tasks["tasks.add"].using(requires=["gpu", "large"]).enqueue(1)
    known = Introduction(host="h", worker=7, queues=queues)
    app.engine.beat([Beat(session="h.7.x", info=known.pack())])
    found = {finding.subject: finding for finding in examine_jobs(app)}
    assert found["queues"] == Finding(
        Grade.PROBLEM,
        "queues",
        "default has 1 ready job, waiting for gpu and large, and no worker serves it: start one "
        f"with {options}",
    )


@pytest.mark.parametrize("variant", ["sqlite-file", "redis-4", "postgres"])
def test_a_worker_without_heartbeats(variant: str, tmp_path: Path) -> None:
    def findings() -> list[Finding]:
        return [one for one in examine_jobs(app) if one.subject == "workers"]

    with Windlass(fresh_url(variant, tmp_path)) as app:
        for number, session in enumerate(("h.7.x", "h.8.x"), start=7):
            known = Introduction(host="h", worker=number, lease_ms=30_000)
            app.engine.beat([Beat(session=session, info=known.pack())])
        app.task_named("charge").enqueue()
        claim_jobs(app.engine, "h.7.x", "nonce", Plan(), 1)
        app.engine.clock_offset_ms = 14_000
        assert findings() == [Finding(Grade.OK, "workers", "2 workers with 2 children")]
        app.engine.beat([Beat(session="h.8.x")])
        app.engine.clock_offset_ms = 16_500
        well, silent = findings()
        assert well.text == "1 worker with 1 child"
        assert silent.grade is Grade.ADVICE
        assert silent.text == (
            "worker 7 on h has not sent a heartbeat for 16s: check that it runs. Its 1 job returns "
            "to the queue when its lease ends, in 13s"
        )


@pytest.mark.skipif(not machine(), reason="without /proc no process is recognised")
@pytest.mark.parametrize("variant", ["sqlite-file", "redis-4", "postgres"])
def test_a_worker_that_died_here_is_seen_at_once(
    variant: str, tmp_path: Path, type_here: Typing
) -> None:
    def findings() -> dict[str, str]:
        found = type_here("doctor", "--json", "--url", url).json["findings"]
        return {f"{one['grade']} {one['subject']}": one["text"] for one in found}

    url = fresh_url(variant, tmp_path)
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    pid, start = process.pid, start_of(process.pid)
    known = Introduction(
        host="h",
        worker=pid,
        child=pid,
        worker_start=start,
        child_start=start,
        machine=machine(),
        lease_ms=30_000,
    )
    elsewhere = replace(known, worker=pid + 1, machine="another")
    with process, Windlass(url) as app:
        for session, said in (("h.7.x", known), ("h.8.x", elsewhere)):
            app.engine.beat([Beat(session=session, info=said.pack())])
        for _ in range(2):
            app.task_named("charge").enqueue()
        claim_jobs(app.engine, "h.7.x", "nonce", Plan(), 1)
        assert findings()["ok workers"] == "2 workers with 2 children"
        process.kill()
        process.wait()
        found = findings()
        assert found["ok workers"] == "1 worker with 1 child", "another machine has other pids"
        assert re.fullmatch(
            f"worker {pid} on h, this machine, has died. Its 1 job returns to the queue when a "
            r"worker starts here, or in (2\d|30)s",
            found["advice workers"],
        )
        app.engine.close("h.8.x", (), "")
        found = findings()
        assert "1 ready job will wait until one starts" in found["problem workers"]
        assert "has died" in found["advice workers"]
        assert "ok queues" not in found


def test_jobs_that_nobody_knows_and_dead_ones(app: Windlass) -> None:
    app.tasks["tasks.add"].enqueue(1)
    [claim] = claim_jobs(app.engine, "h.7.x", "nonce", Plan(), 1).claims
    app.engine.finish([Unroutable(id=claim.id, token=claim.token)])
    found = {finding.subject: finding for finding in examine_jobs(app)}
    assert found["unknown tasks"].grade is Grade.ADVICE
    text = found["unknown tasks"].text
    assert "no worker can run 1 job of tasks.add" in text
    assert "Jobs of an unknown task are kept until then" in text
    assert found["dead letters"].grade is Grade.OK
    assert "jobs" not in found
    assert dead_letters(MANY_DEAD).grade is Grade.OK
    assert dead_letters(MANY_DEAD + 1).grade is Grade.ADVICE
