"""The log of a worker: as text and as JSON, with the job, and without secrets."""

from __future__ import annotations

import ast
import copy
import json
import logging
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.worker.apps.talking import WAY
from tests.worker.yard import PROJECT, Worker, Yard, until
from windlass import FailureText, Job, Reject
from windlass.context import Context, running
from windlass.core.quantities import Count
from windlass.core.states import Reason, State
from windlass.settings import mask_urls
from windlass.worker.logs.events import LogEvent, listed, log_dead_letter
from windlass.worker.logs.setup import FORMAT, JobFilter, JsonFormatter, TextFormatter

CANARY = "xyzzy-canary"
LOGGING = re.compile(r"log\.(debug|info|warning|error|exception)")


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    """No engine has a part in it: one will do."""
    yard = Yard(tmp_path, lease="30s", grace="10s", max_crashes=3)
    yield yard
    yard.close()


def start(yard: Yard, *, way: str = "none", option: str | None = None, **settings: str) -> Worker:
    variables = {f"WINDLASS_{name.upper()}": value for name, value in settings.items()}
    return yard.start(
        app="tests.worker.apps.talking:app",
        log_level=option,
        environment={WAY: way, **variables},
    )


def enqueue(yard: Yard, name: str, text: str) -> Job[Any]:
    return (yard.app.tasks.get(name) or yard.app.task(name=name)(stand_in)).enqueue(text)


def stand_in(text: str) -> str:
    raise AssertionError("runs in a worker only")


# -------------------------------------------------------------------------------- in real workers


def test_records_of_the_app_name_their_job(yard: Yard) -> None:
    plain, coroutine = enqueue(yard, "talk", "paper"), enqueue(yard, "atalk", "once")
    careless = enqueue(yard, "atalk", f"redis://user:{CANARY}@host/0")
    worker = start(yard)
    careless.result(timeout=20)
    plain.result(timeout=20), coroutine.result(timeout=20)
    assert worker.stop() == 0
    log = worker.log()
    assert re.search(rf"INFO shop\[\d+\] working on\n    paper \(job {plain.id}, task talk,", log)
    assert f"at once (job {coroutine.id}, task atalk, attempt 1)" in log
    assert f"at redis://***@host/0 (job {careless.id}" in log
    assert CANARY not in log
    assert re.search(rf"INFO \S+ job {plain.id} of task talk succeeded in \d+ ms, attempt 1\n", log)


def test_every_line_is_an_object(yard: Yard) -> None:
    jobs = [enqueue(yard, "talk", "paper"), enqueue(yard, "lose", CANARY)]
    worker = start(yard, log_format="json", log_level="debug")
    jobs[0].result(timeout=20)
    yard.await_state(jobs[1], State.DEAD)
    until(lambda: '"worker_settings"' in worker.log(), "all that it says at the start")
    assert worker.stop() == 0
    lines = [json.loads(line) for line in worker.log().splitlines()]
    events: dict[str, Any] = {line["event"]: line for line in lines if "event" in line}
    assert {"worker_started", "worker_ready", "worker_stopped", "job_ended"} <= events.keys()
    started = events["worker_started"]
    assert started.items() >= {"app": "tests.worker.apps.talking:app", "labels": []}.items()
    assert (started["processes"], started["slots"], started["queues"]) == (1, 4, [])
    assert events["worker_ready"]["number"] == 3
    assert events["worker_tasks"]["tasks"] == ["atalk", "lose", "talk"]
    assert events["worker_settings"]["settings"]["log_format"] == "json"
    failed = events["job_failed"]
    assert (failed["job_id"], failed["error"], failed["attempt"]) == (jobs[1].id, "ValueError", 1)
    ended = [line for line in lines if line.get("event") == "job_ended"]
    assert [line["outcome"] for line in ended if line["job_id"] == jobs[1].id] == [
        "retried",
        "buried",
    ]
    assert all(isinstance(line["duration_ms"], int) for line in ended)
    [said] = [line for line in lines if line["logger"] == "shop"]
    assert said["message"] == "working on\npaper"
    expected = {"job_id": jobs[0].id, "task": "talk", "queue": "default", "attempt": 1}
    assert said.items() >= {**expected, "customer": 7, "level": "info"}.items()


