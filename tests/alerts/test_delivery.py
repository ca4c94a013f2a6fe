"""Events reach the log and the hooks at once, and the webhook with a few attempts."""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from threading import Event, Thread

import pytest

from tests.alerts.helpers import receiving
from tests.worker.yard import until
from windlass import Alert, AlertEvent
from windlass.alerts import delivery as module
from windlass.alerts.delivery import AlertDelivery
from windlass.alerts.webhook import post
from windlass.core.alerts.states import make_test_event

EVENT = make_test_event(Alert.oldest_age("5m", queue="mail"), 1_700_000_000_000)
OTHER = make_test_event(Alert.dead_letters(1), 1_700_000_000_000)


class Channels:
    """What arrived in this process."""

    def __init__(self, url: str = "") -> None:
        self.events: list[AlertEvent] = []
        self.failures: list[str] = []
        self.failed = Event()
        self.delivery = AlertDelivery(
            self.events.append, self._fail, webhook=url, app="shop:app", engine="here"
        )

    def _fail(self, _event: AlertEvent, why: str) -> None:
        self.failures.append(why)
        self.failed.set()


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSES_S", (0.01, 0.01))


def test_without_a_webhook_an_event_is_done_at_once() -> None:
    channels = Channels()
    assert not channels.delivery.is_done(EVENT)
    channels.delivery.send(EVENT)
    channels.delivery.send(EVENT)
    assert channels.events == [EVENT]
    assert channels.delivery.is_done(EVENT)
    channels.delivery.forget_others([])
    assert not channels.delivery.is_done(EVENT)


def test_a_webhook_gets_all_about_an_event() -> None:
    with receiving() as receiver:
        channels = Channels(receiver.url.replace("http://", "http://ann:s%20t@") + "?a=1")
        channels.delivery.send(EVENT)
        until(lambda: channels.delivery.is_done(EVENT), "the delivery")
        channels.delivery.close()
    assert receiver.bodies == [
        {
            "id": EVENT.id,
            "state": "test",
            "kind": "oldest_age",
            "rule": "oldest_age(mail) > 5m",
            "subject": "mail",
            "value": 300.0,
            "threshold": 300.0,
            "text": "the next job of queue mail has been ready for 5m, threshold 5m",
            "since": "2023-11-14T22:13:20Z",
            "at": "2023-11-14T22:13:20Z",
            "app": "shop:app",
            "engine": "here",
        }
    ]
    assert receiver.paths == ["/hook?a=1"]
    assert receiver.headers[0]["Authorization"] == "Basic YW5uOnMgdA=="
    assert receiver.headers[0]["Content-Type"] == "application/json"


def test_a_receiver_that_is_busy_is_asked_again() -> None:
    with receiving(503, 429, 204) as receiver:
        channels = Channels(receiver.url)
        channels.delivery.send(EVENT)
        until(lambda: channels.delivery.is_done(EVENT), "the delivery")
        channels.delivery.close()
    assert len(receiver.bodies) == 3
    assert channels.failures == []


@pytest.mark.parametrize(("status", "attempts"), [(500, 3), (404, 1), (302, 1)])
def test_a_receiver_that_refuses_is_given_up(status: int, attempts: int) -> None:
    with receiving(status) as receiver:
        channels = Channels(receiver.url)
        channels.delivery.send(EVENT)
        until(lambda: channels.delivery.is_done(EVENT), "giving up")
        channels.delivery.close()
    assert len(receiver.bodies) == attempts
    host = receiver.url.removesuffix("/hook")
    assert channels.failures == [f"{host}/*** answered {status}"]


def test_a_receiver_that_is_not_there() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/s3cret"
        channels = Channels(url)
        channels.delivery.send(EVENT)
        until(lambda: channels.delivery.is_done(EVENT), "giving up")
    [why] = channels.failures
    assert "did not answer: [Errno 111] Connection refused" in why
    assert "s3cret" not in why


def test_a_host_that_has_no_address_form_does_not_end_deliveries() -> None:
    channels = Channels("https://hooks..example.com/secret")
    for event in (EVENT, OTHER):
        channels.delivery.send(event)
    until(lambda: channels.delivery.is_done(OTHER), "the second delivery to be given up")
    channels.delivery.close()
    assert len(channels.failures) == 2
    assert not any("secret" in why for why in channels.failures)


def test_a_receiver_that_hangs_delays_nobody() -> None:
    with receiving() as receiver:
        receiver.is_open.clear()
        channels = Channels(receiver.url)
        channels.delivery.send(EVENT)
        channels.delivery.send(OTHER)
        assert channels.events == [EVENT, OTHER]
        assert not channels.delivery.is_done(EVENT)
        receiver.await_bodies(1)
        receiver.is_open.set()
        until(lambda: channels.delivery.is_done(OTHER), "the delivery of both")
        channels.delivery.close()


def test_a_receiver_that_sends_byte_by_byte_is_cut_off() -> None:
    def drip(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with connection, suppress(OSError):
            while True:
                connection.sendall(b"H")
                time.sleep(0.01)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = Thread(target=drip, args=[listening])
        thread.start()
        began_s = time.monotonic()
        answer = post(f"http://127.0.0.1:{listening.getsockname()[1]}/", {}, timeout_s=0.2)
        assert time.monotonic() - began_s < 5
        thread.join()
    assert not answer.is_ok
    assert "did not answer" in answer.text


def test_what_is_in_flight_is_left_to_the_next_process() -> None:
    with receiving(500) as receiver:
        channels = Channels(receiver.url)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "PAUSES_S", (60.0, 60.0))
            channels.delivery.send(EVENT)
            receiver.await_bodies(1)
            channels.delivery.close()
        assert not channels.delivery.is_done(EVENT)
        assert channels.failures == []
