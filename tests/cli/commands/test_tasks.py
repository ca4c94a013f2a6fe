"""`windlass tasks`, and the modules that the setting `include` has imported for it."""

from __future__ import annotations

import time

import pytest

from tests.app.hand import Hand
from tests.cli.forks import SCRIPT
from tests.cli.shell import Shell
from tests.docs.transcript import Worker
from windlass import Windlass

APP = """
from windlass import Windlass
app = Windlass("sqlite:///jobs.db?durability=normal", include={include}, routes={routes})
"""

BILLING = """
from windlass import Cron, Every, Retry
from shop.app import app

@app.task(name="billing.charge", aliases=["billing.pay"], retry=Retry(max_attempts=3, base="1m"))
def charge(cents: int) -> int:
    return cents

@app.task(name="billing.close", schedule=[Cron("0 3 * * *"), Every("1h")], run_in="process")
def close() -> None: ...
"""

MAIL = """
from shop.app import app

@app.task(name="mail.send", queue="mail", requires="smtp", retry=app.settings.retry)
async def send(to: str) -> None: ...
"""


@pytest.fixture
def shop(shell: Shell) -> Shell:
    """A package whose app names modules, and modules that its app does not import."""
    for file, text in {
        "shop/__init__.py": "",
        "shop/__main__.py": "raise SystemExit('run, and not imported')",
        "shop/app.py": APP.format(include=["shop.parts.*"], routes={"billing.*": "money"}),
        "shop/parts/__init__.py": "",
        "shop/parts/billing.py": BILLING,
        "shop/parts/mail/__init__.py": "",
        "shop/parts/mail/tasks.py": MAIL,
    }.items():
        place = shell.folder / file
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    return shell


def name_modules(shop: Shell, *modules: str, **routes: str) -> None:
    text = APP.format(include=list(modules), routes=routes)
    (shop.folder / "shop" / "app.py").write_text(text, encoding="utf-8")


def names(shop: Shell) -> list[str]:
    ran = shop.type("tasks", "--app", "shop.app:app", "--json")
    assert ran.code == 0, ran.err
    return [task["name"] for task in ran.json]


# ----------------------------------------------------------------------------------------- listing


def test_tasks_are_listed_with_what_is_said_of_them(shop: Shell) -> None:
    name_modules(shop, "shop.parts.billing", "shop.parts.mail.tasks")
    charge, close, send = shop.type("tasks", "--app", "shop.app:app", "--json").json
    assert charge == {
        "name": "billing.charge",
        "queue": "default",
        "requires": [],
        "runner": "thread",
        "schedule": [],
        "retry": "3 attempts, 1m and more apart",
        "aliases": ["billing.pay"],
    }
    assert (close["runner"], len(close["schedule"])) == ("process", 2)
    assert (send["runner"], send["queue"], send["requires"]) == ("loop", "mail", ["smtp"])
    assert not shop.database.exists()  # the engine was not opened


def test_tasks_for_people(shop: Shell) -> None:
    ran = shop.type("tasks", "--app", "shop.app:app")
    head, charge, close = ran.out.splitlines()
    assert head.split() == ["name", "queue", "requires", "runner", "schedule", "retry", "aliases"]
    assert charge.startswith("billing.charge  money")
    assert "billing.pay" in charge
    assert "0 3 * * *" in close


def test_an_app_without_tasks_says_so(shop: Shell) -> None:
    name_modules(shop)
    ran = shop.type("tasks", "--app", "shop.app:app")
    assert (ran.code, ran.out) == (0, "")
    assert "The app has no tasks. Name the modules" in ran.err