def test_no_argument_and_no_password_is_logged(yard: Yard) -> None:
    job = enqueue(yard, "lose", CANARY)
    worker = start(yard, log_level="debug")
    yard.await_state(job, State.DEAD)
    worker.stop()
    assert "job_dead" not in worker.log()
    assert f"job {job.id} of task lose is dead, exhausted: ValueError" in worker.log()
    assert CANARY not in worker.log()


@pytest.mark.slow
@pytest.mark.parametrize("format", ["text", "json"])
def test_a_password_in_the_url_is_not_shown(yard: Yard, format: str) -> None:
    """The server does not exist, so the worker logs its url repeatedly."""
    url = f"redis://user:{CANARY}@127.0.0.1:1/0"
    worker = start(yard, url=url, log_format=format, log_level="debug")
    worker.await_log("lost connection to engine")
    worker.await_log("waiting for the engine to answer")
    assert "127.0.0.1:1" in worker.log()
    assert CANARY not in worker.log()


def test_an_app_that_sees_to_its_logging_is_left_alone(yard: Yard) -> None:
    job, other = enqueue(yard, "atalk", "once"), enqueue(yard, "atalk", "the counter")
    worker = start(yard, way="own root")
    job.result(timeout=20), other.result(timeout=20)
    worker.stop()
    own = [line for line in worker.log().splitlines() if " at " in line]
    assert f"MINE {job.id} atalk default 1 at once" in own
    assert f"MINE {other.id} atalk counter 1 at the counter" in own, "extra stays"
    assert not re.search(r"MINE (\S+ ){4}(started|handed|stop)", worker.log())


@pytest.mark.parametrize("way", ["dictConfig", "own windlass"])
def test_lines_of_the_worker_are_not_lost(yard: Yard, way: str, capfd: Any) -> None:
    job = enqueue(yard, "lose", CANARY)
    worker = start(yard, way=way)
    yard.await_state(job, State.DEAD)
    worker.await_log("ready")
    worker.stop()
    shown = capfd.readouterr().out if way == "own windlass" else worker.log()
    assert f"job {job.id} of task lose is dead" in shown
    assert "ready" in worker.log(), "the supervisor never imports the app"


def test_the_option_of_the_command_overrides_the_level_of_the_app(yard: Yard) -> None:
    """Lines of the worker and of the app: both are lines of this level and above."""
    job, lost = enqueue(yard, "talk", "paper"), enqueue(yard, "lose", CANARY)
    worker = start(yard, option="warning", log_level="debug")
    job.result(timeout=20)
    yard.await_state(lost, State.DEAD)
    worker.stop()
    assert "WARNING" in worker.log()
    assert not re.search(r"(INFO|DEBUG) (shop|windlass)", worker.log())


def test_a_wrong_level_is_refused(yard: Yard) -> None:
    worker = start(yard, log_level="loud")
    assert worker.wait() == 2
    assert "WINDLASS_LOG_LEVEL must be one of debug, info" in worker.log()


# ------------------------------------------------------------------------------------------- parts


def record(message: str, *arguments: object, name: str = "shop", **extra: Any) -> Any:
    made = logging.getLogger(name).makeRecord(
        name, logging.INFO, "file", 1, message, arguments, None, extra=extra
    )
    JobFilter().filter(made)
    return made


def test_no_line_can_be_forged() -> None:
    text = TextFormatter(FORMAT).format(record("a\n2026 INFO windlass.worker[1] \x1b[31mstopped\r"))
    assert "\n    2026" in text
    assert r"\x1b[31mstopped\r" in text
    assert text.isprintable() or text.replace("\n", "").isprintable()


class Unshowable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


def nested(depth: int) -> object:
    return [nested(depth - 1)] if depth else []


ODD = [object(), {1: {2}}, {(1, 2): 3}, "\ud800", float("nan"), Unshowable(), [Unshowable()]]


@pytest.mark.parametrize("value", [*ODD, nested(500)], ids=lambda value: type(value).__name__)
def test_what_json_cannot_hold_is_shown_all_the_same(value: object) -> None:
    line = JsonFormatter().format(record("odd", odd=value, even=2))
    shown = json.loads(line)
    assert (shown["message"], shown["level"], shown["even"]) == ("odd", "info", 2)
    assert "odd" in shown
    assert "\n" not in line


def test_an_error_in_a_line_is_shown_by_its_words() -> None:
    made = record(LogEvent.ENGINE_AWAY, OSError("connection refused"), name="windlass.worker")
    shown = json.loads(JsonFormatter().format(made))
    assert (shown["event"], shown["why"]) == ("engine_away", "connection refused")


