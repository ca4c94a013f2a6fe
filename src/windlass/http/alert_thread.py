"""The thread of `windlass serve` that evaluates the rules of alerts, also when no worker lives."""

from __future__ import annotations

from logging import getLogger
from threading import Event, Thread
from typing import Final

from windlass.errors import EngineUnavailable
from windlass.http.gateway import Gateway
from windlass.worker.maintenance.alerts import AlertEvaluator, call_alert_hooks

log = getLogger("windlass.alerts")

#: The pause after a look that failed, in seconds.
RETRY_S: Final = 2.0
#: How long `stop` waits for the thread, in seconds.
STOP_S: Final = 10.0


class AlertThread:
    """Evaluates the rules of an app in a thread."""

    def __init__(self, gateway: Gateway) -> None:
        app, settings = gateway.app, gateway.app.settings
        self._evaluator = AlertEvaluator(
            app.engine,
            settings.alert_rules,
            lambda event: call_alert_hooks(app.alert_hooks, event),
            webhook=settings.alert_webhook.url,
            app=gateway.options.app_name,
        )
        self._is_stopping = Event()
        self._is_away = False
        self._thread = Thread(target=self._run, name="windlass-alerts", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Finish the current look, and hand the rules over to another process."""
        self._is_stopping.set()
        self._thread.join(STOP_S)

    def _run(self) -> None:
        while not self._is_stopping.wait(self._look()):
            continue
        self._evaluator.stop()

    def _look(self) -> float | None:
        """Look once; return the seconds until the next look, None for never."""
        try:
            wait_s = self._evaluator.look()
        except EngineUnavailable as error:
            if not self._is_away:
                log.warning("lost connection to engine, retrying: %s", error)
            self._is_away = True
            return RETRY_S
        except Exception:  # the next look may succeed
            log.exception("evaluation of alerts failed, retrying")
            return RETRY_S
        self._is_away = False
        return None if wait_s == float("inf") else wait_s


def start_alerts(gateway: Gateway) -> AlertThread:
    """Start the thread of an instance, as `gateway.part(start_alerts)`."""
    thread = AlertThread(gateway)
    thread.start()
    gateway.on_close(thread.stop)
    return thread
