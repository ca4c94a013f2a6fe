"""Record what a client sends to Redis, and send it again without the client.

The recorder is a proxy. It keeps exchanges: the bytes of a request, until the first byte of its
reply. The recorder parses only the frames of the protocol, so it works for any stored format.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Self

import hiredis

_HOST: Final = "127.0.0.1"
_CHUNK: Final = 1 << 16


class Exchange(NamedTuple):
    """One request: which connection sent it, its bytes, and the number of its commands."""

    connection: int
    request: bytes
    commands: int


class RedisRecorder:
    """A proxy in a thread; `exchanges` has all that has passed so far."""

    def __init__(self, target_port: int) -> None:
        self._target = (_HOST, target_port)
        self._listener = socket.create_server((_HOST, 0))
        self.url = f"redis://{_HOST}:{self._listener.getsockname()[1]}/0"
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        self._requests: list[tuple[int, bytearray]] = []
        self._open: dict[int, bytearray] = {}  # the last request, while it has no reply
        self._is_ended = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_ended = True
        self._thread.join()
        for key in list(self._selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
        self._selector.close()

    @property
    def exchanges(self) -> list[Exchange]:
        return [
            Exchange(number, bytes(request), count_commands(request))
            for number, request in self._requests
        ]

    def _run(self) -> None:
        number = 0
        while not self._is_ended:
            for key, _ in self._selector.select(timeout=0.05):
                if key.data is None:
                    self._connect(number)
                    number += 1
                else:
                    self._pass_on(key.fileobj, *key.data)

    def _connect(self, number: int) -> None:
        client, server = self._listener.accept()[0], socket.create_connection(self._target)
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._selector.register(client, selectors.EVENT_READ, (server, number, True))
        self._selector.register(server, selectors.EVENT_READ, (client, number, False))

    def _pass_on(self, source: object, sink: socket.socket, number: int, is_request: bool) -> None:
        assert isinstance(source, socket.socket)
        try:
            data = source.recv(_CHUNK)
            if data:
                self._record(number, data) if is_request else self._open.pop(number, None)
                sink.sendall(data)
                return
        except OSError:
            pass
        for end in (source, sink):
            if end in self._selector.get_map():
                self._selector.unregister(end)
            end.close()

    def _record(self, number: int, data: bytes) -> None:
        if number not in self._open:
            self._open[number] = bytearray()
            self._requests.append((number, self._open[number]))
        self._open[number] += data


def count_commands(request: bytes | bytearray) -> int:
    reader = hiredis.Reader()
    reader.feed(bytes(request))
    count = 0
    while reader.gets() is not False:
        count += 1
    return count


def command_name(request: bytes) -> str:
    """The first word of a request."""
    reader = hiredis.Reader()
    reader.feed(request)
    words = reader.gets()
    return str(words[0], "utf-8", "replace").upper() if isinstance(words, list) else ""


class RawConnections:
    """A socket for each recorded connection, and nothing else."""

    def __init__(self, port: int, exchanges: Iterable[Exchange]) -> None:
        numbers = {exchange.connection for exchange in exchanges}
        self._ends = {number: _Raw(port) for number in numbers}

    def prepare(self, exchanges: Sequence[Exchange]) -> None:
        """Replay what came before. A script that the server does not know yet is an error here."""
        for one in exchanges:
            self._ends[one.connection].ask(one.request, one.commands)

    def replay(self, exchanges: Sequence[Exchange]) -> float:
        """Send each request after the reply to the one before; the elapsed seconds."""
        for end in self._ends.values():
            end.errors.clear()
        prepared = [
            (self._ends[one.connection].ask, one.request, one.commands) for one in exchanges
        ]
        began = time.perf_counter()
        for ask, request, commands in prepared:
            ask(request, commands)
        elapsed = time.perf_counter() - began
        if errors := [error for end in self._ends.values() for error in end.errors]:
            raise RuntimeError(f"a recorded command failed: {errors[0]}")
        return elapsed

    def close(self) -> None:
        for end in self._ends.values():
            end.socket.close()


class _Raw:
    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection((_HOST, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = hiredis.Reader()
        self.errors: list[Exception] = []

    def ask(self, request: bytes, commands: int) -> None:
        self.socket.sendall(request)
        reader, receive = self._reader, self.socket.recv
        while commands:
            reader.feed(receive(_CHUNK))
            while (reply := reader.gets()) is not False:
                commands -= 1
                if isinstance(reply, hiredis.ReplyError):
                    self.errors.append(reply)
