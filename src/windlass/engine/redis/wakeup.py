"""Wake-ups for work: wait for jobs on behalf of the idle sessions of a worker.

1. All sessions share one registration per partition, renewed about once a second, and one
   connection, which listens on the worker's own channel.
2. Registration and the search for work are one step in the server, so that no wake-up is lost in
   between.
3. A call that makes jobs ready removes that number of idle sessions from their registrations and
   publishes their names. A put that makes one job ready leases it to one of these sessions, under
   the nonce of its next claim, and publishes the job: it arrives without a call. Only speed depends
   on these messages: if one is lost, the usual claim under that nonce finds the job. A last claim
   uses up its nonce, so that no later put leases a job under it.
4. A silent connection may have been dropped by the network: the worker subscribes again every few
   seconds, and reconnects when it gets no reply.
"""

from __future__ import annotations

import random
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Final

import msgspec

from windlass.engine.contract import Plan, Waiter, WakeUp
from windlass.engine.redis import decode, encode, keys
from windlass.engine.redis.client.server import Server
from windlass.engine.redis.client.subscription import FAILURES, Subscription
from windlass.engine.wakeup import PerProcess, await_readable, new_nudge

#: Drop messages above this number: the next renewal finds the jobs that they announce.
_MOST_MESSAGES: Final = 1000
#: How often to check the connection, in seconds.
PULSE_S: Final = 5.0
#: A registration is renewed after this many seconds per partition, so that a worker makes one call
#: a second; at the latest after `MOST_RENEW_S`.
RENEW_S: Final = 1.0
MOST_RENEW_S: Final = 5.0
#: When a job falls due, workers ask in turn, this many seconds apart: the first worker then leaves
#: few jobs for the others to search for.
_APART_S: Final = 0.0001
_MOST_APART_S: Final = 0.02

#: Remember this many sessions with their plans, for wake-ups that come late.
_MOST_PLANS: Final = 1_000

_encode = msgspec.msgpack.Encoder().encode

#: `register(channel, lasts_ms, plans)`, with plans for each partition. Returns for each partition
#: the milliseconds until the next job is due, the number of registrations, and the sessions that
#: should claim.
Register = Callable[[str, int, Sequence[bytes]], Sequence[tuple[int, int, Sequence[bytes]]]]


class RedisWakeup:
    """Wait for work on behalf of the idle sessions of one engine object."""

    def __init__(self, server: Server, partitions: int, register: Register) -> None:
        self._partitions = partitions
        self._renew_s = min(RENEW_S * partitions, MOST_RENEW_S)
        self._register = register
        self._here = PerProcess(lambda: _Registration(server))

    def wait(self, waiters: Sequence[Waiter], timeout_ms: int) -> list[WakeUp]:
        here = self._here.get()
        until = time.monotonic() + timeout_ms / 1000
        if here.must_register(waiters):
            found = self._renew(here, waiters)
            if found:
                return found
        if waiters:
            until = min(until, here.renew_at)
        woken: list[WakeUp] = []
        for message in here.receive(until):
            woken += decode.wake_ups(message)
        here.woken += woken
        return here.meant_for(waiters, woken) if woken else woken

    def _renew(self, here: _Registration, waiters: Sequence[Waiter]) -> list[WakeUp]:
        """Register the waiters, or remove the registration if there are none. Return the sessions
        that have work now, which the server does not register."""
        if waiters:
            here.subscribe()
        plans = here.plans_of(waiters)
        lasts_ms = round(2 * self._renew_s * 1000) + 500
        # Partitions wake sessions from the end of the list: give each partition another order.
        packed = [
            _encode(
                [
                    _of_plan(number, plan, _rotated(some, part, self._partitions), here.surplus)
                    for number, plan, some in plans
                ]
            )
            for part in range(self._partitions)
        ]
        replies = self._register(here.channel, lasts_ms, packed)
        here.note(waiters, time.monotonic() + min(self._renew_s, _due_in_s(replies)))
        woken = [WakeUp(session.decode()) for _, _, found in replies for session in sorted(found)]
        here.woken += woken
        return here.meant_for(waiters, woken)

    def nudge(self) -> None:
        self._here.get().nudge.give()

    def close(self) -> None:
        self._here.close()


def _rotated(waiters: list[Waiter], part: int, parts: int) -> list[Waiter]:
    at = part * len(waiters) // parts
    return waiters[at:] + waiters[:at]


def _of_plan(
    number: int, plan: Plan, waiters: Iterable[Waiter], surplus: set[Plan]
) -> tuple[object, ...]:
    sessions: list[str] = []
    for waiter in waiters:
        encode.check_name("session", waiter.session)
        encode.check_name("nonce", waiter.nonce)
        sessions += (waiter.session, waiter.nonce)
    for task in plan.tasks:
        encode.check_name("task", task)
    suspects = "1" if plan.suspects else "0"
    packed = (number, suspects, plan.queues, plan.labels, sessions, int(plan in surplus))
    return (*packed, plan.tasks) if plan.tasks else packed


def _due_in_s(replies: Sequence[tuple[int, int, Sequence[bytes]]]) -> float:
    """Return the seconds until this worker should ask for the next due job."""
    in_ms = min((reply[0] for reply in replies if reply[0] >= 0), default=None)
    if in_ms is None:
        return MOST_RENEW_S
    others = max(reply[1] for reply in replies) - 1
    return in_ms / 1000 + random.uniform(0, min(_MOST_APART_S, others * _APART_S))


