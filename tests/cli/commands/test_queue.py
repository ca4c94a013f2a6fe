"""`windlass queue`: list, pause, resume, purge."""

from __future__ import annotations

import pytest

from tests.cli.shell import Shell
from windlass import Windlass


@pytest.fixture
def filled(shell: Shell) -> Shell:
    for arguments in (["tasks.add", "--args", "[1]"], ["tasks.remind", "--args", '["2030-01-31"]']):
        assert shell.type_with_app("enqueue", *arguments).code == 0
    return shell


def test_a_queue_is_paused_shown_and_resumed(filled: Shell) -> None:
    ran = filled.type_with_app("queue", "pause", "mail")
    assert (ran.code, ran.out) == (0, "The queue mail is paused.\n")
    listed = filled.type_with_app("queue", "list")
    assert [line.split() for line in listed.out.splitlines()] == [
        ["queue", "settings", "ready"],
        ["default", "1"],
        ["mail", "paused", "1"],
    ]
    assert "Paused: mail." in filled.type_with_app("status").err
    assert filled.type_with_app("queue", "resume", "mail").out == "The queue mail is open.\n"
    found = filled.type_with_app("queue", "list", "--json").json
    assert [(queue["name"], queue["paused"]) for queue in found] == [
        ("default", False),
        ("mail", False),
    ]


def test_a_paused_queue_that_was_never_used_is_listed(filled: Shell) -> None:
    assert filled.type_with_app("queue", "pause", "later", "--yes").code == 0
    assert "later" in filled.type_with_app("queue", "list").out


def test_a_purge_asks_first(filled: Shell) -> None:
    ran = filled.type_with_app("queue", "purge", "mail", answer="n\n")
    assert ran.code == 1
    assert "Remove 1 job that waits in mail" in ran.err
    assert "Nothing was removed" in ran.err
    assert filled.type_with_app("queue", "purge", "mail", answer="").code == 1
    ran = filled.type_with_app("queue", "purge", "mail", answer="y\n")
    assert (ran.code, ran.out) == (0, "1 job removed from the queue mail.\n")


def test_a_purge_tells_the_number(filled: Shell) -> None:
    ran = filled.type_with_app("queue", "purge", "default", "--yes", "--json")
    assert ran.json == {"purged": 1}
    assert ran.err == "", "the same is not said twice"
    assert filled.type_with_app("queue", "purge", "default", "--yes", "--json").json == {
        "purged": 0
    }


def test_without_jobs_there_are_no_queues(shell: Shell) -> None:
    shell.type_with_app("enqueue", "tasks.add", "--args", "[1]")
    shell.type_with_app("queue", "purge", "default", "--yes")
    assert "No queues" in shell.type_with_app("queue", "list").err


def test_a_name_that_is_none_is_refused(shell: Shell) -> None:
    ran = shell.type("queue", "pause", "a b", "--url", shell.url)
    assert ran.code == 2
    assert "found 'a b'" in ran.err


def test_ageing_is_set_and_shown(filled: Shell) -> None:
    ran = filled.type_with_app("queue", "set", "default", "--ageing", "90s")
    assert (ran.code, ran.out) == (0, "The queue default: ages by 1m30s.\n")
    assert "ages by 1m30s" in filled.type_with_app("queue", "list").out
    ran = filled.type_with_app("queue", "set", "default", "--ageing", "off")
    assert ran.out == "The queue default: default settings.\n"
    assert filled.type_with_app("queue", "set", "default", "--ageing", "0.1").code == 2
    ran = filled.type_with_app("queue", "set", "default", "--max-waiting", "1")
    assert ran.out == "The queue default: at most 1 wait.\n"
    ran = filled.type_with_app("enqueue", "tasks.add", "--args", "[1]")
    assert ran.code == 1
    assert "The queue default is full: this call of tasks.add was not enqueued." in ran.err
    assert filled.type_with_app("queue", "set", "default", "--max-waiting", "0").code == 2
    assert "give --ageing" in filled.type_with_app("queue", "set", "default").err


def test_jobs_whose_labels_nobody_has_are_told_of(shell: Shell) -> None:
    with Windlass(shell.url) as app:

        @app.task(name="tasks.add", requires=["gpu", "big"])
        def add(a: int) -> None: ...

        add.enqueue(1)
    ran = shell.type_with_app("status")
    assert "default+big+gpu" in ran.out
    assert "In the queue default, waiting for big and gpu, which no worker has: 1 job." in ran.err
    assert "--label big --label gpu" in ran.err
    found = shell.type_with_app("queue", "list", "--json").json
    assert [queue["name"] for queue in found] == ["default"]
    [job] = shell.type_with_app("job", "list", "--queue", "default", "--json").json
    assert (job["queue"], job["requires"]) == ("default", ["big", "gpu"])


@pytest.mark.parametrize("arguments", [("pause", "mial"), ("set", "mial", "--ageing", "1m")])
def test_a_queue_that_nothing_is_known_of_is_left_alone(
    filled: Shell, arguments: tuple[str, ...]
) -> None:
    ran = filled.type_with_app("queue", *arguments, answer="y\n")
    assert (ran.code, ran.out) == (1, "")
    assert "Unknown queue mial" in ran.err
    assert "Did you mean mail? Give --yes" in ran.err
    assert "mial" not in filled.type_with_app("queue", "list").out
    assert filled.type_with_app("queue", *arguments, "--yes").code == 0


def test_what_is_empty_can_be_emptied_by_scripts(filled: Shell) -> None:
    ran = filled.type_with_app("queue", "purge", "elsewhere", "--yes", "--json")
    assert (ran.code, ran.json) == (0, {"purged": 0})
    assert filled.type_with_app("queue", "purge", "elsewhere", answer="y\n").code == 1


@pytest.mark.parametrize("options", [(), ("--yes",)])
def test_a_queue_that_nothing_is_known_of_is_not_purged(
    filled: Shell, options: tuple[str, ...]
) -> None:
    ran = filled.type_with_app("queue", "purge", "mial", *options, answer="y\n")
    assert (ran.code, ran.out) == (1, "")
    assert "Unknown queue mial" in ran.err
    assert "Did you mean mail? Nothing was removed." in ran.err
    ran = filled.type_with_app("queue", "purge", "mail", *options, answer="y\n")
    assert (ran.code, ran.out) == (0, "1 job removed from the queue mail.\n")


def test_a_queue_of_a_task_is_known_before_its_first_job(shell: Shell) -> None:
    assert shell.type_with_app("enqueue", "tasks.add", "--args", "[1]").code == 0
    assert shell.type_with_app("queue", "pause", "mail").code == 0
