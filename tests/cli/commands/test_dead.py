"""`windlass dead`: look at dead letters, retry them, discard them after a question."""

from __future__ import annotations

import signal

import pytest

from tests.app.hand import Hand
from tests.cli.conftest import Typing
from tests.cli.shell import Shell
from tests.worker.yard import until
from windlass import JobNotFound, State, Unique, Windlass
from windlass.cli.support.audit_trail import actor
from windlass.engine.releases import note_release

UNKNOWN = "01m7gk6tx900smjc57av0rnpgb"


@pytest.fixture
def dead(app: Windlass, hand: Hand) -> list[str]:
    """Three dead jobs, the oldest first; one of another task."""
    second = app.task(name="tasks.other")(other)
    ids = [app.tasks["tasks.add"].enqueue(1).id, app.tasks["tasks.add"].enqueue(2).id]
    ids.append(second.enqueue().id)
    for number in range(3):
        hand.bury(ValueError(f"bang {number}"))
    return ids


def other() -> None:
    """A second task."""


def states(app: Windlass, ids: list[str]) -> list[State]:
    return [app.job(job_id).info().state for job_id in ids]


# ----------------------------------------------------------------------------------------- looking


def test_list(shell: Shell, dead: list[str]) -> None:
    ran = shell.type("dead", "list", "--url", shell.url)
    head, *rows = ran.out.splitlines()
    assert head.split() == ["id", "task", "attempts", "died", "reason", "error"]
    assert {row.split()[0] for row in rows} == set(dead)
    [row] = [row for row in rows if row.startswith(dead[0])]
    assert row.split()[1:3] == ["tasks.add", "1"]
    assert row.endswith(" ago  exhausted  ValueError: bang 0")


def test_list_of_one_task(shell: Shell, dead: list[str]) -> None:
    ran = shell.type("dead", "list", "--task", "tasks.other", "--json", "--url", shell.url)
    assert [described["id"] for described in ran.json] == [dead[2]]
    ran = shell.type("dead", "list", "--task", "tasks.none", "--url", shell.url)
    assert (ran.code, ran.out) == (0, "")
    assert "No dead jobs of the task tasks.none." in ran.err


def test_a_limit_says_that_there_are_more(shell: Shell, dead: list[str]) -> None:
    ran = shell.type("dead", "list", "--limit", "2", "--url", shell.url)
    assert len(ran.out.splitlines()) == 3
    assert "There are more than these 2" in ran.err
    assert shell.type("dead", "list", "--limit", "3", "--url", shell.url).err == ""


def test_ids_are_whole_on_a_narrow_terminal(shell: Shell, dead: list[str]) -> None:
    for columns in (80, 40):
        sent = shell.type_on_terminal("dead", "list", "--url", shell.url, columns=columns)
        assert all(any(line.startswith(job_id) for line in sent.splitlines()) for job_id in dead)
        assert "…" not in sent


def test_nothing_is_cut_in_a_pipe(shell: Shell, app: Windlass, hand: Hand) -> None:
    long = "x" * 500
    app.tasks["tasks.add"].enqueue(1)
    hand.bury(ValueError(long))
    ran = shell.type("dead", "list", "--url", shell.url, COLUMNS="40")
    assert len(ran.out.splitlines()) == 2
    assert f"ValueError: {long}\n" in ran.out


def test_show(shell: Shell, dead: list[str]) -> None:
    ran = shell.type("dead", "show", dead[1], "--url", shell.url)
    assert ran.code == 0
    assert 'call         {"args":[2]}' in ran.out
    assert "ValueError: bang 1" in ran.out
    ran = shell.type("dead", "show", dead[1], "--json", "--url", shell.url)
    assert ran.json["call"] == {"args": [2]}


def test_show_of_others_fails(shell: Shell, app: Windlass) -> None:
    job_id = app.tasks["tasks.add"].enqueue(1).id
    ran = shell.type("dead", "show", job_id, "--url", shell.url)
    assert (ran.code, ran.out) == (1, "")
    assert f"Job {job_id} is ready, not dead." in ran.err
    ran = shell.type("dead", "show", UNKNOWN, "--url", shell.url)
    assert ran.code == 1
    assert f"There is no job {UNKNOWN} in sqlite {shell.database}." in ran.err


# ---------------------------------------------------------------------------------------- retrying


def test_retry_by_id(shell: Shell, app: Windlass, dead: list[str]) -> None:
    ran = shell.type("dead", "retry", dead[0], "--url", shell.url)
    assert (ran.code, ran.out, ran.err) == (0, "1 dead job retried.\n", "")
    assert states(app, dead) == [State.READY, State.DEAD, State.DEAD]


