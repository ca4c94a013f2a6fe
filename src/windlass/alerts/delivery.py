"""Deliver the events of alerts: to the log and the hooks at once, to the webhook in a thread.

1. `AlertDelivery` passes an event to every channel, and knows which events are done.
2. An event is done when the webhook has accepted it, or after a few attempts. Nothing waits for
   the webhook: a receiver that hangs delays only later events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from logging import getLogger
from queue import SimpleQueue
from threading import Event, Thread
from typing import TYPE_CHECKING, Final

from windlass.core.alerts.rules import AlertEvent

if TYPE_CHECKING:
    from windlass.alerts.webhook import WebhookAnswer

log = getLogger("windlass.alerts")

#: The pauses before further attempts, in seconds.
PAUSES_S: Final = (1.0, 4.0)
#: How long `close` waits for events in flight, in seconds.
CLOSE_S: Final = 2.0

#: Identifies an event: the incident, and whether it fires or clears.
EventKey = tuple[str, str]


def key_of(event: AlertEvent) -> EventKey:
    return event.id, event.state


class AlertDelivery:
    """The channels of one process. `on_event` logs an event and calls the hooks of the app, and
    `on_failure` logs an event that the webhook did not accept; neither may block."""

    def __init__(
        self,
        on_event: Callable[[AlertEvent], None],
        on_failure: Callable[[AlertEvent, str], None],
        *,
        webhook: str = "",
        app: str = "",
        engine: str = "",
    ) -> None:
        self._on_event = on_event
        self._on_failure = on_failure
        self._webhook = webhook
        self._app = app
        self._engine = engine
        self._line: SimpleQueue[AlertEvent | None] = SimpleQueue()
        self._is_stopping = Event()
        self._thread: Thread | None = None
        self._sent: dict[EventKey, bool] = {}  # event -> whether it is done

    def send(self, event: AlertEvent) -> None:
        """Deliver an event, once however often this is called."""
        if key_of(event) in self._sent:
            return
        self._sent[key_of(event)] = not self._webhook
        self._on_event(event)
        if self._webhook:
            self._line.put(event)
            if self._thread is None:
                self._thread = Thread(target=self._run, name="alert-webhook", daemon=True)
                self._thread.start()

    def is_done(self, event: AlertEvent) -> bool:
        return self._sent.get(key_of(event), False)

    def forget_others(self, events: Iterable[AlertEvent]) -> None:
        """Forget all events but these: they are done, or another process delivers them."""
        kept = {key_of(event) for event in events}
        for key in [key for key in self._sent if key not in kept]:
            del self._sent[key]

    def close(self) -> None:
        """Stop. Events that are not done stay stored, for the next process."""
        self._is_stopping.set()
        self._line.put(None)
        if self._thread is not None:
            self._thread.join(CLOSE_S)

    # -------------------------------------------------------------------------------- webhook

    def _run(self) -> None:
        while (event := self._line.get()) is not None and not self._is_stopping.is_set():
            refusal = self._find_refusal(event)
            if refusal and self._is_stopping.is_set():
                return
            if refusal:
                self._on_failure(event, refusal)
            if key_of(event) in self._sent:
                self._sent[key_of(event)] = True

    def _find_refusal(self, event: AlertEvent) -> str:
        """Send an event; return why it was not accepted, empty if it was."""
        try:
            answer = self._post(event)
        except Exception as error:  # the thread stays alive for the next event
            log.exception("delivery of an alert to the webhook failed")
            return f"delivery failed by {type(error).__name__}"
        return "" if answer.is_ok else answer.text

    def _post(self, event: AlertEvent) -> WebhookAnswer:
        """Send an event, with a few attempts if the receiver may accept it later."""
        from windlass.alerts.webhook import describe_event, post  # imports OpenSSL, which is slow

        body = describe_event(event, self._app, self._engine)
        answer = post(self._webhook, body)
        for pause_s in PAUSES_S:
            if answer.is_final or self._is_stopping.wait(pause_s):
                break
            answer = post(self._webhook, body)
        return answer
