"""`windlass alerts`: list the alerts, and test where they go."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

import click
import msgspec

from windlass.alerts.alert_list import AlertInfo
from windlass.alerts.webhook import describe_event, post
from windlass.app import Windlass
from windlass.cli.support.connection import connect, connected, find_optional_app_path
from windlass.cli.support.group import SuggestingGroup
from windlass.cli.support.output import FAILED, print_json, print_list, print_table, say
from windlass.cli.support.parameters import connection_options, json_option
from windlass.cli.support.wording import age, program
from windlass.core.alerts.rules import Alert, AlertEvent, AlertKind, number_text
from windlass.core.alerts.states import make_test_event
from windlass.core.durations import instant
from windlass.engine.clock import read_clock
from windlass.hooks import AlertHook
from windlass.worker.logs.setup import configure_own
from windlass.worker.maintenance.alerts import call_alert_hook, log_alert

#: Without a look for this time, no process evaluates the rules: another one takes over sooner.
UNWATCHED_AFTER: Final = timedelta(minutes=1)


class ChannelAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What one channel did with the test."""

    channel: str
    ok: bool
    answer: str


@click.group(cls=SuggestingGroup, short_help="List alerts, or test where they go.")
def alerts() -> None:
    """List alerts, or test where they go.

    \b
    windlass alerts list --app shop.tasks:app
    windlass alerts test --app shop.tasks:app
    """


@alerts.command("list", short_help="List the rules, and what fires.")
@connected
@json_option
def list_(app: Windlass, as_json: bool) -> None:
    """List the rules of alerts and their states, what fires first: ok, pending (the number has not
    been high for long enough), firing, or unknown (no process has evaluated the rule yet).

    Checked is the last look of the process that evaluates the rule, the holder. Rules of other apps
    on the same engine are listed too.

    \b
    windlass alerts list --app shop.tasks:app
    windlass alerts list --json
    """
    now, found = instant(read_clock(app.engine)), app.alerts.list()
    print_list(
        found,
        list,
        ["state", "rule", "subject", ">value", "since", "checked", "holder"],
        lambda one: _row(one, now),
        none="No alerts.",
        as_json=as_json,
    )
    if found and not as_json:
        _warn_if_unwatched(found, now)


def _warn_if_unwatched(found: Sequence[AlertInfo], now: datetime) -> None:
    """Say that the states are old: without a process that evaluates the rules, no alert fires."""
    looks = [one.checked_at for one in found if one.checked_at is not None]
    if not looks or now - max(looks) > UNWATCHED_AFTER:
        say(
            "No process evaluates these rules, so no alert fires: start a worker, or "
            f"`{program()} serve`."
        )


def _row(one: AlertInfo, now: datetime) -> tuple[object, ...]:
    value = "" if one.state == "unknown" else number_text(AlertKind(one.kind), one.value)
    since, checked = age(one.since, now), age(one.checked_at, now)
    return (one.state, one.rule, one.subject, value, since, checked, one.holder)


@alerts.command(short_help="Send a test alert through every channel.")
@click.option("--rule", metavar="RULE", help="Test with this rule, or kind of rule, of the app.")
@connection_options
@json_option
@click.pass_context
def test(
    ctx: click.Context, rule: str | None, app_path: str | None, url: str | None, as_json: bool
) -> None:
    """Send an alert with the state "test" to the log, to alert_webhook and to the functions of
    @app.on_alert, which run in this process, and show what each of them answered.

    The exit code is 1 if one of them failed.

    \b
    windlass alerts test --app shop.tasks:app
    windlass alerts test --rule oldest_age
    """
    with connect(app_path, url) as app:
        path = find_optional_app_path(app_path, url)
        event = make_test_event(_choose(app, rule), read_clock(app.engine))
        answers = list(_test(app, event, "" if path is None else path.target))
    if as_json:
        print_json(answers)
    else:
        print_table(
            ["channel", "result", "answer"],
            ((one.channel, "ok" if one.ok else "failed", one.answer) for one in answers),
        )
    if not all(one.ok for one in answers):
        ctx.exit(FAILED)


def _choose(app: Windlass, name: str | None) -> Alert:
    rules = app.settings.alert_rules
    if name is None:
        return next(iter(rules), Alert.no_worker())
    for rule in rules:
        if name in (str(rule), rule.kind):
            return rule
    known = ", ".join(f"'{rule}'" for rule in rules) or "none"
    raise click.UsageError(f"Expected a rule of the app, found {name!r}. Its rules are: {known}.")


def _test(app: Windlass, event: AlertEvent, name: str) -> Iterator[ChannelAnswer]:
    yield _test_log(app, event)
    webhook = app.settings.alert_webhook
    if webhook:
        answer = post(webhook.url, describe_event(event, name, app.engine.location))
        yield ChannelAnswer(channel="webhook", ok=answer.is_ok, answer=answer.text)
    for hook in app.alert_hooks:
        yield _test_hook(hook, event)


def _test_log(app: Windlass, event: AlertEvent) -> ChannelAnswer:
    """Log as a worker does."""
    configure_own(app.settings.log_level, app.settings.log_format)
    log_alert(event)
    is_shown = logging.getLogger("windlass.alerts").isEnabledFor(logging.WARNING)
    level = app.settings.log_level
    text = "logged as a warning" if is_shown else f"not logged: log_level is {level}"
    return ChannelAnswer(channel="log", ok=is_shown, answer=text)


def _test_hook(hook: AlertHook, event: AlertEvent) -> ChannelAnswer:
    channel = f"on_alert {getattr(hook, '__qualname__', hook)}"
    try:
        call_alert_hook(hook, event)
    except Exception as error:  # noqa: BLE001  # any error of the app is the answer
        return ChannelAnswer(channel=channel, ok=False, answer=f"{type(error).__name__}: {error}")
    return ChannelAnswer(channel=channel, ok=True, answer="returned")