def test_retry_by_task_and_all(shell: Shell, app: Windlass, dead: list[str]) -> None:
    ran = shell.type("dead", "retry", "--task", "tasks.add", "--url", shell.url)
    assert ran.out == "2 dead jobs retried.\n"
    assert states(app, dead) == [State.READY, State.READY, State.DEAD]
    ran = shell.type("dead", "retry", "--all", "--json", "--url", shell.url)
    assert (ran.json, ran.err) == ({"retried": 1}, "")
    assert states(app, dead) == [State.READY] * 3


def test_those_whose_unique_key_is_taken_are_left(shell: Shell, app: Windlass, hand: Hand) -> None:
    task = app.task(name="tasks.unique", unique=Unique())(other)
    jobs = []
    for _ in range(2):
        jobs.append(task.enqueue().id)
        hand.bury(ValueError("bang"))
    ran = shell.type("dead", "retry", "--all", "--url", shell.url)
    assert (ran.code, ran.out) == (0, "1 dead job retried.\n")
    assert ran.err == "1 dead job not changed: another job holds its unique key.\n"
    assert sorted(states(app, jobs)) == [State.DEAD, State.READY]


def test_progress_is_shown_on_a_terminal_only(shell: Shell, dead: list[str]) -> None:
    sent = shell.type_on_terminal("dead", "retry", dead[0], "--url", shell.url, columns=80)
    assert "Retrying" in sent
    assert sent.endswith("1 dead job retried.\n")
    assert shell.type("dead", "retry", dead[1], "--url", shell.url).err == ""


def test_one_wrong_id_and_nothing_is_changed(shell: Shell, app: Windlass, dead: list[str]) -> None:
    for command in ("retry", "discard"):
        ran = shell.type("dead", command, *dead, UNKNOWN, "--url", shell.url, answer="y\n")
        assert ran.code == 1
        assert f"There is no job {UNKNOWN}" in ran.err
        assert states(app, dead) == [State.DEAD] * 3


# -------------------------------------------------------------------------------------- discarding


@pytest.mark.parametrize("answer", ["n\n", "", "\n"], ids=["no", "no terminal", "nothing"])
def test_without_a_yes_nothing_is_discarded(
    shell: Shell, app: Windlass, dead: list[str], answer: str
) -> None:
    ran = shell.type("dead", "discard", "--all", "--url", shell.url, answer=answer)
    assert (ran.code, ran.out) == (1, "")
    assert f"Remove all 3 dead jobs of sqlite {shell.database} permanently? [y/N]" in ran.err
    assert "Error: Nothing was discarded. Give --yes to skip the prompt.\n" in ran.err
    assert states(app, dead) == [State.DEAD] * 3


def test_discard_after_a_yes(shell: Shell, app: Windlass, dead: list[str]) -> None:
    ran = shell.type("dead", "discard", dead[0], "--url", shell.url, answer="y\n")
    assert ran.code == 0
    assert "Remove 1 dead job of" in ran.err
    gone, summary = ran.out.splitlines()
    assert gone == f'discarding {dead[0]} tasks.add exhausted {{"args":[1]}}'
    assert summary == "1 dead job discarded."
    with pytest.raises(JobNotFound):
        app.job(dead[0]).info()
    assert states(app, dead[1:]) == [State.DEAD] * 2


def test_discard_without_a_question(shell: Shell, app: Windlass, dead: list[str]) -> None:
    command = ["dead", "discard", "--task", "tasks.add", "--yes", "--json", "--url", shell.url]
    ran = shell.type(*command)
    assert (ran.code, ran.json) == (0, {"discarded": 2})
    assert f"discarding {dead[0]} tasks.add exhausted" in ran.err
    assert "[y/N]" not in ran.err
    assert states(app, dead[2:]) == [State.DEAD]


# ------------------------------------------------------------------------------ choosing and rates


