"""The maintenance of an instance of the API: it tends the engine, as workers do.

Workers of the worker protocol do not tend the engine. If all workers are of this kind, the
instances reap expired sessions, purge expired jobs and take the samples of the history. Any number
of instances and workers may tend one engine.

1. Tend the engine in bounded batches, every few seconds.
2. Log dead letters before they are removed. Log that the engine has lost its data, or has ended
   calls of suspended processes.
3. Record the runs of remote workers in the history, every few seconds and at the end.
4. Note sessions that were lost, for the list of workers.
5. Relay the outbox of the app, if it has one.
6. While the engine is away, keep trying; log the beginning and the end of the outage.

All calls are made in threads of their own: neither the event loop nor a request waits for them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from logging import getLogger
from random import uniform
from threading import Event, Thread
from typing import TYPE_CHECKING, Final

from windlass.calls.redaction import CallRedactor
from windlass.core.durations import describe_ms
from windlass.engine.contract import Tended
from windlass.errors import EngineError
from windlass.lost_sessions import SessionWatch
from windlass.worker.logs.events import LogEvent
from windlass.worker.maintenance.dead_letters import sweep
from windlass.worker.maintenance.measures import RECORD_S, HistoryRecorder, WorkerMeasures
from windlass.worker.maintenance.outbox import OutboxRelay
from windlass.worker.maintenance.service import TEND_ON_S, TEND_S

if TYPE_CHECKING:
    from windlass.app import Windlass
    from windlass.http.gateway import Gateway

log: Final = getLogger("windlass.http")

#: How long `stop` waits for a call of the engine, in seconds. The call ends with the process.
STOP_S: Final = 2.0
#: The longest wait after a failed call, in seconds.
AGAIN_S: Final = 2.0


class EngineMaintenance:
    """Tends the engine of an app, in a thread."""

    def __init__(self, app: Windlass, measures: WorkerMeasures) -> None:
        self._app = app
        self._recorder = HistoryRecorder(app.engine, measures)
        self._record_at = time.monotonic() + RECORD_S
        self._watch = SessionWatch(app.engine)
        self._look_at = 0.0
        self._redactor = CallRedactor.of(app)
        self._stopping = Event()
        self._is_away = False
        self._thread = Thread(target=self._run, name="windlass-http-maintenance", daemon=True)
        outbox = app.settings.outbox
        self._relay = OutboxRelay(app.engine, outbox, ends_engine=False) if outbox else None

    def start(self) -> None:
        self._thread.start()
        if self._relay is not None:
            self._relay.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._relay is not None:
            self._relay.stop(STOP_S)
        self._thread.join(STOP_S)

    def _run(self) -> None:
        pause_s = 0.0
        while not self._stopping.wait(pause_s):
            pause_s = self._attempt(self._work)
        self._attempt(self._recorder.record)
        self._recorder.close()

    def _attempt(self, action: Callable[[], float]) -> float:
        """Call the engine; return the seconds until the next time."""
        try:
            pause_s = action()
        except EngineError as error:
            if not self._is_away:
                log.warning("maintenance: lost connection to engine, retrying: %s", error)
            self._is_away = True
        except Exception:
            log.exception("maintenance failed, retrying")
        else:
            if self._is_away:
                log.warning("maintenance: engine at %s is back", self._app.engine.location)
            self._is_away = False
            return pause_s
        return uniform(0.2, AGAIN_S)

    def _work(self) -> float:
        pause_s = self._tend()
        if time.monotonic() >= self._record_at:
            self._record_at = time.monotonic() + self._recorder.record()
        if time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + self._watch.look()
        return pause_s

    def _tend(self) -> float:
        engine = self._app.engine
        tended = engine.tend(())
        swept = sweep(engine, tended.doomed, self._redactor) if tended.doomed else Tended()
        for call in (*tended.ended_calls, *swept.ended_calls):
            duration = describe_ms(call.silent_ms // 1000 * 1000)
            log.warning(LogEvent.SUSPENDED_CALL_ENDED, call.client, duration)
        if tended.emptied or swept.emptied:
            log.error(LogEvent.ENGINE_EMPTIED, engine.location)
        return TEND_ON_S if tended.more else TEND_S


def start_maintenance(gateway: Gateway) -> EngineMaintenance:
    """Start the maintenance of an instance, as `gateway.part(start_maintenance)`."""
    maintenance = EngineMaintenance(gateway.app, gateway.measures)
    maintenance.start()
    gateway.on_close(maintenance.stop)
    return maintenance
