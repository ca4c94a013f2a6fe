"""Wake-ups for work: wake idle sessions, in any process, as soon as a job is committed.

1. A process that waits for jobs listens on a channel of its own, and has a row with the plans of
   its idle sessions in the table `waiters`. It renews the row every few seconds, and holds an
   advisory lock. Other processes get this lock only after the end of the process.
2. A commit that made jobs ready reads these rows, and notifies a share of the jobs to each process
   that can take some of them (`deal`). Commits that follow each other quickly are announced
   together.
3. The process wakes that number of sessions (`assign`) and forwards the rest.
4. A plan stays in the row while its sessions are busy for a moment: a wake-up that comes meanwhile
   is forwarded too. So a worker that takes one job after the other writes nothing.
5. A process first writes its row, and then looks for work once more, so that no wake-up is lost.
   Processes also poll, so only speed depends on the notifications.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec

from windlass.core.ids import blake2b
from windlass.engine.contract import BITE, Plan, Waiter, WakeUp
from windlass.engine.postgres.connections import Connections
from windlass.engine.postgres.notifications import (
    FAILURES,
    MOST_BYTES,
    Hints,
    Listener,
    Throttle,
    listen_conninfo,
    run_hint,
)
from windlass.engine.postgres.statements import pack_numbers
from windlass.engine.sql.wakeup import Look, News, ReadyLine, ReadyTask, assign, deal, with_tasks
from windlass.engine.wakeup import PerProcess, await_readable, new_nudge

#: A waiting process looks for jobs at least this often, in seconds.
POLL_FLOOR_S: Final = 0.225
#: How long to wait for the notification of jobs that such a look finds, in seconds.
CONFIRM_S: Final = 0.025
#: How often a process renews its row, and how long a row lasts, in seconds.
RENEW_S: Final = 2.0
LASTS_S: Final = 5.0
#: How long a plan stays in the row without an idle session, in seconds.
LINGER_S: Final = 0.1
#: How long to wait after a connection that listens has failed: at first, and at most, in seconds.
_FIRST_PAUSE_S: Final = 0.1
_MOST_PAUSE_S: Final = 30.0
#: Remember this many different sets of plans of other processes.
_MOST_PLANS: Final = 1000
#: Announce jobs in this many rounds, each to other processes; then polling has to find them.
_MOST_ROUNDS: Final = 3
#: Payload for more news than fit: look for jobs again.
_LOOK: Final = "look"

_encode = msgspec.json.Encoder().encode
_decode_plans = msgspec.json.Decoder(tuple[Plan, ...]).decode
_decode_news = msgspec.json.Decoder(list[News]).decode


class PostgresWakeup:
    """Wake-ups for work, for one engine object."""

    def __init__(self, connections: Connections) -> None:
        self._waker = PerProcess(lambda: _Waker(connections))
        self._waiting = PerProcess(lambda: _Waiting(connections, self._waker))

    def wait(self, waiters: Sequence[Waiter], timeout_ms: int, look: Look) -> list[WakeUp]:
        until = time.monotonic() + timeout_ms / 1000
        return [WakeUp(waiter.session) for waiter in self._waiting.get().wait(waiters, until, look)]

    def nudge(self) -> None:
        self._waiting.get().nudge.give()

    def wake(
        self, made_ready: Mapping[ReadyLine, int], ready_tasks: Sequence[ReadyTask] = ()
    ) -> None:
        """Wake sessions that can take the jobs that a commit has made ready."""
        ready = {line: number for line, number in made_ready.items() if number > 0}
        if ready:
            self._waker.get().add(ready, ready_tasks)

    def close(self) -> None:
        self._waiting.close()
        self._waker.close()


# ------------------------------------------------------------------------------------ the waiter


class _Waiting:
    """The waiting sessions of one engine object in one process."""

    def __init__(self, connections: Connections, waker: PerProcess[_Waker]) -> None:
        self.nudge = new_nudge()
        self._registration = _Registration(connections)
        self._waker = waker
        self._asked: set[Waiter] = set()  # sessions that have waited since the last look for them
        self._look_at = 0.0  # when to look next, by the monotonic clock
        self._is_sure = False  # the next look needs no confirmation

    def wait(self, waiters: Sequence[Waiter], until: float, look: Look) -> list[Waiter]:
        """Return the waiters to wake; none at the instant or on a nudge."""
        plans = frozenset(waiter.plan for waiter in waiters)
        while True:
            if self._registration.show(plans):
                self._look_again()  # notifications may have been lost before
            woken = self._look(waiters, look)
            if woken:
                break
            news, is_nudged = self._receive(until, has_waiters=bool(waiters))
            woken = self._assign(news, waiters)
            if woken or is_nudged:
                break
            if time.monotonic() >= until:
                if not waiters:
                    self._registration.show(plans, linger_s=0)
                break
        self._asked = set(waiters).difference(woken)
        return woken

    def _look(self, waiters: Sequence[Waiter], look: Look) -> list[Waiter]:
        """Return the waiters that already have work. A session that begins to wait looks at once.
        All sessions look at the poll interval and when a job falls due. A commit may just have
        announced what they find: then its notification chooses the session to wake."""
        now = time.monotonic()
        is_time = now >= self._look_at
        asking = [one for one in waiters if is_time or one not in self._asked]
        if not asking:
            return []
        found = look({waiter.plan for waiter in asking})
        due_s = POLL_FLOOR_S if found.due_in_ms is None else found.due_in_ms / 1000
        self._look_at = min(now + POLL_FLOOR_S if is_time else self._look_at, now + due_s)
        woken = [one for one in asking if one.plan in found.ready]
        if is_time:
            is_sure, self._is_sure = self._is_sure or self._registration.number is None, False
            if woken and not is_sure:
                self._look_at, self._is_sure = now + CONFIRM_S, True
                woken = [one for one in woken if one not in self._asked]
        self._asked.update(asking)
        return woken

    def _look_again(self) -> None:
        self._look_at, self._is_sure = 0.0, True

    def _receive(self, until: float, *, has_waiters: bool) -> tuple[list[News], bool]:
        """Return the news that have come, and whether there was a nudge; nothing when something
        else is to be done."""
        news = self._read()  # a statement reads the notifications that come while it runs
        if news:
            return news, False
        until = min(until, self._registration.show_at)
        if has_waiters:
            until = min(until, self._look_at)
        sources = [self.nudge.descriptor, *self._registration.descriptors()]
        ready = await_readable(sources, until - time.monotonic())
        is_nudged = self.nudge.descriptor in ready
        if is_nudged:
            self.nudge.take()
        return self._read() if len(ready) > is_nudged else [], is_nudged

    def _read(self) -> list[News]:
        news: list[News] = []
        for payload in self._registration.receive():
            try:
                news += _decode_news(payload)
            except msgspec.DecodeError:  # `_LOOK`, or of another version
                self._look_again()
        return news

    def _assign(self, news: Iterable[News], waiters: Sequence[Waiter]) -> list[Waiter]:
        woken, left, must_look = assign(news, waiters)
        if woken:
            self._is_sure = False
        if must_look:
            self._look_again()
        if left:
            idle = frozenset(waiter.plan for waiter in waiters if waiter not in woken)
            self._registration.show(idle, linger_s=0)
            self._waker.get().forward(left, self._registration.number)
        return woken

    def close(self) -> None:
        self._registration.close()
        self.nudge.close()


class _Registration:
    """The row of a process in `waiters`, and the connection that listens. Without a connection, the
    process only polls; then it tries again from time to time."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._can_listen = listen_conninfo(connections) is not None
        self._listener: Listener | None = None
        self._using = threading.Lock()  # another thread may call `close`
        self._is_wanted = False  # sessions wait
        self._shown: frozenset[Plan] = frozenset()
        self._left_at: dict[Plan, float] = {}  # when the last session of a shown plan left
        self._renew_at = 0.0
        self._retry_at = 0.0
        self._pause_s = _FIRST_PAUSE_S

    @property
    def number(self) -> int | None:
        listener = self._listener
        return None if listener is None else listener.number

    @property
    def show_at(self) -> float:
        """When `show` has something to do again, if the plans stay the same."""
        if self._listener is None:
            return self._retry_at if self._is_wanted and self._can_listen else float("inf")
        lefts = [left_at + LINGER_S for left_at in self._left_at.values()]
        return min([self._renew_at, *lefts]) if self._shown else float("inf")

    def show(self, plans: frozenset[Plan], *, linger_s: float = LINGER_S) -> bool:
        """Show the plans of idle sessions, and for a moment those that lost their last one. Return
        whether the connection is new."""
        now = time.monotonic()
        with self._using:
            self._is_wanted = bool(plans)
            is_new = self._listener is None
            if is_new and not (plans and self._can_listen and now >= self._retry_at):
                return False
            try:
                listener = self._listener or self._listen()
                self._show(listener, plans | self._lingering(plans, now, linger_s), now)
            except FAILURES:
                self._drop(now)
                return False
            return is_new

    def _listen(self) -> Listener:
        self._listener = Listener(self._connections)
        self._listener.run("hold_number", self._listener.number)
        self._renew_at = 0.0
        return self._listener

    def _lingering(self, plans: frozenset[Plan], now: float, linger_s: float) -> set[Plan]:
        self._left_at = {
            plan: self._left_at.get(plan, now) for plan in self._shown if plan not in plans
        }
        return {plan for plan, left_at in self._left_at.items() if now - left_at < linger_s}

    def _show(self, listener: Listener, plans: frozenset[Plan], now: float) -> None:
        if plans == self._shown and (now < self._renew_at or not plans):
            return
        if plans:
            packed = _encode(sorted(plans, key=repr))
            values = (round(LASTS_S * 1000), _digest(packed), packed.decode())
            listener.run("show_waiter", listener.number, *values)
        else:
            listener.run("hide_waiter", listener.number)
        self._shown, self._renew_at, self._pause_s = plans, now + RENEW_S, _FIRST_PAUSE_S
        self._left_at = {plan: at for plan, at in self._left_at.items() if plan in plans}

    def descriptors(self) -> list[int]:
        listener = self._listener
        return [] if listener is None else [listener.fileno()]

    def receive(self) -> list[str]:
        """Return the payloads that have come."""
        with self._using:
            try:
                return [] if self._listener is None else self._listener.receive()
            except FAILURES:
                self._drop(time.monotonic())
                return []

    def _drop(self, now: float) -> None:
        listener, self._listener = self._listener, None
        self._shown, self._left_at = frozenset(), {}
        self._retry_at = now + self._pause_s * random.uniform(0.5, 1.0)
        self._pause_s = min(2 * self._pause_s, _MOST_PAUSE_S)
        if listener is not None:
            listener.close()

    def close(self) -> None:
        with self._using:
            self._drop(time.monotonic())


