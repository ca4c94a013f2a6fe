"""What a supervisor tells whoever asks on this machine: whether it lives, and whether it is ready.

It answers on a socket, from the loop that hears signals and deaths of children: that it answers at
all says that it lives, also while the engine is away. It is ready as long as the engine has
answered it, and at least one of its children, within the last 15 s.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from logging import getLogger
from time import monotonic

import msgspec

from windlass.worker.supervisor.reactor import Reactor
from windlass_probe import folder, name_socket, prune, remove, require_own_folder

log = getLogger("windlass.worker")

#: Without a good round trip for so many seconds nobody is ready.
READY_S = 15.0


class ChildStatus(msgspec.Struct, frozen=True, kw_only=True):
    pid: int
    is_solo: bool
    jobs: int
    answered_s: float | None  # how long ago the engine answered it


class WorkerStatus(msgspec.Struct, frozen=True, kw_only=True):
    pid: int
    app: str
    queues: tuple[str, ...]
    engine: str
    live: bool
    ready: bool
    why: str  # it is not ready
    stopping: bool
    answered_s: float | None
    children: tuple[ChildStatus, ...]


def judge(
    *, is_loaded: bool, is_stopping: bool, answered_s: float | None, children: list[ChildStatus]
) -> str:
    """Why a worker is not ready; empty when it is."""
    if is_stopping:
        return "it is stopping"
    if not is_loaded:
        return "it is loading the app"
    if answered_s is None or answered_s > READY_S:
        return "the engine does not answer"
    if not any(child.answered_s is not None and child.answered_s <= READY_S for child in children):
        return "none of its children reaches the engine"
    return ""


def age(at: float) -> float | None:
    """How long ago a moment of the monotonic clock was; None for never."""
    return round(monotonic() - at, 3) if at else None


@contextmanager
def answer_probes(reactor: Reactor, status: Callable[[], WorkerStatus]) -> Iterator[None]:
    """Answer as long as this lasts. Where there is no place for a socket a worker does without."""
    try:
        path, listener = _listen()
    except OSError as error:
        log.warning("windlass health cannot see this worker: %s", error)
        yield
        return
    reactor.watch(listener, lambda: _answer(listener, status))
    try:
        yield
    finally:
        reactor.unwatch(listener)
        listener.close()
        remove(path)


def _listen() -> tuple[str, socket.socket]:
    place = folder()
    with suppress(FileExistsError):
        os.mkdir(place, 0o700)
    require_own_folder(place)
    prune(place)
    path = os.path.join(place, name_socket())
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.setblocking(False)
        _appear(listener, path)
    except BaseException:
        listener.close()
        raise
    return path, listener


def _appear(listener: socket.socket, path: str) -> None:
    """Under its name only when somebody listens: whoever is refused takes it for that of a worker
    which was killed, and removes it."""
    hidden = f"{path}.new"
    listener.bind(hidden)
    try:
        os.chmod(hidden, 0o600)
        listener.listen()
        os.rename(hidden, path)
    except BaseException:
        remove(hidden)
        raise


def _answer(listener: socket.socket, status: Callable[[], WorkerStatus]) -> None:
    """Small enough for the buffer of a socket: this never waits for whoever asked."""
    with suppress(OSError):
        connection, _ = listener.accept()
        with connection:
            connection.setblocking(False)
            connection.sendall(msgspec.json.encode(status()))