# --------------------------------------------------------------------------------------- including


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("shop.parts.*", ["billing.charge", "billing.close"]),
        ("shop.parts.*.tasks", ["mail.send"]),
        ("shop.*.*.tasks", ["mail.send"]),
    ],
)
def test_patterns_match_the_modules_of_a_package(
    shop: Shell, pattern: str, expected: list[str]
) -> None:
    name_modules(shop, pattern)
    assert names(shop) == expected


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("shop.nothing", "The module shop.nothing (from include='shop.nothing')"),
        ("nothing.*", "no module nothing can be imported from here"),
        ("shop.parts.billing.*", "include='shop.parts.billing.*' matches no module"),
        ("shop.*.nothing", "include='shop.*.nothing' matches no module"),
        ("shop.parts.*", "broken (from include='shop.parts.*') cannot be import"),
    ],
)
def test_what_cannot_be_included_is_named(shop: Shell, pattern: str, said: str) -> None:
    name_modules(shop, pattern)
    (shop.folder / "shop" / "parts" / "broken.py").write_text("1 / 0", encoding="utf-8")
    ran = shop.type("tasks", "--app", "shop.app:app")
    assert ran.code == 2
    assert said in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1 / 0", "The module shop.parts.broken (from include='shop.parts.*') cannot be imported"),
        ("from shop.app import app\napp.task(print)\n", "The module shop.parts.broken (from incl"),
    ],
    ids=["any error", "an error of windlass"],
)
def test_a_look_without_the_app_is_advised_when_a_module_is_broken(
    shop: Shell, text: str, said: str
) -> None:
    assert shop.type("enqueue", "billing.close", "--app", "shop.app:app").code == 0
    (shop.folder / "shop" / "parts" / "broken.py").write_text(text, encoding="utf-8")
    for command in (("job", "list"), ("doctor",)):
        ran = shop.type(*command, "--app", "shop.app:app")
        assert ran.code == 2
        assert said in ran.err + ran.out
        assert "works without the app as well: give --url" in ran.err + ran.out
    assert shop.type("job", "list", "--url", shop.url).code == 0


def test_a_queue_of_an_included_task_can_be_paused_before_its_first_job(shop: Shell) -> None:
    with Windlass(shop.url) as app:
        app.engine.migrate()
    listed = shop.type("tasks", "--app", "shop.app:app", "--json").json
    assert {task["queue"] for task in listed} == {"money"}
    ran = shop.type("queue", "pause", "money", "--app", "shop.app:app")
    assert (ran.code, ran.out) == (0, "The queue money is paused.\n")
    ran = shop.type("queue", "pause", "mony", "--app", "shop.app:app")
    assert (ran.code, "Did you mean money?" in ran.err) == (1, True)


def test_arguments_of_an_included_task_are_checked(shop: Shell) -> None:
    with Windlass(shop.url) as app:
        job = app.task_named("billing.charge").enqueue(1)
        Hand(app).bury(ValueError("no"))
    ran = shop.type("dead", "retry", job.id, "--args", '["many"]', "--app", "shop.app:app")
    assert (ran.code, "The arguments do not fit" in ran.err) == (2, True)
    ran = shop.type("dead", "retry", job.id, "--args", "[2]", "--app", "shop.app:app")
    assert (ran.code, ran.out) == (0, "1 dead job retried.\n")


def test_the_end_of_a_name_is_enough(shop: Shell) -> None:
    """For an enqueue and for filters; the end of an alias, too."""
    for name in ("charge", "pay"):
        ran = shop.type("enqueue", name, "--args", "[1]", "--json", "--app", "shop.app:app")
        assert (ran.code, ran.json["task"]) == (0, "billing.charge"), ran.err
    [second, first] = shop.type(
        "job", "list", "--task", "charge", "--json", "--app", "shop.app:app"
    ).json
    with Windlass(shop.url) as app:
        hand = Hand(app)
        hand.bury(ValueError("no"))
        hand.bury(ValueError("no"))
    ran = shop.type("dead", "list", "--task", "charge", "--json", "--app", "shop.app:app")
    assert {one["id"] for one in ran.json} == {first["id"], second["id"]}
    ran = shop.type("dead", "retry", "--task", "charge", "--yes", "--app", "shop.app:app")
    assert ran.out == "2 dead jobs retried.\n"
    ran = shop.type("enqueue", "harge", "--args", "[1]", "--app", "shop.app:app")
    assert (ran.code, "The app has no task 'harge'" in ran.err) == (2, True)


