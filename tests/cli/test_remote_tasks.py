"""Remote tasks on the command line: listed, enqueued, edited, and never promised to a worker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.app.hand import Hand
from tests.cli.conftest import Typing
from tests.cli.shell import Shell
from windlass import FailureText, Retry, State, Windlass
from windlass.core.introduction import Introduction
from windlass.engine.contract import Beat, Unroutable

APP = ("--app", "tasks:app")
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"month": {"type": "string"}, "pages": {"type": "array"}},
    "required": ["month"],
    "additionalProperties": False,
}
DECLARED = f"""

def translate(text: str, to: str = "en") -> str:
    raise NotImplementedError

translations = app.task_named("speech.translate", translate, requires="node", retry=Retry(3))
reports = app.task_named("reports.build", schema={SCHEMA!r}, queue="node")
app.task_named("old.reports.build", schema={{"type": "object"}}, queue="node")
app.task_named("post.send", schema={{"type": "object"}}, queue="mail")
"""


@pytest.fixture
def remote(shell: Shell) -> Shell:
    """A shell whose app declares remote tasks next to its own."""
    with (shell.folder / "tasks.py").open("a", encoding="utf-8") as file:
        file.write(DECLARED)
    return shell


@pytest.fixture
def producer(remote: Shell) -> Iterator[Windlass]:
    """The same remote tasks in this process, on the same database."""
    with Windlass(f"{remote.url}?durability=normal") as app:
        app.engine.migrate()

        def translate(text: str, to: str = "en") -> str:
            raise NotImplementedError

        app.task_named("speech.translate", translate, requires="node", retry=Retry(3))
        app.task_named("reports.build", schema=SCHEMA, queue="node")
        yield app


def test_they_are_listed_as_remote(remote: Shell, type_here: Typing) -> None:
    listed = {task["name"]: task for task in type_here("tasks", *APP, "--json").json}
    assert listed["speech.translate"] == {
        "name": "speech.translate",
        "queue": "default",
        "requires": ["node"],
        "runner": "remote",
        "schedule": [],
        "retry": "3 attempts, 10s and more apart",
        "aliases": [],
    }
    assert (listed["reports.build"]["runner"], listed["reports.build"]["retry"]) == ("remote", "")
    assert listed["tasks.add"]["runner"] == "thread"
    assert list(listed) == sorted(listed)
    assert "remote" in type_here("tasks", *APP).out


def test_a_call_is_checked_and_stored(remote: Shell, type_here: Typing) -> None:
    ran = type_here("enqueue", "translate", "--args", '["hallo"]', *APP)
    assert (ran.code, ran.err) == (0, "")
    by_schema = type_here("enqueue", "reports.build", "--kwargs", '{"month": "2030-01"}', *APP)
    assert by_schema.code == 0
    with Windlass(remote.url) as app:
        jobs = app.engine.get([ran.out.strip(), by_schema.out.strip()])
        payloads = [job.payload for job in jobs if job is not None]
    assert b'"call":{"args":["hallo"]}' in payloads[0]  # in an envelope, with the retry policy
    assert payloads[1:] == [b'{"kwargs":{"month":"2030-01"}}']


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        (("translate", "--args", "[7]"), "speech.translate(text=...): expected str, found int."),
        (("translate",), "speech.translate(): missing a required argument: 'text'."),
        (("reports.build",), "reports.build(): missing a required argument: 'month'."),
        (
            ("reports.build", "--kwargs", '{"month": 1, "page": 2}'),
            "reports.build(month=...): expected string, found 1; reports.build(): got an "
            "unexpected keyword argument 'page'. Did you mean pages?",
        ),
        (("reports.build", "--args", '["a"]'), "reports.build(): too many positional arguments"),
    ],
)
def test_a_call_that_does_not_fit(
    remote: Shell, type_here: Typing, typed: tuple[str, ...], told: str
) -> None:
    ran = type_here("enqueue", *typed, *APP)
    assert ran.code == 2
    assert f"The arguments do not fit: {told}" in ran.err
    assert not remote.database.exists()


def test_an_unknown_name_is_asked_after(remote: Shell, type_here: Typing) -> None:
    ran = type_here("enqueue", "report.build", *APP)
    assert "The app has no task 'report.build'. Did you mean reports.build?" in ran.err
    assert "old.reports.build, post.send, reports.build, speech.translate, tasks.add" in ran.err


def test_arguments_are_edited_as_at_an_enqueue(
    producer: Windlass, remote: Shell, type_here: Typing
) -> None:
    job = producer.remote_tasks["reports.build"].enqueue(month="2030-01")
    refused = type_here("job", "edit", job.id, "--kwargs", '{"month": 7}', *APP)
    assert refused.code == 2
    assert "reports.build(month=...): expected string, found 7" in refused.err
    changed = type_here("job", "edit", job.id, "--kwargs", '{"month": "2030-02"}', *APP)
    assert changed.code == 0, changed.err
    hand = Hand(producer)
    hand.bury(ValueError("no"))
    assert job.info().state is State.DEAD
    for typed, code in (('{"page": 1}', 2), ('{"month": "2030-03"}', 0)):
        ran = type_here("dead", "retry", job.id, "--kwargs", typed, *APP)
        assert ran.code == code, ran.err
    assert hand.take().payload == b'{"kwargs":{"month":"2030-03"}}'


def test_a_pause_needs_no_consent(remote: Shell, type_here: Typing, producer: Windlass) -> None:
    assert type_here("task", "pause", "translate", *APP).code == 0
    assert producer.engine.paused_tasks() == ["speech.translate"]
    assert type_here("queue", "pause", "node", *APP).code == 0


# ------------------------------------------------------------------------------------------- hints


def findings(type_here: Typing, *arguments: str) -> dict[str, tuple[str, str]]:
    found = type_here("doctor", *arguments, "--json").json["findings"]
    return {one["subject"]: (one["grade"], one["text"]) for one in found}


def beat(app: Windlass, *queues: str, labels: tuple[str, ...] = ()) -> None:
    known = Introduction(host="h", worker=7, queues=queues, labels=labels)
    app.engine.beat([Beat(session="h.7.x", info=known.pack())])


def test_doctor_counts_them(producer: Windlass, type_here: Typing, remote: Shell) -> None:
    assert findings(type_here, *APP)["app"] == ("ok", "tasks:app, 4 tasks, 4 remote tasks")
    (remote.folder / "tasks.py").write_text(
        f'from windlass import Retry, Windlass\napp = Windlass("{remote.url}"){DECLARED}',
        encoding="utf-8",
    )
    assert findings(type_here, *APP)["app"] == ("ok", "tasks:app, 0 tasks, 4 remote tasks")
    producer.remote_tasks["reports.build"].enqueue(month="2030-01")
    told = findings(type_here, *APP)["workers"]
    assert told[0] == "problem"
    assert told[1].endswith(
        "will wait until one starts: start the program that runs its remote tasks"
    )


def test_no_native_worker_is_advised_for_their_queues(
    producer: Windlass, type_here: Typing
) -> None:
    beat(producer, "default")
    producer.remote_tasks["reports.build"].enqueue(month="2030-01")
    assert findings(type_here, *APP)["queues"] == (
        "problem",
        "node has 1 ready job, and no worker serves it: start the program that runs its remote "
        "tasks",
    )
    producer.task_named("tasks.add", queue="mail").enqueue(1)
    ran = type_here("doctor", *APP)
    assert "mail has 1 ready job, and no worker serves it: start one with -q mail" in ran.out
    producer.remote_tasks["speech.translate"].enqueue("hallo")
    told = type_here("status", *APP).err
    assert "waiting for node, which no worker has: 1 job. Start the program that runs" in told
    producer.task_named("tasks.add", requires="gpu").enqueue(1)
    told = type_here("status", *APP).err
    assert "waiting for gpu, which no worker has: 1 job. Start a worker with --label gpu." in told


def test_jobs_that_a_worker_without_the_code_claimed(
    producer: Windlass, type_here: Typing, remote: Shell
) -> None:
    beat(producer)
    producer.remote_tasks["reports.build"].enqueue(month="2030-01")
    producer.task_named("unknown").enqueue()
    hand = Hand(producer)
    for _ in range(2):
        claim = hand.take()
        why = FailureText(message=f"task {claim.task} has no code in the app of worker w").pack()
        producer.engine.finish([Unroutable(id=claim.id, token=claim.token, why=why)])
    found = findings(type_here, *APP)
    assert found["remote tasks"][0] == "advice"
    assert "claimed 1 job of reports.build, which are remote tasks" in found["remote tasks"][1]
    assert "Give each of these tasks a queue or a label" in found["remote tasks"][1]
    assert "no worker can run 1 job of unknown: " in found["unknown tasks"][1]
    without_app = findings(type_here, "--url", remote.url)
    assert "remote tasks" not in without_app
    told = type_here("status", *APP).err
    assert "task reports.build has no code in the app of worker w." in told
