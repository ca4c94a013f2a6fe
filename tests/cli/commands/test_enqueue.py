"""`windlass enqueue`: what is stored, what is printed, and what `--wait` waits for."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from tests.app.hand import Hand
from tests.cli.conftest import Typing
from tests.cli.forks import DEADLINE_S, SCRIPT
from tests.cli.shell import TASKS, Ran, Shell
from tests.docs.transcript import Worker
from tests.redis_server import free_port
from windlass import Reason, State, Windlass
from windlass.engine.contract import Buried, JobRecord


def record_of(shell: Shell, ran: Ran) -> JobRecord:
    """The job whose id was printed."""
    with Windlass(shell.url) as app:
        [record] = app.engine.get([ran.out.split()[0]])
    assert record is not None
    return record


def test_the_id_is_all_that_is_printed(shell: Shell) -> None:
    ran = shell.type_with_app("enqueue", "tasks.add", "--args", "[1]", "--kwargs", '{"b": 3}')
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == f"{record_of(shell, ran).id}\n"
    assert record_of(shell, ran).payload == b'{"args":[1],"kwargs":{"b":3}}'


def test_options_reach_the_job(shell: Shell) -> None:
    options = ["--in", "10m", "--priority", "-7", "--queue", "slow"]
    record = record_of(shell, shell.type_with_app("enqueue", "tasks.forget", *options))
    assert (record.state, record.priority, record.queue) == (State.SCHEDULED, -7, "slow")
    assert record.due_ms is not None
    assert record.due_ms - record.created_ms == 600_000


def test_a_key_leads_to_the_job_that_exists(shell: Shell) -> None:
    command = ("enqueue", "tasks.add", "--args", "[1]", "--idempotency-key", "k")
    first, again = shell.type_with_app(*command), shell.type_with_app(*command)
    document = shell.type_with_app(*command, "--json").json
    assert (first.code, again.code, first.err) == (0, 0, "")
    assert again.out == first.out
    assert "already exists" in again.err
    job_id = first.out.strip()
    assert document == {"id": job_id, "task": "tasks.add", "created": False}
    other = shell.type_with_app("enqueue", "tasks.add", "--args", "[2]", "--idempotency-key", "k")
    assert other.code == 1
    assert "which has other arguments" in other.err


def test_an_instant_is_kept_to_the_second(shell: Shell) -> None:
    ran = shell.type_with_app("enqueue", "tasks.forget", "--at", "2099-01-31T08:00+01:00")
    due = datetime(2099, 1, 31, 7, tzinfo=UTC)
    assert record_of(shell, ran).due_ms == due.timestamp() * 1000


def test_arguments_are_read_by_their_annotations(shell: Shell) -> None:
    ran = shell.type_with_app("enqueue", "tasks.remind", "--args", '["2030-01-31"]', "--json")
    assert ran.code == 0
    assert ran.json["task"] == "tasks.remind"


def test_a_large_number_is_stored_as_it_was_typed(shell: Shell) -> None:
    number = "123456789012345678901234567890"
    ran = shell.type_with_app("enqueue", "tasks.add", "--args", f"[{number}]")
    assert number.encode() in record_of(shell, ran).payload


def test_a_url_takes_the_place_of_the_app_s(shell: Shell) -> None:
    ran = shell.type_with_app("enqueue", "tasks.forget", "--url", "sqlite:///other.db")
    assert ran.code == 0
    assert not shell.database.exists()
    assert (
        ran.out.strip()
        in shell.type("job", "show", ran.out.strip(), "--url", "sqlite:///other.db").out
    )


def test_a_url_takes_the_place_of_an_engine_that_was_used_by_the_import(shell: Shell) -> None:
    with (shell.folder / "tasks.py").open("a", encoding="utf-8") as file:
        file.write("forget.enqueue()\n")
    ran = shell.type_with_app("enqueue", "tasks.forget", "--url", "sqlite:///other.db")
    assert shell.type("job", "show", ran.out.strip(), "--url", "sqlite:///other.db").code == 0
    assert shell.type("job", "show", ran.out.strip(), "--url", "sqlite:///jobs.db").code == 1


# ----------------------------------------------------------------------------------------- waiting


ORDERS = """
from dataclasses import dataclass
from typing import Any
import msgspec
from windlass import Windlass

app = Windlass("sqlite:///jobs.db?durability=normal")


@dataclass
class Address:
    city: str = "Basel"


class Order(msgspec.Struct, omit_defaults=True, rename="camel"):
    item_count: int = 1
    ship_to: Address = msgspec.field(default_factory=Address)
    notes: Any = None


