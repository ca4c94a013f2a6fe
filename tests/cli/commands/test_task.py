"""`windlass task`: pause and resume."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.app.hand import Hand
from tests.cli.conftest import Typing
from tests.cli.shell import Shell
from tests.contract.variants import fresh_url
from windlass import State, Windlass

APP = ("--app", "tasks:app")


def test_pause_and_resume(app: Windlass, hand: Hand, type_here: Typing) -> None:
    app.tasks["tasks.add"].enqueue(1)
    ran = type_here("task", "pause", "tasks.add", *APP)
    assert (ran.code, ran.out) == (0, "The task tasks.add is paused.\n")
    assert hand.find() == ()
    told = type_here("status", *APP)
    assert "Paused tasks: tasks.add. " in told.err
    assert type_here("status", "--json", *APP).json["paused_tasks"] == ["tasks.add"]
    ran = type_here("task", "resume", "tasks.add", *APP)
    assert (ran.code, ran.out) == (0, "The task tasks.add is open.\n")
    assert "Paused" not in type_here("status", *APP).err
    assert hand.take().task == "tasks.add"


def test_as_json(app: Windlass, type_here: Typing) -> None:
    app.engine.migrate()
    for command, is_paused in (("pause", True), ("resume", False)):
        ran = type_here("task", command, "tasks.add", "--json", *APP)
        assert ran.json == {"task": "tasks.add", "paused": is_paused}


def test_an_unknown_task_needs_consent(app: Windlass, shell: Shell, type_here: Typing) -> None:
    app.engine.migrate()
    refused = type_here("task", "pause", "tasks.ad", *APP)
    assert refused.code == 1
    assert "Unknown task tasks.ad: the app does not declare it, and it has no jobs." in refused.err
    assert "Did you mean tasks.add? Give --yes to pause it anyway." in refused.err
    assert app.engine.paused_tasks() == []
    assert type_here("task", "pause", "tasks.ad", "--yes", *APP).code == 0
    assert type_here("task", "pause", "tasks.ad", *APP).code == 0  # it is known by its pause
    assert type_here("task", "resume", "tasks.ad", *APP).code == 0
    app.task_named("tasks.ad").enqueue()
    assert type_here("task", "pause", "tasks.ad", "--url", shell.url).code == 0  # and by its jobs


def test_without_an_app_a_task_is_known_only_by_its_jobs(
    app: Windlass, shell: Shell, type_here: Typing
) -> None:
    app.engine.migrate()
    for command, code in (("pause", 1), ("resume", 0)):
        ran = type_here("task", command, "tasks.add", "--url", shell.url)
        assert ran.code == code
        assert "Unknown task tasks.add: it has no jobs, and no app with tasks was given" in ran.err
        assert "declare" not in ran.err


def test_a_task_of_an_included_module_is_known(app: Windlass, shell: Shell) -> None:
    app.engine.migrate()
    main = 'from windlass import Windlass\napp = Windlass("sqlite:///jobs.db", include=["extra"])\n'
    extra = "from main import app\n@app.task\ndef sing(a: int): ...\n"
    (shell.folder / "main.py").write_text(main, encoding="utf-8")
    (shell.folder / "extra.py").write_text(extra, encoding="utf-8")
    assert shell.type("task", "pause", "extra.sing", "--app", "main:app").code == 0
    assert app.engine.paused_tasks() == ["extra.sing"]


@pytest.mark.parametrize("variant", ["sqlite-file", "redis", "postgres"])
def test_the_end_of_a_name_is_enough(tmp_path: Path, type_here: Typing, variant: str) -> None:
    url = fresh_url(variant, tmp_path)
    both = (*APP, "--url", url)
    with Windlass(url) as app:
        app.task_named("shop.orders.charge").enqueue()
        for command, paused in (("pause", ["tasks.add"]), ("resume", [])):
            ran = type_here("task", command, "add", "--json", *both)
            assert ran.json["task"] == "tasks.add"
            assert app.engine.paused_tasks() == paused
        app.task_named("shop.orders.charge").pause()
        ran = type_here("task", "resume", "orders.charge", "--url", url)  # known by its pause
        assert ran.out == "The task shop.orders.charge is open.\n"
        assert app.engine.paused_tasks() == []


def test_an_ambiguous_end_lists_the_candidates(app: Windlass, shell: Shell) -> None:
    app.engine.migrate()
    text = """
from windlass import Windlass
app = Windlass("sqlite:///jobs.db")
for name in ("shop.orders.charge", "shop.cards.charge"):
    @app.task(name=name)
    def charge(): ...
"""
    (shell.folder / "shop.py").write_text(text, encoding="utf-8")
    for command in ("pause", "resume"):
        ran = shell.type("task", command, "charge", "--app", "shop:app")
        assert ran.code == 2
        several = "'charge' is short for several tasks: shop.cards.charge, shop.orders.charge."
        assert several in ran.err
    assert shell.type("task", "pause", "orders.charge", "--yes", "--app", "shop:app").code == 0
    assert app.engine.paused_tasks() == ["shop.orders.charge"]


def test_an_unknown_task_is_not_resumed(app: Windlass, shell: Shell, type_here: Typing) -> None:
    app.engine.migrate()
    ran = type_here("task", "resume", "ad", *APP)
    assert (ran.code, ran.out) == (1, "")
    assert "Unknown task ad: " in ran.err
    assert "Did you mean tasks.add? Nothing was resumed." in ran.err


@pytest.mark.slow  # enqueues many jobs
@pytest.mark.parametrize("variant", ["sqlite-file", "redis", "redis-4", "postgres"])
def test_ten_thousand_jobs_are_resumed(tmp_path: Path, type_here: Typing, variant: str) -> None:
    url = fresh_url(variant, tmp_path)
    with Windlass(url) as app:
        app.task_named("pay").enqueue_many((number,) for number in range(10_000))
        app.task_named("sing").enqueue(1)
        assert type_here("task", "pause", "pay", "--url", url).code == 0
        hand = Hand(app)
        [claim] = next(filter(None, (hand.find() for _ in range(1_000))))  # each holds some
        assert claim.task == "sing"
        assert type_here("task", "resume", "pay", "--url", url).code == 0
        assert app.stats().jobs == {State.READY: 10_000, State.RUNNING: 1}
        assert hand.take().task == "pay"
        assert app.engine.check() == []
