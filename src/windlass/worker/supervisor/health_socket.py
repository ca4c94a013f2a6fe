"""The health socket: report to probes on this machine whether the worker is live and ready.

The reactor of the supervisor, which also handles signals and deaths of children, answers probes. So
any answer shows that the worker is live, also during an outage of the engine. The worker is ready
if the engine has answered the supervisor and at least one child within the last 15 s.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from logging import getLogger
from time import monotonic

import msgspec

from windlass.worker.logs.events import LogEvent
from windlass.worker.options import WorkerOptions
from windlass.worker.supervisor.child_process import ChildProcess
from windlass.worker.supervisor.reactor import Reactor
from windlass_probe import folder, name_socket, prune, remove, require_own_folder

log = getLogger("windlass.worker")

#: A worker is not ready if the engine has not answered for this many seconds.
READY_S = 15.0


class ChildStatus(msgspec.Struct, frozen=True, kw_only=True):
    pid: int
    is_solo: bool
    jobs: int
    answered_s: float | None  # how long ago the engine answered the child


class WorkerStatus(msgspec.Struct, frozen=True, kw_only=True):
    pid: int
    app: str
    queues: tuple[str, ...]
    engine: str
    live: bool
    ready: bool
    why: str  # why the worker is not ready
    stopping: bool
    answered_s: float | None
    children: tuple[ChildStatus, ...]

    @property
    def is_answered(self) -> bool:
        """Whether the engine answers the supervisor."""
        return self.answered_s is not None and self.answered_s <= READY_S


def describe_worker(
    options: WorkerOptions,
    engine: str,
    children: Iterable[ChildProcess],
    answered_at: float | None,
    *,
    is_stopping: bool,
) -> WorkerStatus:
    """Build the status of a worker. `answered_at` is when the engine last answered the supervisor:
    None before the app is loaded, 0 before the first answer."""
    seen = [
        ChildStatus(
            pid=child.pid,
            is_solo=child.is_solo,
            jobs=len(child.table.occupied()),
            answered_s=_age(child.table.answered_at()),
        )
        for child in children
    ]
    answered_s = None if answered_at is None else _age(answered_at)
    why = judge(
        is_loaded=answered_at is not None,
        is_stopping=is_stopping,
        answered_s=answered_s,
        children=seen,
    )
    return WorkerStatus(
        pid=os.getpid(),
        app=options.app,
        queues=options.queues,
        engine=engine,
        live=True,
        ready=not why,
        why=why,
        stopping=is_stopping,
        answered_s=answered_s,
        children=tuple(seen),
    )


def judge(
    *, is_loaded: bool, is_stopping: bool, answered_s: float | None, children: list[ChildStatus]
) -> str:
    """Return why a worker is not ready; empty if ready."""
    if is_stopping:
        return "it is stopping"
    if not is_loaded:
        return "it is loading the app"
    if answered_s is None or answered_s > READY_S:
        return "the engine does not answer"
    if not any(child.answered_s is not None and child.answered_s <= READY_S for child in children):
        return "none of its children reaches the engine"
    return ""


def _age(at: float) -> float | None:
    """Return the seconds since a monotonic time; None for 0, which means never."""
    return round(monotonic() - at, 3) if at else None


@contextmanager
def answer_probes(reactor: Reactor, status: Callable[[], WorkerStatus]) -> Iterator[None]:
    """Answer probes during the block. If the socket cannot be created, log the error and
    continue."""
    try:
        path, listener = _listen()
    except OSError as error:
        log.warning(LogEvent.HEALTH_UNSERVED, error)
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
    """Name the socket only when it listens. A refused probe takes the worker for dead, and removes
    the socket."""
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
    """Send the status without waiting for the probe: the status fits into the socket buffer."""
    with suppress(OSError):
        connection, _ = listener.accept()
        with connection:
            connection.setblocking(False)
            connection.sendall(msgspec.json.encode(status()))
