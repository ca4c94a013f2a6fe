"""The alerts of a worker: log lines and hooks."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any, cast

import pytest

from tests.alerts.helpers import bury, take_number
from tests.contract.variants import fresh_url
from tests.worker.yard import until
from windlass import Alert, AlertEvent, Windlass
from windlass.alerts import watch
from windlass.core.alerts.states import make_test_event
from windlass.worker.logs.setup import JsonFormatter
from windlass.worker.maintenance.alerts import call_alert_hooks, log_alert


@pytest.fixture(params=["sqlite-file", "redis-4", "postgres"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Windlass]:
    with Windlass(fresh_url(request.param, tmp_path), dead_alert=3) as app:
        app.task(name="number")(take_number)
        yield app


def test_a_worker_calls_the_hooks(app: Windlass, caplog: pytest.LogCaptureFixture) -> None:
    fired, cleared = Event(), Event()
    events: list[AlertEvent] = []

    @app.on_alert
    def fail(event: AlertEvent) -> None:
        raise RuntimeError("no pager")

    @app.on_alert
    async def page(event: AlertEvent) -> None:
        events.append(event)
        (fired if event.state == "firing" else cleared).set()

    ids = bury(app, 4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(watch, "LOOK_S", 0.02)
        patch.setattr(watch, "DELIVERY_S", 0.02)
        with app.worker(slots=1):
            until(fired.is_set, "the alert")
            app.dead.discard(*ids)
            until(cleared.is_set, "the end of the alert")
    assert [(event.kind, event.state, event.value) for event in events] == [
        ("dead_letters", "firing", 4),
        ("dead_letters", "cleared", 0),
    ]
    assert "alert hook failed" in caplog.text
    assert "RuntimeError: no pager" in caplog.text
    assert [line for line in caplog.messages if line.startswith("alert ") and ":" in line] == [
        "alert firing: 4 dead jobs, threshold 3: see windlass dead list --group",
        "alert cleared: 0 dead jobs, threshold 3: see windlass dead list --group",
    ]
    [one] = [one for one in app.alerts.list() if one.rule == "dead_letters > 3"]
    assert (one.state, one.holder) == ("ok", ""), "a worker that stops hands its rules over"


def test_a_line_has_its_parts_as_fields(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "windlass.alerts"):
        log_alert(make_test_event(Alert.oldest_age("5m", queue="mail"), 0))
    shown = json.loads(JsonFormatter().format(caplog.records[0]))
    assert shown["event"] == "alert_test"
    assert (shown["alert"], shown["subject"]) == ("oldest_age", "mail")
    assert (shown["rule"], shown["value"], shown["threshold"]) == (
        "oldest_age(mail) > 5m",
        300,
        300,
    )


def test_without_hooks_no_thread_starts() -> None:
    call_alert_hooks((), make_test_event(Alert.no_worker(), 0))


@pytest.mark.parametrize("hook", [7, lambda: None])
def test_a_hook_takes_one_event(hook: object) -> None:
    with Windlass("sqlite:///:memory:") as app, pytest.raises(TypeError, match="AlertEvent"):
        app.on_alert(cast(Any, hook))