def _digest(packed: bytes) -> int:
    return int.from_bytes(blake2b(packed, digest_size=8).digest(), signed=True)


# ------------------------------------------------------------------------------------- the waker


class _PlanKey(NamedTuple):
    """One plan of a process that waits."""

    number: int  # of the process
    at: int  # of the plan


class _Waker:
    """Announces ready jobs for one engine object in one process."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._lock = threading.Lock()
        self._ready: Counter[ReadyLine] = Counter()
        self._ready_tasks: list[ReadyTask] = []
        self._known: list[tuple[int, int]] = []  # processes that waited: number, digest of plans
        self._known_until = 0.0
        self._plans: dict[int, tuple[Plan, ...]] = {}  # by digest
        self._throttle = Throttle(self._announce)

    def add(self, ready: Mapping[ReadyLine, int], ready_tasks: Sequence[ReadyTask]) -> None:
        with self._lock:
            self._ready.update(ready)
            self._ready_tasks += ready_tasks
        self._throttle.ask()

    def _announce(self) -> None:
        with self._lock:
            ready, self._ready = self._ready, Counter()
            ready_tasks, self._ready_tasks = self._ready_tasks, []
        news = [News(line, number) for line, number in ready.items()]
        if news:
            run_hint(self._connections, lambda hints: self._send(hints, news, ready_tasks))

    def forward(self, news: Sequence[News], sender: int | None) -> None:
        """Forward news that the process with this number cannot use to other processes."""
        run_hint(self._connections, lambda hints: self._send(hints, news, (), sender))

    def _send(
        self,
        hints: Hints,
        news: Sequence[News],
        ready_tasks: Sequence[ReadyTask],
        sender: int | None = None,
    ) -> None:
        """Notify processes that can take the jobs. The first round notifies those that waited at
        the last look, and looks again in the same statement. Later rounds notify others about the
        rest."""
        if time.monotonic() >= self._known_until:
            self._known = []
        news = with_tasks(news, ready_tasks) if ready_tasks else news
        for round_number in range(_MOST_ROUNDS):
            shares = self._deal(news, sender)
            if round_number and not shares:
                return
            told = self._tell(hints, shares)
            news = _left(news, [one for number in told for one in shares[number]])
            if not news:
                return

    def _deal(self, news: Sequence[News], sender: int | None) -> dict[int, list[News]]:
        """Choose the share of the news for each process, by its number. Their sender gets none."""
        plans = {
            _PlanKey(number, at): plan
            for number, digest in self._known
            if number != sender
            for at, plan in enumerate(self._plans.get(digest, ()))
        }
        shares: dict[int, list[News]] = {}

        def send(key: _PlanKey, one: News) -> bool:
            shares.setdefault(key.number, []).append(one)
            return True

        deal(news, (), plans, send)
        return shares

    def _tell(self, hints: Hints, shares: Mapping[int, list[News]]) -> set[int]:
        """Send news to processes, and read the rows of waiting ones; return those that got the
        news."""
        payloads = [_pack(some) for some in shares.values()]
        rows = hints.rows("tell_waiters", pack_numbers(shares), payloads)
        known = [(number, digest) for number, digest, is_waiting, _ in rows if is_waiting]
        self._learn(hints, {digest for _, digest in known})
        if len(known) < len(rows):
            hints.rows("forget_waiters", BITE)
        random.shuffle(known)
        self._known, self._known_until = known, time.monotonic() + LASTS_S
        return {number for number, _ in known}.intersection(shares)

    def _learn(self, hints: Hints, digests: set[int]) -> None:
        unknown = digests.difference(self._plans)
        if unknown:
            if len(self._plans) > _MOST_PLANS:  # most are of processes that have ended
                self._plans = {}
            for digest, packed in hints.rows("read_plans", pack_numbers(unknown)):
                with suppress(msgspec.DecodeError):  # of another version
                    self._plans[digest] = _decode_plans(packed)

    def close(self) -> None:
        self._throttle.close()


def _left(news: Sequence[News], told: Sequence[News]) -> list[News]:
    """Return the news of the other jobs, after these were told. A process that looks for jobs finds
    all of them."""
    looking = {one.ready for one in told if not one.number}
    numbers: Counter[ReadyLine] = Counter()
    tasks: dict[ReadyLine, Counter[str]] = {one.ready: Counter() for one in news}
    for one in told:
        numbers[one.ready] += one.number
        tasks[one.ready].update(one.tasks)
    return [
        News(one.ready, number, one.hops, one.without(tasks[one.ready]).tasks)
        for one in news
        if (number := one.number - numbers[one.ready]) > 0 and one.ready not in looking
    ]


def _pack(news: list[News]) -> str:
    packed = _encode(news)
    return packed.decode() if len(packed) <= MOST_BYTES else _LOOK
