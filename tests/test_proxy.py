"""The proxy does to connections what it says, and nothing else."""

from __future__ import annotations

import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from tests.proxy import Proxy, Side, Then
from tests.soon import is_once

#: Much longer than anything takes that is not held up on purpose.
SOON_S = 5.0
#: Long enough to see that nothing comes.
NOTHING_S = 0.15


class Echo(socketserver.BaseRequestHandler):
    """Answers every byte with the same byte, and remembers it."""

    def handle(self) -> None:
        assert isinstance(self.server, EchoServer)
        with suppress(ConnectionError):  # a reply was not wanted any more
            while data := self.request.recv(65536):
                self.server.heard += data
                self.request.sendall(data)


class EchoServer(socketserver.ThreadingTCPServer):
    daemon_threads = True
    heard = b""


@pytest.fixture
def echo() -> Iterator[EchoServer]:
    with EchoServer(("127.0.0.1", 0), Echo) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def proxy(echo: EchoServer) -> Iterator[Proxy]:
    with Proxy(echo.server_address[1]) as proxy:
        yield proxy


def connect(proxy: Proxy, timeout_s: float = SOON_S) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=timeout_s)


def say(connection: socket.socket, words: bytes) -> bytes:
    connection.sendall(words)
    return hear(connection, len(words))


def hear(connection: socket.socket, number: int) -> bytes:
    heard = b""
    while len(heard) < number:
        heard += connection.recv(number - len(heard)) or b"<the end>"
    return heard


def hears_nothing(connection: socket.socket) -> bool:
    connection.settimeout(NOTHING_S)
    try:
        connection.recv(1)
    except TimeoutError:
        return True
    finally:
        connection.settimeout(SOON_S)
    return False


def until_heard(echo: EchoServer, words: bytes) -> None:
    deadline = time.monotonic() + SOON_S
    while echo.heard != words:
        assert time.monotonic() < deadline, echo.heard
        time.sleep(0.001)


def test_without_a_fault_everything_passes(proxy: Proxy) -> None:
    much = bytes(range(256)) * 20_000
    with connect(proxy) as one, connect(proxy) as other:
        sender = threading.Thread(target=one.sendall, args=(much,))
        sender.start()
        assert say(other, b"hello") == b"hello"
        assert hear(one, len(much)) == much
        sender.join()
        assert (proxy.accepted, proxy.living) == (2, 2)
        assert proxy.passed[Side.REQUESTS] == proxy.passed[Side.REPLIES] == len(much) + 5


def test_an_end_is_passed_on_after_what_was_said(proxy: Proxy) -> None:
    with connect(proxy) as connection:
        connection.sendall(b"bye")
        connection.shutdown(socket.SHUT_WR)
        assert hear(connection, 3) == b"bye"
        assert connection.recv(1) == b""


def test_refused(proxy: Proxy) -> None:
    with connect(proxy) as connection:
        say(connection, b"hello")
        proxy.refuse()
        with pytest.raises(ConnectionResetError):
            connection.recv(1)
    with pytest.raises(ConnectionRefusedError):
        connect(proxy)
    proxy.heal()
    with connect(proxy) as connection:
        assert say(connection, b"again") == b"again"


def test_frozen(proxy: Proxy, echo: EchoServer) -> None:
    with connect(proxy) as standing:
        say(standing, b"hello")
        proxy.freeze()
        with connect(proxy) as knocking:
            standing.sendall(b"one")
            knocking.sendall(b"two")
            assert hears_nothing(standing)
            assert hears_nothing(knocking)
            assert echo.heard == b"hello"
            proxy.heal()
            assert (hear(standing, 3), hear(knocking, 3)) == (b"one", b"two")


def test_vanished(proxy: Proxy) -> None:
    with connect(proxy) as standing:
        say(standing, b"hello")
        proxy.vanish()
        with pytest.raises(TimeoutError):
            connect(proxy, NOTHING_S)
        standing.sendall(b"one")
        assert hears_nothing(standing)
        proxy.heal()
        assert hear(standing, 3) == b"one"
    with connect(proxy) as connection:
        assert say(connection, b"again") == b"again"


def test_delayed(proxy: Proxy) -> None:
    with connect(proxy) as connection:
        say(connection, b"hello")
        proxy.delay(0.15)
        started = time.monotonic()
        assert say(connection, b"slow") == b"slow"
        assert 0.3 <= time.monotonic() - started < SOON_S
        proxy.heal()

        def is_fast() -> bool:
            started = time.monotonic()
            assert say(connection, b"fast") == b"fast"
            return time.monotonic() - started < 0.15

        assert is_once(is_fast)


