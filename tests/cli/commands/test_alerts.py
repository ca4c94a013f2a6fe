"""`windlass alerts`: list and test."""

from __future__ import annotations

import pytest

from tests.alerts.helpers import bury, receiving, take_number
from tests.cli.conftest import Typing
from tests.cli.shell import Shell
from windlass import Alert, Windlass
from windlass.alerts.delivery import AlertDelivery
from windlass.alerts.watch import AlertWatch

APP = ("--app", "tasks:app")
WATCHED = """
import os
from windlass import Alert, Windlass

rules = [Alert.oldest_age("5m", queue="mail")]
app = Windlass("{url}", dead_alert=1, dead_alert_growth=0, alerts=rules)


@app.on_alert
def page(event):
    if os.environ.get("NO_PAGER"):
        raise RuntimeError("no pager")
    print("paged", event.state)
"""


@pytest.fixture
def url(shell: Shell, app: Windlass) -> str:
    app.engine.migrate()
    url = app.settings.url
    (shell.folder / "tasks.py").write_text(WATCHED.format(url=url))
    return url


def test_rules_before_the_first_look(url: str, type_here: Typing) -> None:
    listed = type_here("alerts", "list", *APP)
    assert listed.code == 0
    assert [line.split()[0] for line in listed.out.splitlines()] == ["state", "unknown", "unknown"]


NOT_EVALUATED = "No process evaluates these rules"


def look_at(url: str, *, ago_s: int) -> None:
    """Evaluate the rules once, by a clock that is behind."""
    with Windlass(url) as app:
        app.engine.clock_offset_ms = -1000 * ago_s
        delivery = AlertDelivery(lambda event: None, lambda event, why: None)
        watch = AlertWatch(app.engine, [Alert.dead_letters(1)], delivery)
        watch.look()
        watch.release()


def test_rules_that_no_process_evaluates(url: str, type_here: Typing) -> None:
    assert NOT_EVALUATED in type_here("alerts", "list", *APP).err
    look_at(url, ago_s=120)
    listed = type_here("alerts", "list", *APP)
    assert listed.out.splitlines()[1].split()[0] == "ok"
    assert NOT_EVALUATED in listed.err
    look_at(url, ago_s=0)
    assert NOT_EVALUATED not in type_here("alerts", "list", *APP).err


def test_what_fires_is_first(url: str, type_here: Typing) -> None:
    with Windlass(url) as app:
        app.task(name="number")(take_number)
        bury(app, 2)
        rules = [Alert.oldest_age("5m", queue="mail"), Alert.dead_letters(1)]
        delivery = AlertDelivery(lambda event: None, lambda event, why: None)
        AlertWatch(app.engine, rules, delivery).look()
        expected = app.alerts.list()
    head, first, second = type_here("alerts", "list", *APP).out.splitlines()
    assert head.split() == ["state", "rule", "subject", "value", "since", "checked", "holder"]
    assert first.split()[:5] == ["firing", "dead_letters", ">", "1", "2"]
    assert first.endswith(expected[0].holder)
    assert second.split()[:5] == ["ok", "oldest_age(mail)", ">", "5m", "mail"]
    shown = type_here("alerts", "list", "--json", *APP).json
    assert [(one["rule"], one["state"]) for one in shown] == [
        ("dead_letters > 1", "firing"),
        ("oldest_age(mail) > 5m", "ok"),
    ]
    assert shown[0]["value"] == 2


def test_a_test_goes_through_every_channel(url: str, shell: Shell) -> None:
    with receiving() as receiver:
        variable = {"WINDLASS_ALERT_WEBHOOK": receiver.url}
        ran = shell.type("alerts", "test", "--rule", "oldest_age", *APP, **variable)
        assert ran.code == 0
        host = receiver.url.removesuffix("/hook")
        assert ran.out.splitlines() == [
            "paged test",
            "channel        result  answer",
            "log            ok      logged as a warning",
            f"webhook        ok      {host}/*** answered 200",
            "on_alert page  ok      returned",
        ]
        assert "test of an alert: the next job of queue mail" in ran.err
        [body] = receiver.bodies
        assert (body["state"], body["rule"]) == ("test", "oldest_age(mail) > 5m")
        assert body["app"] == "tasks:app"
        ran = shell.type("alerts", "test", "--json", *APP, **variable)
        assert receiver.bodies[1]["rule"] == "dead_letters > 1"
        assert ran.code == 0


@pytest.mark.parametrize("broken", ["webhook", "hook"])
def test_a_channel_that_fails(url: str, shell: Shell, broken: str) -> None:
    with receiving(500 if broken == "webhook" else 200) as receiver:
        variables = {"WINDLASS_ALERT_WEBHOOK": receiver.url}
        variables |= {"NO_PAGER": "1"} if broken == "hook" else {}
        ran = shell.type("alerts", "test", *APP, **variables)
    assert ran.code == 1
    failed = [line for line in ran.out.splitlines() if " failed " in line]
    expected = "answered 500" if broken == "webhook" else "RuntimeError: no pager"
    assert len(failed) == 1
    assert failed[0].endswith(expected)


def test_a_level_that_hides_alerts_is_a_failure(url: str, shell: Shell) -> None:
    ran = shell.type("alerts", "test", *APP, WINDLASS_LOG_LEVEL="error")
    assert ran.code == 1
    assert "not logged: log_level is error" in ran.out


def test_an_unknown_rule(url: str, type_here: Typing) -> None:
    ran = type_here("alerts", "test", "--rule", "oldest", *APP)
    assert ran.code == 2
    assert "found 'oldest'. Its rules are: 'dead_letters > 1', 'oldest_age(mail) > 5m'." in ran.err