def test_groups(shell: Shell, app: Windlass, dead: list[str]) -> None:
    head, *rows = shell.type("dead", "list", "--group", "--url", shell.url).out.splitlines()
    names = ["fingerprint", "count", "task", "releases", "first", "last", "example", "error"]
    assert head.split() == names
    assert [row.split()[1:3] for row in rows] == [["2", "tasks.add"], ["1", "tasks.other"]]
    [first, _] = shell.type("dead", "list", "--group", "--json", "--url", shell.url).json
    assert first["count"] == 2
    assert first["example"] in dead[:2]
    assert first["releases"][0]["release"] == ""
    command = ["dead", "list", "--fingerprint", first["fingerprint"], "--task", "tasks.add"]
    ran = shell.type(*command, "--json", "--url", shell.url)
    assert {described["id"] for described in ran.json} == set(dead[:2])
    ran = shell.type("dead", "list", "--group", "--new-since", "v1", "--url", shell.url)
    assert (ran.code, "There is no release v1" in ran.err) == (1, True)
    note_release(app.engine, "v1")
    ran = shell.type("dead", "list", "--group", "--new-since", "v1", "--url", shell.url)
    assert (ran.code, ran.err) == (0, "No groups of dead jobs are new since v1.\n")
    ran = shell.type("dead", "list", "--new-since", "v1", "--url", shell.url)
    assert (ran.code, "--new-since is for groups" in ran.err) == (2, True)
    ran = shell.type("dead", "regroup", "--json", "--url", shell.url)
    assert ran.json == {"regrouped": 0}


@pytest.mark.parametrize("verb", ["retry", "discard"])
def test_a_choice_that_fits_none_is_a_mistake(
    shell: Shell, dead: list[str], type_here: Typing, verb: str
) -> None:
    ran = type_here("dead", verb, "--task", "tasks.othr", "--yes", "--url", shell.url)
    assert (ran.code, ran.out) == (1, "")
    assert "No dead jobs of the task tasks.othr. Did you mean tasks.other? Nothing was" in ran.err
    ran = type_here("dead", verb, "--task", "othr", "--yes", "--url", shell.url)
    assert "No dead jobs of the task othr. Did you mean tasks.other? Nothing was" in ran.err
    ran = type_here("dead", verb, "--fingerprint", "zzz", "--url", shell.url)
    assert (ran.code, ran.out) == (1, "")
    assert "No dead jobs with the fingerprint zzz. " in ran.err
    sweep = ("dead", verb, "--task", "tasks.add", "--older-than", "7d", "--yes")
    assert type_here(*sweep, "--url", shell.url).code == 0


def test_choices_are_shown_before_they_are_used(
    shell: Shell, app: Windlass, dead: list[str]
) -> None:
    command = ["dead", "retry", "--task", "tasks.add", "--newer-than", "1h", "--dry-run"]
    ran = shell.type(*command, "--url", shell.url)
    said = "The 2 dead jobs of the task tasks.add and dead for no longer than 1:00:00"
    assert (ran.code, ran.out) == (0, f"{said} would be retried.\n")
    assert states(app, dead) == [State.DEAD] * 3
    ran = shell.type("dead", "retry", dead[0], "--all", "--url", shell.url)
    assert ran.code == 2
    assert "exactly one of these" in ran.err


def test_a_rate_that_is_none_is_refused(shell: Shell, dead: list[str]) -> None:
    ran = shell.type("dead", "retry", "--all", "--rate", "fast", "--url", shell.url)
    assert ran.code == 2
    assert "expected a rate such as 500/s, 30/m or 10/h, found 'fast'" in ran.err


def test_ctrl_c_stops_between_two_steps(shell: Shell, app: Windlass, dead: list[str]) -> None:
    command = ["dead", "retry", "--all", "--rate", "1/h", "--url", shell.url]
    process = shell.start(*command)
    until(lambda: State.READY in states(app, dead), "the first one")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=10)
    assert process.returncode == 1
    assert out == "1 job retried.\n"
    [paused] = app.operations.list()
    assert (paused.state, paused.done) == ("paused", 1)
    assert err.startswith(f"Error: Paused: paused by {actor()}. ")
    assert f"windlass operation resume {paused.id}` continues" in err
    assert sorted(states(app, dead)) == [State.DEAD, State.DEAD, State.READY]


def test_a_filter_with_a_rate_is_a_bulk_operation(
    type_here: Typing, shell: Shell, app: Windlass, dead: list[str]
) -> None:
    command = ["dead", "retry", "--task", "tasks.add", "--rate", "50", "--stop-after", "3"]
    ran = type_here(*command, "--json", "--url", shell.url)
    [found] = app.operations.list()
    assert (ran.code, ran.json["retried"], ran.json["operation"]) == (0, 2, found.id)
    assert (found.state, found.rate, found.stop_after, found.total) == ("finished", 50, 3, 2)
    assert (found.actor, found.filter["task"]) == (actor(), "tasks.add")
    assert sorted(states(app, dead)) == [State.DEAD, State.READY, State.READY]
    [own, ended] = app.audit.list()
    assert (own.action, own.details["done"], own.details["operation"]) == (
        *("dead.retry", 2, found.id),
    )
    assert ended.action == "operation.finished"