@pytest.mark.parametrize(
    ("event", "values", "field", "expected"),
    [
        (LogEvent.CHILD_DIED, (1, "SIGKILL", listed([])), "job_ids", []),
        (LogEvent.CHILD_DIED, (1, "SIGKILL", listed(["a", "b"])), "job_ids", ["a", "b"]),
        (LogEvent.OUTCOMES_REFUSED, (Count(2, "stale outcome"), "a, b"), "job_ids", ["a", "b"]),
    ],
)
def test_a_name_has_one_type(
    event: LogEvent, values: tuple[object, ...], field: str, expected: object
) -> None:
    shown = json.loads(JsonFormatter().format(record(event, *values, name="windlass.worker")))
    assert shown[field] == expected


def test_lines_about_dead_jobs_are_events_too() -> None:
    made = record(LogEvent.UNREADABLE_JOB_REMOVED, "j", "no", name="windlass.dead_letters")
    shown = json.loads(JsonFormatter().format(made))
    assert (shown["event"], shown["why"]) == ("unreadable_job_removed", "no")


def test_our_own_errors_are_named_as_they_are_imported(caplog: pytest.LogCaptureFixture) -> None:
    log_dead_letter("j", "t", Reason.REJECTED, FailureText.of(Reject("no such order")))
    assert caplog.messages == ["job j of task t is dead, rejected: Reject"]


def test_only_lines_of_the_worker_are_its_events() -> None:
    shown = json.loads(JsonFormatter().format(record("stopped", event="the lift")))
    assert shown["event"] == "the lift"


def test_what_a_record_has_already_is_kept() -> None:
    context = Context(job_id="j", task="t", queue="q", attempt=1, max_attempts=5, sink=_ignore)
    token = running.set(context)
    try:
        made = record("text", task="mine")
    finally:
        running.reset(token)
    assert (made.task, made.job_id) == ("mine", "j")


def _ignore(progress: bytes) -> None:
    """Drop progress."""


def test_an_exception_is_part_of_the_object() -> None:
    try:
        raise ValueError("no")
    except ValueError:
        made = record("failed")
        made.exc_info = sys.exc_info()
    assert "ValueError: no" in json.loads(JsonFormatter().format(made))["exception"]


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("at redis://u:p@h:1/0, tried", "at redis://***@h:1/0, tried"),
        ("redis://:p@ss@h/0", "redis://***@h/0"),
        ("redis://:p/s@h/0", "redis://***@h/0"),
        ("'rediss://u@h'", "'rediss://***@h'"),
        ("redis://u:it's@h/0", "redis://***@h/0"),
        ("""{"a":"redis://h/0","b":"c@d"}""", """{"a":"redis://h/0","b":"c@d"}"""),
        ("Write redis://:PASSWORD@HOST, now", "Write redis://:PASSWORD@HOST, now"),
        ("or redis://USER:PASSWORD@HOST.", "or redis://USER:PASSWORD@HOST."),
        ("https://site/@user mail a@b", "https://site/@user mail a@b"),
        ("two redis://a:b@c and redis://d:e@f", "two redis://***@c and redis://***@f"),
    ],
)
def test_passwords_of_urls_are_masked(text: str, masked: str) -> None:
    assert mask_urls(text) == masked


# ------------------------------------------------------------------------------ the table of events


def log_calls() -> Iterator[tuple[LogEvent, int]]:
    """The event of every line that the worker can log, and how many values the call passes."""
    for file in sorted((PROJECT / "src/windlass/worker").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and LOGGING.fullmatch(ast.unparse(node.func)):
                kind, _, name = ast.unparse(node.args[0]).partition(".")
                assert kind == "LogEvent", "an event comes first"
                yield LogEvent[name], len(node.args) - 1


def test_every_event_is_logged_once_with_a_name_for_each_value() -> None:
    assert sorted(log_calls()) == sorted((event, len(event.fields)) for event in LogEvent)
    assert all(event.count("%") == len(event.fields) for event in LogEvent)


def test_an_event_is_the_text_of_its_line_for_every_handler() -> None:
    made = record(LogEvent.CHILD_KILLED, 7, name="windlass.worker")
    copied = copy.deepcopy(made)
    assert made.msg == copied.msg == "killing child %d, it did not exit"
    assert (copied.args, copied.getMessage()) == ((7,), "killing child 7, it did not exit")