def test_the_end_of_several_names_is_refused(shop: Shell) -> None:
    text = "from shop.app import app\n\n@app.task(name='refunds.charge')\ndef charge(): ...\n"
    (shop.folder / "shop" / "parts" / "refunds.py").write_text(text, encoding="utf-8")
    with Windlass(shop.url) as app:
        app.engine.migrate()
    for command in (("enqueue", "charge"), ("job", "list", "--task", "charge")):
        ran = shop.type(*command, "--app", "shop.app:app")
        assert ran.code == 2
        assert "'charge' is short for several tasks: billing.charge, refunds.charge." in ran.err


def test_a_name_that_jobs_have_is_not_taken_for_the_end_of_another(shop: Shell) -> None:
    with Windlass(shop.url) as app:
        hand = Hand(app)
        for name in ("billing.charge", "charge"):
            app.task_named(name).enqueue(1)
            hand.bury(ValueError("no"))
    ran = shop.type("dead", "discard", "--task", "charge", "--yes", "--app", "shop.app:app")
    assert "1 dead job discarded." in ran.out
    [left] = shop.type("dead", "list", "--json", "--app", "shop.app:app").json
    assert left["task"] == "billing.charge"


def test_a_task_that_is_included_can_be_enqueued_by_any_of_its_names(shop: Shell) -> None:
    arguments = ("--app", "shop.app:app", "--args", "[7]")
    for name in ("billing.charge", "billing.pay"):
        assert shop.type("enqueue", name, *arguments).code == 0
    ran = shop.type("job", "list", "--task", "billing.charge", "--json", "--url", shop.url)
    assert [job["queue"] for job in ran.json] == ["money", "money"]


def test_the_environment_can_name_modules(shell: Shell) -> None:
    (shell.folder / "more.py").write_text(
        "from tasks import app\n@app.task(name='more')\ndef more() -> None: ...\n", encoding="utf-8"
    )
    ran = shell.type("tasks", "--app", "tasks:app", "--json", WINDLASS_INCLUDE="more")
    assert "more" in [task["name"] for task in ran.json]


# ----------------------------------------------------------------------------------------- workers


def test_a_worker_imports_what_is_included(shop: Shell) -> None:
    name_modules(shop, "shop.parts.*", **{"billing.*": "money", "maill.*": "mail"})
    command = f"{SCRIPT} worker shop.app:app -p 2 -q money,mony"
    worker = Worker(command, shop.folder, shop.environment({}))
    ran = shop.type(
        *("enqueue", "billing.charge", "--app", "shop.app:app", "--args", "[7]", "--wait")
    )
    lines, deadline = worker.take(), time.monotonic() + 20
    while (
        "is unused" not in lines and time.monotonic() < deadline
    ):  # the engine has to answer first
        time.sleep(0.05)
        lines += worker.take()
    worker.interrupt()
    lines += worker.take()
    assert ran.out.splitlines()[-1] == "7", ran.err
    assert "2 tasks" in lines
    assert lines.count("route maill.* matches no task of this app") == 1
    assert "billing.*=money" in lines
    assert lines.count(" is unused: no job was ever in it") == 1
    assert "queue mony is unused: no job was ever in it, and the tasks of this app go to " in lines


def test_a_worker_that_cannot_include_a_module_ends_with_its_traceback(shop: Shell) -> None:
    (shop.folder / "shop" / "parts" / "broken.py").write_text("1 / 0", encoding="utf-8")
    ran = shop.type("worker", "shop.app:app", "-p", "1")
    assert ran.code == 2
    assert "ZeroDivisionError: division by zero" in ran.err
    assert "The module shop.parts.broken (from include='shop.parts.*')" in ran.err


def test_a_worker_names_a_missing_module_in_one_line(shop: Shell) -> None:
    name_modules(shop, "shop.nothing")
    ran = shop.type("worker", "shop.app:app", "-p", "1")
    assert ran.code == 2
    assert "cannot serve shop.app:app: The module shop.nothing (from include=" in ran.err
    assert "Traceback" not in ran.err