def test_throttled(proxy: Proxy) -> None:
    """Both ways together: the sender is held up, and not only the receiver."""
    proxy.throttle(1_000_000)
    words = b"x" * 400_000
    with connect(proxy) as connection:
        started = time.monotonic()
        threading.Thread(target=connection.sendall, args=(words,)).start()
        assert hear(connection, len(words)) == words
        assert 0.35 <= time.monotonic() - started < SOON_S
        assert proxy.passed == {Side.REQUESTS: len(words), Side.REPLIES: len(words)}
        proxy.heal()
        assert say(connection, b"fast") == b"fast"


def test_worn_out(proxy: Proxy) -> None:
    proxy.wear_out(10)
    with connect(proxy) as connection:
        assert say(connection, b"0123456789") == b"0123456789"
        connection.sendall(b"!")
        with pytest.raises(ConnectionResetError):
            connection.recv(1)
    with connect(proxy) as connection:
        assert say(connection, b"a new one") == b"a new one"


def test_dripping(proxy: Proxy) -> None:
    with connect(proxy) as connection:
        say(connection, b"hello")
        proxy.drip(2, 0.05)
        started = time.monotonic()
        connection.sendall(b"12345")
        assert connection.recv(9) == b"12"
        assert hear(connection, 3) == b"345"
        assert 0.15 <= time.monotonic() - started < SOON_S


def test_reset(proxy: Proxy) -> None:
    with connect(proxy) as connection:
        say(connection, b"hello")
        proxy.reset()
        with pytest.raises(ConnectionResetError):
            connection.recv(1)
    assert proxy.living == 0


@pytest.mark.parametrize("after", [0, 1, 4])
def test_a_reply_that_is_cut(proxy: Proxy, echo: EchoServer, after: int) -> None:
    with connect(proxy) as connection:
        say(connection, b"before")
        proxy.cut(Side.REPLIES, after)
        connection.sendall(b"hello")
        assert hear(connection, after) == b"hello"[:after]
        with pytest.raises(ConnectionResetError):
            connection.recv(1)
    assert echo.heard == b"beforehello"
    assert proxy.cuts == 1
    with connect(proxy) as connection:
        assert say(connection, b"again") == b"again"


def test_a_request_that_is_cut(proxy: Proxy, echo: EchoServer) -> None:
    with connect(proxy) as connection:
        proxy.cut(Side.REQUESTS, 7)
        assert say(connection, b"1234") == b"1234"  # not yet
        connection.sendall(b"5678")
        with pytest.raises(ConnectionResetError):
            hear(connection, 4)
    until_heard(echo, b"1234567")


def test_a_reply_that_is_swallowed_and_held(proxy: Proxy, echo: EchoServer) -> None:
    with connect(proxy) as connection, connect(proxy) as other:
        proxy.swallow_reply(Then.HOLD)
        connection.sendall(b"hello")
        assert hears_nothing(connection)
        assert echo.heard == b"hello"
        assert say(other, b"other") == b"other"
        proxy.heal()
        assert hears_nothing(connection)  # what was cut stays cut


def test_a_reply_that_is_swallowed_by_a_freeze(proxy: Proxy, echo: EchoServer) -> None:
    with connect(proxy) as connection, connect(proxy) as other:
        proxy.swallow_reply(Then.FREEZE)
        connection.sendall(b"hello")
        assert hears_nothing(connection)
        other.sendall(b"other")
        assert hears_nothing(other)
        assert echo.heard == b"hello"
        proxy.heal()
        assert (hear(connection, 5), hear(other, 5)) == (b"hello", b"other")


def test_from_refused_to_frozen(proxy: Proxy) -> None:
    proxy.refuse()
    proxy.freeze()
    with connect(proxy) as connection:
        connection.sendall(b"hello")
        assert hears_nothing(connection)
        proxy.heal()
        assert hear(connection, 5) == b"hello"


def test_a_target_that_is_not_there() -> None:
    with ExitStack() as stack:
        probe = stack.enter_context(socket.socket())
        probe.bind(("127.0.0.1", 0))  # without listening
        proxy = stack.enter_context(Proxy(probe.getsockname()[1]))
        with pytest.raises(ConnectionResetError):
            stack.enter_context(connect(proxy)).recv(1)