def test_a_stop_rule_is_for_filters(type_here: Typing, shell: Shell, dead: list[str]) -> None:
    ran = type_here("dead", "retry", dead[0], "--stop-after", "3", "--url", shell.url)
    assert (ran.code, "--stop-after is for a filter or --all" in ran.err) == (2, True)


# ----------------------------------------------------------------------------------------- editing


def test_a_name_takes_the_place_of_what_was_given_by_position(
    shell: Shell, hand: Hand, dead: list[str]
) -> None:
    ran = shell.type_with_app("dead", "retry", dead[0], "--kwargs", '{"a": 7}')
    assert (ran.code, ran.out) == (0, "1 dead job retried.\n")
    assert hand.take().payload == b'{"kwargs":{"a":7}}'


def test_retry_with_other_arguments(
    shell: Shell, app: Windlass, hand: Hand, dead: list[str]
) -> None:
    ran = shell.type_with_app("dead", "retry", dead[0], "--kwargs", '{"b": 7}')
    assert (ran.code, ran.out) == (0, "1 dead job retried.\n")
    claim = hand.take()
    assert claim.payload == b'{"args":[1],"kwargs":{"b":7}}'
    shown = shell.type("job", "show", dead[0], "--url", shell.url).out
    assert 'before: {"args":[1]}' in shown
    [described] = shell.type("job", "show", dead[0], "--json", "--url", shell.url).json
    assert described["history"][-1]["replaced"] == '{"args":[1]}'
    assert described["error"]["message"] == "bang 0"


def test_arguments_that_do_not_fit_are_refused(
    shell: Shell, app: Windlass, dead: list[str]
) -> None:
    ran = shell.type_with_app("dead", "retry", dead[0], "--args", '["many"]')
    assert (ran.code, "The arguments do not fit" in ran.err) == (2, True)
    ran = shell.type_with_app("dead", "retry", dead[0], "--args", "[1, 2, 3]")
    assert ran.code == 2
    assert "The arguments do not fit: tasks.add(): too many positional arguments.\n" in ran.err
    ran = shell.type_with_app("dead", "retry", dead[0], "--args", "{")
    assert (ran.code, "--args expects a JSON array" in ran.err) == (2, True)
    ran = shell.type_with_app("dead", "retry", "--all", "--args", "[1]")
    assert (ran.code, "need exactly one job" in ran.err) == (2, True)
    assert states(app, dead) == [State.DEAD] * 3


def test_without_the_app_arguments_are_stored_only_if_asked_for(
    shell: Shell, app: Windlass, hand: Hand, dead: list[str]
) -> None:
    typed = ["dead", "retry", dead[0], "--args", '["many"]', "--url", shell.url]
    ran = shell.type(*typed)
    assert (ran.code, ran.out) == (2, "")
    assert "cannot be checked: the task tasks.add is not known here. Name the app" in ran.err
    assert states(app, dead) == [State.DEAD] * 3
    ran = shell.type(*typed, "--unchecked")
    assert (ran.code, ran.out) == (0, "1 dead job retried.\n")
    assert hand.take().payload == b'{"args":["many"]}'


def test_an_unknown_task_is_asked_after(shell: Shell, app: Windlass, dead: list[str]) -> None:
    text = (shell.folder / "tasks.py").read_text().replace("def add(", "def adds(")
    (shell.folder / "tasks.py").write_text(text)
    ran = shell.type_with_app("dead", "retry", dead[0], "--args", "[1]")
    assert (ran.code, "Did you mean tasks.adds?" in ran.err) == (2, True)
    assert states(app, dead) == [State.DEAD] * 3


def test_a_known_task_is_not_checked_on_request(shell: Shell, hand: Hand, dead: list[str]) -> None:
    typed = ["dead", "retry", dead[0], "--kwargs", '{"of_next_version": 1}']
    assert shell.type_with_app(*typed).code == 2
    assert shell.type_with_app(*typed, "--unchecked").code == 0
    assert b'{"args":[1],"kwargs":{"of_next_version":1}}' in hand.take().payload
    ran = shell.type_with_app("dead", "retry", dead[1], "--unchecked")
    assert (ran.code, "give --args or --kwargs with it" in ran.err) == (2, True)
