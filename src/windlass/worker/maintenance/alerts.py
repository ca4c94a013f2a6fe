"""The alerts of a worker: log lines, hooks, and what the maintenance thread evaluates.

1. `AlertEvaluator` evaluates the rules of the app (`windlass.alerts`). `windlass serve` uses it
   too, so that alerts fire when all workers are dead.
2. `call_alert_hooks` calls the functions of the app, in a separate thread.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import suppress
from logging import getLogger
from threading import Thread

from windlass.alerts.delivery import AlertDelivery
from windlass.alerts.watch import AlertWatch
from windlass.core.alerts.rules import Alert, AlertEvent
from windlass.engine.contract import Engine
from windlass.errors import EngineError
from windlass.hooks import AlertHook
from windlass.worker.logs.events import LogEvent

log = getLogger("windlass.alerts")


class AlertEvaluator:
    """Evaluates rules in one thread. `on_alert` passes an event to the hooks of the app, and must
    not block. `app` is the name of the app in webhooks."""

    def __init__(
        self,
        engine: Engine,
        rules: Sequence[Alert],
        on_alert: Callable[[AlertEvent], None],
        *,
        webhook: str = "",
        app: str = "",
    ) -> None:
        self._on_alert = on_alert
        self._delivery = AlertDelivery(
            self._tell, log_undelivered, webhook=webhook, app=app, engine=engine.location
        )
        self._watch = AlertWatch(engine, rules, self._delivery)
        self.look = self._watch.look

    def _tell(self, event: AlertEvent) -> None:
        log_alert(event)
        self._on_alert(event)

    def stop(self) -> None:
        """Stop, and hand the rules over to another process. If the engine is away, another process
        takes them over later."""
        self._delivery.close()
        with suppress(EngineError):
            self._watch.release()


def log_alert(event: AlertEvent) -> None:
    """Log an event. In JSON the line has its parts as fields."""
    fields = {
        "alert": str(event.kind),
        "rule": event.rule,
        "subject": event.subject,
        "value": event.value,
        "threshold": event.threshold,
    }
    if event.state == "cleared":
        log.warning(LogEvent.ALERT_CLEARED, event.text, extra=fields)
    elif event.state == "test":
        log.warning(LogEvent.ALERT_TEST, event.text, extra=fields)
    else:
        log.warning(LogEvent.ALERT_FIRING, event.text, extra=fields)


def log_undelivered(event: AlertEvent, why: str) -> None:
    log.error(LogEvent.ALERT_UNDELIVERED, event.rule, event.state, why)


def call_alert_hook(hook: AlertHook, event: AlertEvent) -> None:
    """Call one hook, a plain function or a coroutine function."""
    result = hook(event)
    if inspect.iscoroutine(result):
        import asyncio  # slow to import, and a supervisor does not need it

        asyncio.run(result)


def call_alert_hooks(hooks: Sequence[AlertHook], event: AlertEvent) -> None:
    """Call hooks in a separate thread: user code may take long or fail."""

    def run() -> None:
        for hook in hooks:
            try:
                call_alert_hook(hook, event)
            except Exception:  # the next hook is called too
                log.exception(LogEvent.ALERT_HOOK_FAILED)

    if hooks:
        Thread(target=run, name="alert-hooks", daemon=True).start()