class _Registration:
    """The registration of one process, and the connection that receives its wake-ups."""

    def __init__(self, server: Server) -> None:
        self.channel = keys.channel(server.address.namespace, secrets.token_hex(8))
        self.nudge = new_nudge()
        self.renew_at = 0.0  # by the monotonic clock
        self._numbers: dict[Plan, int] = {}  # of the plans in the latest registration
        self._free_numbers = count()
        self._registered: frozenset[Waiter] = frozenset()
        self.woken: list[WakeUp] = []  # sessions woken since the last registration
        self._plans: dict[str, Plan] = {}  # plans of sessions that are or were registered
        self.surplus: set[Plan] = set()  # plans with wake-ups that this worker cannot use
        self._stale: set[Plan] = set()  # other partitions may still list woken sessions of these
        self._server = server
        self._subscription: Subscription | None = None
        self._messages: list[bytes] = []
        self._reading = threading.Lock()  # another thread may call `close`

    # ------------------------------------------------------------------------ registration

    def must_register(self, waiters: Sequence[Waiter]) -> bool:
        self._forget_woken()
        if self.surplus or frozenset(waiters) != self._registered:
            return True
        if not waiters:
            return False
        return self._subscription is None or time.monotonic() >= self.renew_at

    def plans_of(self, waiters: Sequence[Waiter]) -> list[tuple[int, Plan, list[Waiter]]]:
        """Group waiters by plan. A plan that was registered before and has no waiter now gets an
        empty group. A plan keeps its number until that."""
        groups: dict[Plan, list[Waiter]] = {waiter.plan: [] for waiter in self._registered}
        groups.update((plan, []) for plan in self.surplus | self._stale)
        for waiter in waiters:
            groups.setdefault(waiter.plan, []).append(waiter)
        # A number is never used again: the server may still know it.
        known = self._numbers
        self._numbers = {
            plan: known[plan] if plan in known else next(self._free_numbers) for plan in groups
        }
        return [(self._numbers[plan], plan, some) for plan, some in groups.items()]

    def note(self, waiters: Sequence[Waiter], renew_at: float) -> None:
        self._registered, self.renew_at = frozenset(waiters), renew_at
        self.surplus, self._stale = set(), set()
        if len(self._plans) > _MOST_PLANS:
            self._plans.clear()
        self._plans.update((waiter.session, waiter.plan) for waiter in waiters)

    def meant_for(self, waiters: Sequence[Waiter], woken: list[WakeUp]) -> list[WakeUp]:
        """Return the wake-ups for waiting sessions. Drop the others: their session is busy, or two
        partitions woke it. The next call registers at once and finds other sessions for these jobs,
        in this worker or in others."""
        waiting = {waiter.session for waiter in waiters}
        meant: list[WakeUp] = []
        for wake_up in woken:
            if wake_up.session in waiting:
                waiting.remove(wake_up.session)
                meant.append(wake_up)
            else:
                self.renew_at = 0.0
                if wake_up.session in self._plans:
                    self.surplus.add(self._plans[wake_up.session])
        return meant

    def _forget_woken(self) -> None:
        """Unregister woken sessions, as the server did. Called late: waking comes first."""
        if self.woken:
            sessions = {wake_up.session for wake_up in self.woken}
            gone = {one for one in self._registered if one.session in sessions}
            self._stale.update(one.plan for one in gone)
            self._registered, self.woken = self._registered - gone, []

    # ------------------------------------------------------------------------------- listening

    def subscribe(self) -> None:
        """Subscribe to the channel. If that fails, only renewals find work."""
        known = self._subscription
        if known is not None and time.monotonic() < known.asked_at + PULSE_S:
            return
        self._read()
        with self._reading:
            try:
                if self._subscription is not None and self._subscription.is_answered:
                    self._subscription.ask()
                else:
                    self._drop()
                    self._subscription = Subscription(self._server, self.channel)
            except FAILURES:
                self._drop()

    def receive(self, until: float) -> list[bytes]:
        """Return messages as soon as some come. Return none on a nudge, after the timeout, or when
        the connection breaks."""
        while True:
            is_broken = self._read()
            messages, self._messages = self._messages, []
            if messages or is_broken:
                return messages
            nudged, known = self.nudge.descriptor, self._subscription
            listening = -1 if known is None else known.fileno()  # another thread may close it
            sources = [nudged] if listening < 0 else [nudged, listening]
            ready = await_readable(sources, until - time.monotonic())
            if nudged in ready:
                self.nudge.take()
                return []
            if not ready:
                return []

    def _read(self) -> bool:
        """Read published messages; return whether the connection is broken."""
        with self._reading:
            if self._subscription is None:
                return False
            try:
                for message in self._subscription.receive():
                    if message == decode.RENEW:
                        self.renew_at = 0.0
                    if len(self._messages) < _MOST_MESSAGES:
                        self._messages.append(message)
            except FAILURES:
                self._drop()
                return True
            return False

    def _drop(self) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            subscription.close()

    def close(self) -> None:
        with self._reading:
            self._drop()
        self.nudge.close()
