"""Wake-ups for work: wake idle sessions, in any process, as soon as a job is committed.

1. A worker owns a datagram socket for each of its plans, in a folder next to the database, and a
   file with the plan. While sessions wait under the plan, the name of the socket ends in `.idle`.
2. A commit that makes jobs ready sends each idle worker that can take some of them its share.
   Workers for some tasks only come first, because the others can take any job.
3. The worker wakes that number of sessions and forwards the rest: another commit may have been
   faster, or the worker has fewer idle sessions than its share.
4. Where the tasks of the jobs are not known, a worker for some tasks looks for its jobs again.
5. A worker first marks itself idle and then looks for work once more, so that no wake-up is lost.
   It also polls, so only speed depends on the sockets.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Final

import msgspec

from windlass.engine.contract import Plan, Waiter, WakeUp
from windlass.engine.sql.wakeup import Look, News, ReadyLine, ReadyTask, assign, deal, with_tasks
from windlass.engine.sqlite.files import SocketPaths
from windlass.engine.wakeup import POLL_FLOOR_MS, PerProcess, await_readable, new_nudge

_MOST_BYTES: Final = 4096
#: Remember the plans of this many other workers.
_MOST_PLANS: Final = 1000
#: A worker has at most this many sockets; sessions with further plans only poll.
_MOST_SOCKETS: Final = 100

_encode = msgspec.json.Encoder().encode
_decode_plan = msgspec.json.Decoder(Plan).decode
_decode_news = msgspec.json.Decoder(News).decode


class SQLiteWakeup:
    """Wake-ups for work, for one engine object. Without a folder, only within this object."""

    def __init__(self, folder: Path | None) -> None:
        self._here = PerProcess(lambda: _Sockets(folder))

    def wait(self, waiters: Sequence[Waiter], timeout_ms: int, look: Look) -> list[WakeUp]:
        here = self._here.get()
        woken = here.look(waiters, look)
        if not woken:
            until = time.monotonic() + timeout_ms / 1000
            woken = here.receive(waiters, min(until, here.look_at) if waiters else until)
        here.waiting = set(waiters).difference(woken)
        here.show(waiter.plan for waiter in here.waiting)
        return [WakeUp(waiter.session) for waiter in woken]

    def nudge(self) -> None:
        self._here.get().nudge.give()

    def wake(
        self, made_ready: Mapping[ReadyLine, int], ready_tasks: Sequence[ReadyTask] = ()
    ) -> None:
        """Wake sessions that can take the jobs that a commit has made ready."""
        news = [News(ready, number) for ready, number in made_ready.items() if number > 0]
        if news:
            self._here.get().send(news, ready_tasks)

    def close(self) -> None:
        self._here.close()


class _Sockets:
    """Sockets and wake-up pipe of one engine object in one process."""

    def __init__(self, folder: Path | None) -> None:
        self.nudge = new_nudge()
        self.waiting: set[Waiter] = set()  # sessions that the last wait did not wake
        self.look_at = 0.0  # when to look next, by the monotonic clock
        self._is_alone = folder is None
        self._folder = folder if hasattr(socket, "AF_UNIX") else None
        self._may_bind = self._folder is not None
        self._paths = SocketPaths(folder) if folder else None
        self._prefix = f"{os.getpid()}-{os.urandom(4).hex()}"
        self._own: dict[Plan, _Own] = {}
        self._sender: socket.socket | None = None
        self._plans: dict[str, Plan] = {}  # plans of other workers
        self._lock = threading.Lock()
        self._shown: frozenset[Plan] = frozenset()  # plans of waiting sessions
        self._kept: list[News] = []  # pending wake-ups, for an engine in memory
        self._numbers = count()

    # ------------------------------------------------------------------------------ the waiter

    def look(self, waiters: Sequence[Waiter], look: Look) -> list[Waiter]:
        """Return the waiters that already have work. A session that begins to wait looks at once.
        All sessions look at the poll interval and when a job falls due."""
        now = time.monotonic()
        is_time = now >= self.look_at
        asking = [one for one in waiters if is_time or one not in self.waiting]
        if not asking:
            return []
        self.show(waiter.plan for waiter in waiters)
        found = look({waiter.plan for waiter in asking})
        floor_s = POLL_FLOOR_MS / 1000
        due_s = floor_s if found.due_in_ms is None else found.due_in_ms / 1000
        self.look_at = min(now + floor_s if is_time else self.look_at, now + due_s)
        return [one for one in asking if one.plan in found.ready]

    def receive(self, waiters: Sequence[Waiter], until: float) -> list[Waiter]:
        """Wait until `until` for wake-ups; return the waiters to wake, or none on a nudge."""
        own = {one.socket.fileno(): one.socket for one in self._own.values()}
        while True:
            news = self._take_kept()
            if not news:
                readable = await_readable([self.nudge.descriptor, *own], until - time.monotonic())
                if not readable:
                    return []
                if self.nudge.descriptor in readable:
                    self.nudge.take()
                    news = self._take_kept()
                    if not news:
                        return []
                for descriptor in readable:
                    if descriptor in own:
                        news += _receive(own[descriptor])
            woken = self._share_out(news, waiters)
            if woken or (waiters and not self.look_at):
                return woken

    def _share_out(self, news: Iterable[News], waiters: Sequence[Waiter]) -> list[Waiter]:
        woken, left, must_look = assign(news, waiters)
        if must_look:
            self.look_at = 0.0
        if left and not self._is_alone:
            self.show(waiter.plan for waiter in waiters if waiter not in woken)
            self.send(left)
        return woken

    def _take_kept(self) -> list[News]:
        with self._lock:
            kept, self._kept = self._kept, []
        return kept

    def show(self, plans: Iterable[Plan]) -> None:
        """Mark the plans with waiting sessions as idle, in the names of their sockets."""
        wanted = self._shown = frozenset(plans)
        if not wanted:
            self._take_kept()
        for number, plan in enumerate(wanted.difference(self._own)):
            own = self._bind(plan, sweeps=number == 0) if self._has_room(wanted) else None
            if own is None:
                break
            self._own[plan] = own
        for plan, own in self._own.items():
            if own.is_idle != (plan in wanted):
                own.is_idle = not own.is_idle
                before, after = ("busy", "idle") if own.is_idle else ("idle", "busy")
                with contextlib.suppress(FileNotFoundError):  # the folder is gone: only polling
                    os.rename(self._path(f"{own.name}.{before}"), self._path(f"{own.name}.{after}"))

    def _has_room(self, wanted: Collection[Plan]) -> bool:
        """Return whether there may be one more socket; close a socket that no session needs."""
        if len(self._own) < _MOST_SOCKETS:
            return True
        unused = next((plan for plan in self._own if plan not in wanted), None)
        if unused is not None:
            self._release(self._own.pop(unused))
        return unused is not None

    def _bind(self, plan: Plan, *, sweeps: bool) -> _Own | None:
        if self._folder is None or not self._may_bind:
            return None
        name = f"{self._prefix}-{next(self._numbers)}"
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        bound.setblocking(False)
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            if sweeps:
                self._sweep()
            bound.bind(self._path(f"{name}.busy"))
            os.chmod(self._path(f"{name}.busy"), 0o600)
            file = os.open(self._folder / f"{name}.plan", os.O_WRONLY | os.O_CREAT, 0o600)
            with os.fdopen(file, "wb") as stream:
                stream.write(_encode(plan))
        except OSError:  # path too long, or no sockets or permission in this folder: only polling
            bound.close()
            for ending in ("busy", "plan"):
                self._unlink(f"{name}.{ending}")
            self._may_bind = False
            return None
        return _Own(name, bound)

    def _sweep(self) -> None:
        """Remove files of killed processes; only live processes accept a connection."""
        assert self._folder is not None
        names = os.listdir(self._folder)
        for name in names:
            stem, _, ending = name.rpartition(".")
            if ending == "plan":
                is_left = f"{stem}.idle" not in names and f"{stem}.busy" not in names
                if is_left and not self._has_socket(stem):
                    self._unlink(name)
            elif self._is_dead(name):
                self._unlink(name)

    def _has_socket(self, stem: str) -> bool:
        return any(os.path.exists(self._path(f"{stem}.{end}")) for end in ("idle", "busy", "idle"))

    def _is_dead(self, name: str) -> bool:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect(self._path(name))
            except ConnectionRefusedError:
                return True
            except OSError:  # another process renamed or removed the file
                return False
            return False

    # ------------------------------------------------------------------------------- the waker

    def send(self, news: Sequence[News], ready_tasks: Sequence[ReadyTask] = ()) -> None:
        """Send each idle worker its share of the jobs that it can take."""
        if self._is_alone:
            if any(plan.tasks for plan in self._shown):
                news = with_tasks(news, ready_tasks)
            wanted = [one for one in news if any(map(one.is_for, self._shown))]
            with self._lock:
                self._kept += wanted
            if wanted:
                self.nudge.give()
            return
        plans = {name: self._plan_of(name) for name in self._idle_names()}
        deal(news, ready_tasks, plans, self._send)

    def _idle_names(self) -> list[str]:
        if self._folder is None:
            return []
        try:
            names = [name for name in os.listdir(self._folder) if name.endswith(".idle")]
        except OSError:  # no worker has waited yet, or the folder is unreadable: workers poll
            return []
        random.shuffle(names)
        if len(self._plans) > _MOST_PLANS:  # most are plans of workers that have ended
            self._plans = {}
        return names

    def _plan_of(self, name: str) -> Plan | None:
        """Return the plan of a worker, or None if it cannot be read: then the worker may take any
        job. It forwards a wake-up that it cannot use."""
        stem = name.removesuffix(".idle")
        if stem not in self._plans:
            assert self._folder is not None
            try:
                self._plans[stem] = _decode_plan((self._folder / f"{stem}.plan").read_bytes())
            except (OSError, msgspec.DecodeError):
                return None
        return self._plans[stem]

    def _send(self, name: str, news: News) -> bool:
        if self._sender is None:
            self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._sender.setblocking(False)
        packed = _encode(news)
        if len(packed) > _MOST_BYTES:  # the names of many tasks: the worker looks for its jobs
            packed = _encode(News(news.ready, 0, news.hops))
        try:
            self._sender.sendto(packed, self._path(name))
        except FileNotFoundError:
            return False  # the worker has just stopped waiting
        except ConnectionRefusedError:  # the worker's process is gone
            self._unlink(name)
            self._unlink(name.removesuffix("idle") + "plan")
            return False
        except OSError:
            return True  # the worker's buffer is full of wake-ups
        return True

    def _unlink(self, name: str) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self._path(name))

    def _path(self, name: str) -> str:
        assert self._paths is not None
        return self._paths.of(name)

    def close(self) -> None:
        for own in self._own.values():
            self._release(own)
        if self._sender is not None:
            self._sender.close()
        if self._paths is not None:
            self._paths.close()
        self.nudge.close()

    def _release(self, own: _Own) -> None:
        own.socket.close()
        for ending in ("idle", "busy", "plan"):
            self._unlink(f"{own.name}.{ending}")


class _Own:
    """Socket of this process for one plan."""

    def __init__(self, name: str, bound: socket.socket) -> None:
        self.name = name
        self.socket = bound
        self.is_idle = False


def _receive(own: socket.socket) -> list[News]:
    received: list[News] = []
    with contextlib.suppress(BlockingIOError):
        while True:
            received.append(_decode_news(own.recv(_MOST_BYTES)))
    return received
