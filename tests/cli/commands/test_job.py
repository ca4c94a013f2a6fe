"""`windlass job`: list, show, cancel and retry."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo

import msgspec
import pytest

from tests.app.hand import Hand
from tests.cli.conftest import Typing
from tests.cli.shell import Shell
from windlass import FailureText, LogLine, Reason, Reject, State, Unique, Windlass
from windlass.cli.support import output, records, wording
from windlass.cli.support.audit_trail import actor
from windlass.context import Report
from windlass.engine.contract import Buried, NewJob, Retried, Succeeded, Verdict

UNKNOWN = "01m7gk6tx900smjc57av0rnpgb"


@pytest.fixture
def job_id(app: Windlass) -> str:
    return app.tasks["tasks.add"].enqueue(1).id


def give() -> object:
    """Whatever the hand says."""
    return None


def fields_of(text: str) -> dict[str, str]:
    return dict(line.split("  ", 1) for line in text.splitlines() if not line.startswith(" "))


# -------------------------------------------------------------------------------------------- list


def test_list(shell: Shell, app: Windlass, job_id: str) -> None:
    other = app.tasks["tasks.add"].using(queue="other", run_after="1h").enqueue(2).id
    listed = shell.type("job", "list", "--url", shell.url).out.splitlines()
    assert [line.split()[0] for line in listed] == ["id", job_id, other]
    assert listed[2].split()[1:4] == ["tasks.add", "other", "scheduled"]


@pytest.mark.parametrize(
    ("option", "value"), [("--state", "scheduled"), ("--queue", "other"), ("--task", "tasks.other")]
)
def test_list_what_is_asked_for(
    shell: Shell, app: Windlass, job_id: str, option: str, value: str
) -> None:
    task = app.task(name="tasks.other", queue="other")(give)
    wanted = task.using(run_after="1h").enqueue().id
    found = shell.type("job", "list", option, value, "--json", "--url", shell.url).json
    assert [job["id"] for job in found] == [wanted]


def test_a_longer_list_says_so(shell: Shell, app: Windlass) -> None:
    ids = [app.tasks["tasks.add"].enqueue(number).id for number in range(3)]
    ran = shell.type("job", "list", "--limit", "2", "--url", shell.url)
    assert ids[0] in ran.out
    assert ids[2] not in ran.out
    assert "There are more than these 2:" in ran.err
    ran = shell.type("job", "list", "--limit", "1", "--url", shell.url)
    assert "There are more than this one:" in ran.err
    assert "No such jobs" in shell.type("job", "list", "--state", "dead", "--url", shell.url).err


def test_list_by_time_and_header(app: Windlass, shell: Shell, type_here: Typing) -> None:
    task = app.tasks["tasks.add"]
    old = task.using(headers={"user": "ann"}).enqueue(1)
    app.engine.clock_offset_ms += 10_000  # later jobs only
    border = task.using(headers={"user": "ann", "shop": "a=b"}).enqueue(2)
    newest = task.enqueue(3)
    at = border.info().enqueued_at.isoformat()

    def listed(*options: str) -> set[str]:
        ran = type_here("job", "list", *options, "--json", "--url", shell.url)
        return {job["id"] for job in ran.json}

    assert listed("--since", at) == {newest.id, border.id}
    assert listed("--until", at) == {old.id}
    assert listed("--since", "1h") == {newest.id, border.id, old.id}
    assert listed("--until", "1h") == set()
    assert listed("--header", "user=ann") == {border.id, old.id}
    assert listed("--header", "user=ann", "--header", "shop=a=b") == {border.id}
    assert listed("--header", "user=ann", "--since", at) == {border.id}


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--since", "yesterday", "expected an age such as 90s, 10m or 1h30m, or an ISO time"),
        ("--until", "2030-01-31T08:00", "expected a time with its offset"),
        ("--header", "ann", "expected NAME=VALUE, found 'ann'"),
    ],
)
def test_list_refuses_what_it_cannot_read(
    shell: Shell, type_here: Typing, option: str, value: str, message: str
) -> None:
    ran = type_here("job", "list", option, value, "--url", shell.url)
    assert ran.code == 2
    assert message in " ".join(ran.err.split())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--since", "10s", "--until", "1h"), "--since is later than --until"),
        (("--since", "2030-01-31T08:00Z", "--until", "1h"), "--since is later than --until"),
        (("--header", "a b=c"), "headers: a name must be 1 to 64 characters"),
    ],
)
def test_list_refuses_what_no_job_can_match(
    app: Windlass, shell: Shell, type_here: Typing, options: tuple[str, ...], message: str
) -> None:
    app.engine.migrate()
    ran = type_here("job", "list", *options, "--url", shell.url)
    assert ran.code == 2
    assert message in ran.err
    assert type_here("job", "list", "--since", "1h", "--until", "10s", "--url", shell.url).code == 0


def test_list_says_how_long_a_job_ran(
    shell: Shell, app: Windlass, hand: Hand, type_here: Typing
) -> None:
    """A waiting job has not run, also if an earlier attempt has."""
    task = app.task(name="tasks.give")(give)
    jobs = [task.enqueue() for _ in range(3)]
    app.engine.clock_offset_ms -= 90_000
    hand.take()
    app.engine.clock_offset_ms += 30_000
    claim = hand.take()
    app.engine.clock_offset_ms += 20_000
    outcome = Succeeded(id=claim.id, token=claim.token, result=None, result_ttl_ms=60_000)
    assert app.engine.finish([outcome]) == [Verdict.OK]
    app.engine.clock_offset_ms += 40_000
    hand.fail(ValueError("no"), delay_ms=60_000)
    lines = type_here("job", "list", "--url", shell.url).out.splitlines()
    ends = {line.split()[0]: line.split("ago")[1].strip() for line in lines[1:]}
    assert lines[0].endswith("ran")
    running, succeeded, retrying = (ends[job.id] for job in jobs)
    assert running.startswith("1m3")
    assert (succeeded, retrying) == ("20s", "")


def test_list_does_not_say_how_long_a_cancelled_job_ran(
    shell: Shell, app: Windlass, hand: Hand, type_here: Typing
) -> None:
    job = app.task(name="tasks.give")(give).enqueue()
    claim = hand.take()
    job.cancel()
    outcome = Retried(id=claim.id, token=claim.token, delay_ms=0, error=b"")
    assert app.engine.finish([outcome]) == [Verdict.OK]
    [line] = type_here("job", "list", "--url", shell.url).out.splitlines()[1:]
    assert " cancelled " in line
    assert line.rstrip().endswith(" ago")
    shown = type_here("job", "show", job.id, "--url", shell.url).out
    assert {"started", "finished"} <= fields_of(shown).keys()


# -------------------------------------------------------------------------------------------- show


def test_show_what_came_along_and_what_was_said(shell: Shell, app: Windlass, hand: Hand) -> None:
    job_id = app.tasks["tasks.add"].using(headers={"user": "ann", "trace": "1-2"}).enqueue(1).id
    report = Report(0.5, "half", (LogLine(datetime(2030, 1, 2, tzinfo=UTC), "read\nall"),))
    hand.report(hand.take(), msgspec.json.encode(report))
    shown = shell.type("job", "show", job_id, "--url", shell.url).out
    fields = fields_of(shown)
    assert fields["headers"].strip() == "user: ann"
    assert "trace: 1-2" in shown
    assert fields["progress"].strip() == "50% half"
    assert fields["log"].strip().endswith("read")
    (job,) = shell.type("job", "show", job_id, "--json", "--url", shell.url).json
    assert job["headers"] == {"user": "ann", "trace": "1-2"}
    assert job["log"] == [{"at": "2030-01-02T00:00:00Z", "message": "read\nall"}]


def test_show_progress_without_a_message(shell: Shell, app: Windlass, hand: Hand) -> None:
    job_id = app.tasks["tasks.add"].enqueue(1).id
    hand.report(hand.take(), msgspec.json.encode(Report(0.5, "", ())))
    shown = shell.type("job", "show", job_id, "--url", shell.url).out
    assert "progress  50%\n" in shown


def test_show(shell: Shell, job_id: str) -> None:
    fields = fields_of(shell.type("job", "show", job_id, "--url", shell.url).out)
    shown = {name: value.strip() for name, value in fields.items()}
    assert shown["id"] == job_id
    assert shown["state"] == "ready"
    assert shown["call"] == '{"args":[1]}'
    assert shown["attempts"].startswith("0 (0 starts, 0 crashes")
    assert not shown.keys() & {"cancel", "result", "error", "history", "held", "alone"}


def test_a_result_of_nothing_is_a_result(shell: Shell, app: Windlass, hand: Hand) -> None:
    job_id = app.task(name="tasks.give")(give).enqueue().id
    hand.succeed(None)
    ran = shell.type("job", "show", job_id, "--url", shell.url)
    assert "result    null" in ran.out
    [described] = shell.type("job", "show", job_id, "--json", "--url", shell.url).json
    assert (described["has_result"], described["result"]) == (True, None)


def test_a_result_is_shown_as_json(shell: Shell, app: Windlass, hand: Hand) -> None:
    job_id = app.task(name="tasks.give")(give).enqueue().id
    hand.succeed({"a": [True]})
    assert 'result    {"a":[true]}' in shell.type("job", "show", job_id, "--url", shell.url).out


def test_show_as_json(shell: Shell, app: Windlass, hand: Hand, job_id: str) -> None:
    hand.fail(ConnectionError("503"), delay_ms=0)
    hand.bury(Reject("no such order"))
    [described] = shell.type("job", "show", job_id, "--json", "--url", shell.url).json
    assert described["call"] == {"args": [1]}
    assert described["undecodable"] is None
    assert (described["attempts"], described["starts"]) == (2, 2)
    assert (described["losses"], described["interruptions"], described["crashes"]) == (0, 0, 0)
    assert [entry["event"] for entry in described["history"]] == ["retry", "bury"]
    assert described["history"][0]["error"]["type"] == "ConnectionError"
    assert described["history"][0]["at"].endswith("Z")
    assert described["error"]["type"] == "windlass.core.signals.Reject"


def test_history_has_a_line_for_each_failure(shell: Shell, hand: Hand, job_id: str) -> None:
    hand.fail(ConnectionError("503"), delay_ms=0)
    hand.bury(Reject("no such order\nat all"))
    lines = shell.type("job", "show", job_id, "--url", shell.url).out.splitlines()
    [first] = [line for line in lines if line.startswith("history ")]
    assert " failed " in first
    assert first.endswith(" on hand.1.0000: ConnectionError: 503")
    second = lines[lines.index(first) + 1]
    assert second.strip().startswith("attempt 2 failed for good ")
    assert second.endswith(" on hand.1.0000: Reject: no such order ...")


@pytest.mark.parametrize("tries", [0, 1])
def test_a_job_that_did_not_start_has_no_further_attempt(
    shell: Shell, hand: Hand, job_id: str, tries: int
) -> None:
    """As a job whose arguments cannot be decoded."""
    for _ in range(tries):
        hand.fail(ConnectionError("503"), delay_ms=0)
    claim, error = hand.take(), FailureText.of(ValueError("no number")).pack()
    outcome = Buried(
        id=job_id, token=claim.token, reason=Reason.UNDECODABLE, error=error, started=False
    )
    assert hand.app.engine.finish([outcome]) == [Verdict.OK]
    shown = shell.type("job", "show", job_id, "--url", shell.url).out
    assert f"attempts     {tries} (" in shown
    last = shown.partition("history")[2].partition("last error")[0].splitlines()[-1].strip()
    assert last.startswith("failed for good before its start ")
    assert last.endswith(" ago on hand.1.0000: ValueError: no number")
    [described] = shell.type("job", "show", job_id, "--json", "--url", shell.url).json
    assert described["attempts"] == tries
    assert [entry["attempt"] for entry in described["history"]] == [1, None][1 - tries :]
    hand.app.job(job_id).retry()
    hand.bury(ValueError("no"))
    [described] = shell.type("job", "show", job_id, "--json", "--url", shell.url).json
    assert (described["attempts"], described["history"][-1]["attempt"]) == (1, 1)


def test_a_cause_without_a_type_has_no_stray_colon(shell: Shell, hand: Hand, job_id: str) -> None:
    hand.take()
    hand.app.engine.close(hand.session, [job_id], "signal 9 (SIGKILL)")
    ran = shell.type("job", "show", job_id, "--url", shell.url)
    assert " on hand.1.0000: signal 9 (SIGKILL)\n" in ran.out
    assert "alone       yes: in its own process" in ran.out


def test_a_call_that_cannot_be_read_is_said_to_be_such(shell: Shell, app: Windlass) -> None:
    app.engine.put([NewJob(id="odd", task="t", queue="q", payload=b"\xff")])
    assert "call      (undecodable: " in shell.type("job", "show", "odd", "--url", shell.url).out
    [described] = shell.type("job", "show", "odd", "--json", "--url", shell.url).json
    assert described["call"] is None
    assert "not an envelope" in described["undecodable"]


def test_several_are_shown_and_those_that_are_missing_named(shell: Shell, job_id: str) -> None:
    ran = shell.type("job", "show", UNKNOWN, job_id, "other", "--url", shell.url)
    assert ran.code == 1
    assert f"id        {job_id}" in ran.out
    assert f"There is no job {UNKNOWN} in sqlite {shell.database}." in ran.err
    assert f"There is no job other in sqlite {shell.database}." in ran.err


# ------------------------------------------------------------------------------- cancel and retry


def test_cancel_and_retry(shell: Shell, app: Windlass, job_id: str) -> None:
    ran = shell.type("job", "cancel", job_id, "--url", shell.url)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.split() == ["id", "verdict", job_id, "cancelled"]
    assert app.job(job_id).info().state is State.CANCELLED
    ran = shell.type("job", "retry", job_id, "--json", "--url", shell.url)
    assert (ran.code, ran.json) == (0, {job_id: "done"})
    assert app.job(job_id).info().state is State.READY


def test_a_running_job_is_not_said_to_have_been_stopped(
    shell: Shell, hand: Hand, job_id: str
) -> None:
    hand.take()
    ran = shell.type("job", "cancel", job_id, "--url", shell.url)
    assert (ran.code, ran.out.split()[-1]) == (0, "requested")
    assert "1 job running: will end as cancelled unless the run succeeds." in ran.err
    shown = shell.type("job", "show", job_id, "--url", shell.url).out
    assert "cancel    requested: it ends as cancelled unless it succeeds" in shown
    assert "unless it succeeds" in shell.type("job", "cancel", "--help").out


def test_what_cannot_be_done_fails(shell: Shell, job_id: str) -> None:
    ran = shell.type("job", "retry", job_id, UNKNOWN, job_id, "--url", shell.url)
    assert ran.code == 1
    assert ran.out.split()[2:] == [job_id, "refused", UNKNOWN, "unknown"]
    assert f"There is no job {UNKNOWN} in sqlite {shell.database}." in ran.err
    assert f"Job {job_id} was not changed: it is ready. Only jobs that are dead or" in ran.err
    assert "Not changed: 2 of 2." in ran.err


def test_a_job_whose_unique_key_is_taken_stays_as_it_is(shell: Shell, app: Windlass) -> None:
    task = app.task(name="tasks.unique", unique=Unique())(once)
    one = task.enqueue()
    one.cancel()
    task.enqueue()
    ran = shell.type("job", "retry", one.id, "--url", shell.url)
    assert (ran.code, ran.out.split()[-1]) == (1, "duplicate")
    assert f"Job {one.id} was not changed: another job holds its unique key." in ran.err
    shown = shell.type("job", "show", one.id, "--url", shell.url).out
    assert f"unique    {one.info().unique_key}\n" in shown


def once() -> None:
    """At most one of these."""


def test_what_failed_before_a_success_is_its_last_error(
    shell: Shell, app: Windlass, job_id: str
) -> None:
    hand = Hand(app)
    hand.fail(ConnectionError("the bank is away"), 0)
    hand.succeed(2)
    shown = fields_of(shell.type("job", "show", job_id, "--url", shell.url).out)
    assert shown["state"].strip() == "succeeded"
    assert shown["last error"]
    assert "error" not in shown


def test_all_ages_are_those_of_one_instant(
    app: Windlass,
    job_id: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Hasty(datetime):
        """A clock on which an hour passes between two looks."""

        hours = 0

        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Hasty:
            cls.hours += 1
            return cls(2100, 1, 1, cls.hours, tzinfo=tz)

    for module in (output, records, wording):
        monkeypatch.setattr(module, "datetime", Hasty)
    [record] = app.engine.get([job_id])
    assert record is not None
    records.print_record(app, msgspec.structs.replace(record, started_ms=record.created_ms))
    shown = fields_of(capsys.readouterr().out)
    assert shown["enqueued"].strip() == shown["started"].strip()


def test_a_job_tells_why_it_does_not_run(type_here: Typing, shell: Shell, app: Windlass) -> None:
    id = app.tasks["tasks.add"].enqueue(1).id
    type_here("queue", "pause", "default", "--url", shell.url)
    ran = type_here("job", "why", id, "--url", shell.url)
    first, command, *others = ran.out.splitlines()
    assert first.startswith(f"The queue default was paused by {actor()} at ")
    assert command == "    windlass queue resume default"
    assert others == ["No worker is alive.", "    windlass worker MODULE:APP -q default"]
    found = type_here("job", "why", id, "--json", "--url", shell.url).json
    assert [hold["kind"] for hold in found["holds"]] == ["queue_paused", "no_worker"]
    ran = type_here("job", "why", "nothing", "--url", shell.url)
    assert (ran.code, "There is no job nothing" in ran.err) == (1, True)