@app.task
def place(order: Order, more: dict[str, Any] = {}) -> None: ...
"""


@pytest.mark.parametrize(
    ("order", "told"),
    [
        ('{"itemCount": 1, "shipTo": {}, "notes": {"any": 1}}', ""),
        (
            '{"itmCount": {"all": 2}, "shipTo": {"cty": "Bern"}}',
            "itmCount or cty: it was ignored.",
        ),
    ],
    ids=["as it should be", "misspelt"],
)
def test_a_field_that_nobody_reads_is_told_of(
    shell: Shell, type_here: Typing, order: str, told: str
) -> None:
    (shell.folder / "tasks.py").write_text(ORDERS)
    typed = ("enqueue", "tasks.place", "--args", f'[{order}, {{"key": 1}}]')
    ran = type_here(*typed, WINDLASS_APP="tasks:app")
    assert ran.code == 0
    assert ran.err == (f"No argument of tasks.place has a field {told}\n" if told else "")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A shell with a running worker."""
    shell = Shell(tmp_path_factory.mktemp("served"))
    worker = Worker(f"{SCRIPT} worker tasks:app -p 1", shell.folder, shell.environment({}))
    worker.await_lines(2)
    yield shell
    worker.interrupt()


def test_wait_prints_the_result(served: Shell) -> None:
    ran = served.type_with_app("enqueue", "tasks.add", "--args", "[1]", "--wait")
    assert ran.code == 0
    assert ran.out.splitlines()[1:] == ["3"]


def test_wait_prints_one_document(served: Shell) -> None:
    ran = served.type_with_app("enqueue", "tasks.add", "--args", "[1]", "--wait", "--json")
    assert ran.json == {
        "id": ran.json["id"],
        "task": "tasks.add",
        "created": True,
        "state": "succeeded",
        "result": 3,
    }


def test_wait_for_a_failure_fails_with_its_error(served: Shell) -> None:
    ran = served.type_with_app("enqueue", "tasks.explode", "--args", '["bang"]', "--wait")
    assert ran.code == 1
    job_id = ran.out.strip()
    assert f"Job {job_id} of task tasks.explode is dead (exhausted): ValueError: bang\n" in ran.err
    assert f"dead retry {job_id}" in ran.err
    assert "Traceback" not in ran.err


def test_wait_for_a_crash_promises_no_traceback(
    type_here: Typing, app: Windlass, hand: Hand
) -> None:
    typed = ("enqueue", "tasks.add", "--args", "[1]", "--idempotency-key", "k")
    job_id = type_here(*typed, WINDLASS_APP="tasks:app").out.strip()
    claim = hand.take()
    crash = Buried(id=claim.id, token=claim.token, reason=Reason.CRASHED, error=b"exit code 7")
    app.engine.finish([crash])
    ran = type_here(*typed, "--wait", WINDLASS_APP="tasks:app")
    assert ran.code == 1
    assert f"dead show {job_id}` has its history; after" in ran.err


def test_options_that_do_not_go_with_those_of_the_task_are_refused(
    shell: Shell, type_here: Typing
) -> None:
    text = TASKS.replace('(queue="mail")', '(expires="1h")')
    (shell.folder / "tasks.py").write_text(text)
    typed = ("enqueue", "tasks.remind", "--args", '["2030-01-31"]', "--in", "2h")
    ran = type_here(*typed, WINDLASS_APP="tasks:app")
    assert ran.code == 2
    assert "The options do not fit: expires must be later than run_after, which is 2h" in ran.err


def test_wait_for_a_failure_prints_one_document(served: Shell) -> None:
    ran = served.type_with_app("enqueue", "tasks.explode", "--args", '["bang"]', "--wait", "--json")
    assert ran.code == 1
    assert (ran.json["state"], ran.json["result"]) == ("dead", None)


def test_a_job_without_a_stored_result_has_succeeded(served: Shell) -> None:
    ran = served.type_with_app("enqueue", "tasks.forget", "--wait")
    assert (ran.code, len(ran.out.splitlines())) == (0, 1)
    assert "The job succeeded; its result is not stored." in ran.err


def test_waiting_can_be_given_up_and_the_job_stays(shell: Shell) -> None:
    command = shell.start("enqueue", "tasks.forget", "--wait", WINDLASS_APP="tasks:app")
    assert command.stdout is not None
    assert command.stderr is not None
    job_id = command.stdout.readline().strip()
    assert "No worker is running" in command.stderr.readline()
    command.send_signal(signal.SIGINT)
    _, err = command.communicate(timeout=DEADLINE_S)
    assert command.returncode == 1
    assert "Stopped waiting; the job continues." in err
    assert "ready" in shell.type("job", "show", job_id, "--url", shell.url).out


def test_an_engine_that_is_away_is_answered_by_what_to_type(type_here: Typing) -> None:
    away = f"redis://127.0.0.1:{free_port()}/0"
    command = ("enqueue", "tasks.add", "--args", "[1]", "--app", "tasks:app", "--url", away)
    ran = type_here(*command)
    assert ran.code == 3
    assert "Job " in ran.err


def test_a_question_ends_with_its_own_mark(shell: Shell) -> None:
    ran = shell.type_with_app("enqueue", "tasks.add", "--kwargs", '{"a": 1, "bb": 1}')
    assert ran.code == 2
    assert ran.err.endswith("Did you mean b?\n")
