"""Claims over several partitions: send outcomes to the partitions of their jobs, then ask the
partitions in turn until the batch is full.

A repeated claim must lease nothing new, in no partition: it asks all of them for the jobs that are
held under its nonce. How a repeat is recognised depends on `EngineOptions.owns_sessions`:

- An engine object that owns its sessions, as in the child of a worker, remembers the nonce of each
  session's latest claim. A session stays with a partition that fills its batches, so that a busy
  worker needs one round trip per turn. It moves on after some turns, because other partitions may
  have more urgent jobs.
- Otherwise another engine object may have made the same claim, and memory says nothing. So a claim
  first asks all partitions whether they know its nonce. The nonce also decides the order in which
  the partitions are then asked to lease: two engine objects that make the same claim at the same
  time find the same jobs, unless jobs come in between.

A batch has a byte budget. The rest that one partition leaves goes to the next one. When nothing is
left, no other partition is asked, and the batch reports that there is more.

With several queues in the plan, no partition may fill the batch with a later queue while another
partition has jobs of an earlier one. So one more round trip first asks all partitions for the
length of each queue, and then each partition for its part. Each partition also gets its part of the
byte budget: with large payloads, a partition may return jobs of a later queue while another still
has some of an earlier one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from windlass.core.queues.labels import queue_of
from windlass.core.queues.plans import allot
from windlass.engine.contract import Batch, Claim, Outcome, Plan, Share, Turn, Verdict
from windlass.engine.redis import decode, encode
from windlass.engine.redis.client.pool import PIECE
from windlass.engine.redis.client.server import RedisCall, Reply
from windlass.engine.redis.partitions import Partitions

#: One call leases at most this many jobs, even if the caller asks for more.
MOST_CLAIMS: Final = 500
#: The number of sessions to remember; a child has one.
_MOST_TRAILS: Final = 1000
#: The number of turns after which a session moves on to the next partition.
_MOST_STAYS: Final = 20
_HELD_ONLY: Final = -1
_ACCEPTED: Final = b"1"
_VERDICTS: Final = dict(zip(b"012", (Verdict.STALE, Verdict.OK, Verdict.REPEATED), strict=True))
_GONE, _REPEATED = 1, 2
_NO_CLAIM: Final = None

_rank_and_place: Final = itemgetter(0, 1)
_ages: Final = msgspec.msgpack.Decoder(dict[str, int])


class _Trail:
    """The partition that last served a session of this engine object, and the nonce of the
    session's latest claim."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.nonce = ""
        self.stays = 0  # how often this partition alone filled the batch


class Claimer:
    """Claim jobs for one engine object, over all partitions."""

    def __init__(
        self,
        partitions: Partitions,
        make_call: Callable[[int, str, Sequence[bytes]], RedisCall],
        run: Callable[[Sequence[RedisCall]], list[Reply]],
        *,
        owns_sessions: bool,
    ) -> None:
        self._owns_sessions = owns_sessions
        self._partitions = partitions
        self._make_call = make_call
        self._run = run
        self._trails: OrderedDict[str, _Trail] = OrderedDict()

    def finish(self, outcomes: Sequence[Outcome]) -> list[Verdict]:
        turn = _Replies(outcomes, Plan(), nonce="")
        groups = self._partitions.group(outcomes, self._of_outcome)
        self._collect(turn, [self._finishing(turn, *group) for group in groups.items()])
        return turn.verdicts

    def turn(
        self,
        session: str,
        outcomes: Sequence[Outcome],
        nonce: str,
        plan: Plan,
        limit: int,
        *,
        is_last: bool = False,
    ) -> Turn:
        """Run one turn. With `is_last`, no later call leases a job under the nonce."""
        limit = min(limit, MOST_CLAIMS)
        turn = _Replies(outcomes, plan, nonce)
        is_alone = self._partitions.number == 1
        groups: Mapping[int, Sequence[int]] = {0: range(len(outcomes))}
        if not is_alone:
            groups = self._partitions.group(outcomes, self._of_outcome)
        ask = _CallMaker(self._make_call, turn, groups, session, nonce)
        if is_alone:  # a single partition remembers the nonces itself
            call, positions = ask(0, limit, is_last=is_last)
            turn.add(positions, self._run([call])[0])
        else:
            self._ask_several(turn, ask, session, nonce, limit)
        return Turn(verdicts=tuple(turn.verdicts), batch=turn.batch())

    def _ask_several(
        self, turn: _Replies, ask: _CallMaker, session: str, nonce: str, limit: int
    ) -> None:
        if not self._owns_sessions:
            numbers = self._partitions.from_on(self._partitions.of_claim(session, nonce))
            if len(turn.plan.queues) > 1:
                self._ask_by_plan(turn, ask, numbers, session, limit)
            else:
                self._ask_known(turn, ask, numbers, session, limit)
            return
        trail = self._trail(session)
        is_repeat = nonce <= trail.nonce
        trail.nonce = max(nonce, trail.nonce)
        if is_repeat:
            self._ask_held(turn, ask, with_outcomes=True)
        elif len(turn.plan.queues) > 1:
            numbers = self._partitions.from_on(trail.partition)
            trail.partition = numbers[1]
            self._ask_by_plan(turn, ask, numbers, session, limit)
        else:
            self._ask_in_turn(turn, ask, trail, limit)

    def _ask_held(self, turn: _Replies, ask: _CallMaker, *, with_outcomes: bool = False) -> None:
        """Collect the jobs that are held under the nonce. No partition leases a job under it from
        now on, even if another engine object is still busy with the same claim."""
        numbers = range(self._partitions.number)
        held = [ask(number, _HELD_ONLY, with_outcomes=with_outcomes) for number in numbers]
        self._collect(turn, held)

    def _ask_in_turn(self, turn: _Replies, ask: _CallMaker, trail: _Trail, limit: int) -> None:
        first, *others = self._partitions.from_on(trail.partition)
        elsewhere = [
            self._finishing(turn, *group) for group in ask.groups.items() if group[0] != first
        ]
        self._collect(turn, [*elsewhere, ask(first, limit)])
        last = self._ask_others(turn, ask, others, limit)
        if last is not None:
            trail.partition, trail.stays = last, 0
        trail.stays += 1
        if trail.stays >= _MOST_STAYS:
            trail.partition, trail.stays = (trail.partition + 1) % self._partitions.number, 0

    def _ask_others(
        self, turn: _Replies, ask: _CallMaker, others: Sequence[int], limit: int
    ) -> int | None:
        """Ask partitions in turn until the batch is full; return the last one that had jobs."""
        last = None
        for partition in others:
            if turn.is_gone or (limit and len(turn.claims) >= limit):
                break
            before, left = len(turn.claims), turn.left_bytes()
            if left <= 0:
                turn.note_more()
                break
            self._collect(turn, [ask(partition, limit - before, left, with_outcomes=False)])
            if len(turn.claims) > before:
                last = partition
        return last

    def _ask_known(
        self,
        turn: _Replies,
        ask: _CallMaker,
        numbers: Sequence[int],
        session: str,
        limit: int,
    ) -> None:
        """Ask all partitions whether they know the nonce. If none does, ask them to lease."""
        names = [session.encode(), turn.nonce.encode()]
        self._prepare(turn, ask, numbers, "nonce", names)
        if turn.is_gone:
            return
        if turn.is_repeat:
            self._ask_held(turn, ask)
        else:
            self._ask_others(turn, ask, numbers, limit)

    def _ask_by_plan(
        self,
        turn: _Replies,
        ask: _CallMaker,
        numbers: Sequence[int],
        session: str,
        limit: int,
    ) -> None:
        """Ask all partitions what they have and whether they know the nonce, then for their part of
        the batch."""
        names = [session.encode(), turn.nonce.encode()]
        packed = [*names, b"%d" % limit, *encode.of_plan(turn.plan)]
        waiting = self._prepare(turn, ask, numbers, "prepare", packed)
        if turn.is_gone:
            return
        if turn.is_repeat:
            self._ask_held(turn, ask)
        else:
            divided = zip(numbers, divide(turn.plan, waiting, limit), strict=True)
            parts = [(number, part) for number, part in divided if part]
            most_bytes = turn.plan.most_bytes // max(1, len(parts))
            self._collect(turn, [ask.part(number, part, most_bytes) for number, part in parts])

    def _prepare(
        self,
        turn: _Replies,
        ask: _CallMaker,
        numbers: Sequence[int],
        script: str,
        packed: Sequence[bytes],
    ) -> list[Sequence[int]]:
        """End claims, and call a script in all partitions; return the rest of each reply."""
        prepare = [self._make_call(number, script, packed) for number in numbers]
        ends = [self._finishing(turn, *group) for group in ask.groups.items()]
        replies = self._run([*(call for call, _ in ends), *prepare])
        for (_, positions), reply in zip(ends, replies, strict=False):
            turn.add(positions, reply)
        waiting = []
        for reply in replies[len(ends) :]:
            turn.add((), reply[:5])
            waiting.append(reply[5:])
        return waiting

    def _finishing(
        self, turn: _Replies, partition: int, positions: Sequence[int]
    ) -> tuple[RedisCall, Sequence[int]]:
        ask = _CallMaker(self._make_call, turn, {partition: positions}, "", "")
        return ask(partition, _NO_CLAIM)

    def _collect(self, turn: _Replies, asked: Sequence[tuple[RedisCall, Sequence[int]]]) -> None:
        replies = self._run([call for call, _ in asked])
        for (_, positions), reply in zip(asked, replies, strict=True):
            turn.add(positions, reply)

    def _of_outcome(self, outcome: Outcome) -> int:
        return self._partitions.of_id(outcome.id)

    def _trail(self, session: str) -> _Trail:
        trail = self._trails.pop(session, None) or _Trail(self._partitions.of_session(session))
        self._trails[session] = trail
        if len(self._trails) > _MOST_TRAILS:
            self._trails.popitem(last=False)
        return trail


class _CallMaker:
    """Make the call for one partition: the outcomes of its jobs, and a claim."""

    def __init__(
        self,
        make_call: Callable[[int, str, Sequence[bytes]], RedisCall],
        turn: _Replies,
        groups: Mapping[int, Sequence[int]],
        session: str,
        nonce: str,
    ) -> None:
        self.groups = groups
        self._make_call = make_call
        self._turn = turn
        self._head = [session.encode(), nonce.encode()]
        self._plan = encode.of_plan(turn.plan)

    def __call__(
        self,
        partition: int,
        limit: int | None,
        most_bytes: int | None = None,
        *,
        with_outcomes: bool = True,
        is_last: bool = False,
    ) -> tuple[RedisCall, Sequence[int]]:
        positions = self.groups.get(partition, []) if with_outcomes else []
        return self._turn_of(partition, positions, limit, most_bytes, is_last), positions

    def _turn_of(
        self,
        partition: int,
        positions: Sequence[int],
        limit: int | None,
        most_bytes: int | None,
        is_last: bool,
    ) -> RedisCall:
        if most_bytes is None:
            most_bytes = self._turn.plan.most_bytes
        form = b"%+d %d" if is_last else b"%d %d"
        packed_limit = b"" if limit is None else form % (limit, most_bytes)
        outcomes = [self._turn.outcomes[position] for position in positions]
        packed = [*self._head, packed_limit, *self._plan, *encode.of_outcomes(outcomes)]
        call = self._make_call(partition, "turn", packed)
        if len(call.command) <= PIECE or len(positions) < 2:
            return call

        def halves() -> tuple[RedisCall, RedisCall]:
            """Split the outcomes into two calls; the first call claims nothing."""
            some, others = positions[: len(positions) // 2], positions[len(positions) // 2 :]
            return (
                self._turn_of(partition, some, None, None, False),
                self._turn_of(partition, others, limit, most_bytes, is_last),
            )

        return replace(call, halves=halves, join=_join_verdicts)

    def part(
        self, partition: int, turns: bytes, most_bytes: int
    ) -> tuple[RedisCall, Sequence[int]]:
        """Make a claim for one partition: from each queue, one job per turn in `turns`."""
        queues = tuple(dict.fromkeys(self._turn.plan.queues))
        plan = replace(self._turn.plan, queues=queues, shares=(Share(0, len(queues), turns),))
        packed = [*self._head, b"%d %d" % (len(turns), most_bytes), *encode.of_plan(plan)]
        return self._make_call(partition, "turn", packed), []


def _join_verdicts(first: Reply, second: Reply) -> Reply:
    return [first[0] + second[0], *second[1:]]


def divide(plan: Plan, waiting: Sequence[Sequence[int]], limit: int) -> list[bytes]:
    """Divide a batch over partitions, given the number of waiting jobs per partition and queue.
    Return, for each partition, the queue of each job as one byte."""
    parts = [bytearray() for _ in waiting]
    queues = list(dict.fromkeys(plan.queues))
    left = limit
    for tier, turns in plan.tiers():
        here = [queues.index(queue) for queue in tier]
        taken = allot(turns, [sum(counts[queue] for counts in waiting) for queue in here], left)
        left -= sum(taken)
        for queue, number in zip(here, taken, strict=True):
            for part, counts in zip(parts, waiting, strict=True):
                some = min(number, counts[queue] - part.count(queue))
                part += bytes([queue]) * some
                number -= some
    return [bytes(part) for part in parts]


class _Replies:
    """Collect the replies of partitions and combine them into one batch."""

    def __init__(self, outcomes: Sequence[Outcome], plan: Plan, nonce: str) -> None:
        self.outcomes = outcomes
        self.plan = plan
        self.claims: list[tuple[int, int, Claim]] = []  # rank, place in line, claim
        self.is_gone = False
        self.is_repeat = False  # a partition knew the nonce
        self.nonce = nonce
        self.verdicts = [Verdict.STALE] * len(outcomes)
        self._suspects = False
        self._next_in_ms: int | None = None

    def add(self, positions: Sequence[int], reply: Sequence[Any]) -> None:
        verdicts, gone, next_in_ms, suspects, packed_ages, *claims = reply
        if len(positions) == len(self.verdicts) == verdicts.count(_ACCEPTED):
            self.verdicts = [Verdict.OK] * len(verdicts)
        else:
            for position, verdict in zip(positions, verdicts, strict=True):
                self.verdicts[position] = _VERDICTS[verdict]
        if gone:
            self.is_gone |= gone == _GONE
            self.is_repeat |= gone == _REPEATED
        self._suspects |= bool(suspects)
        if next_in_ms >= 0:
            known = self._next_in_ms
            self._next_in_ms = next_in_ms if known is None else min(known, next_in_ms)
        self.claims += decode.to_claims(claims, self.nonce)
        if packed_ages and claims:
            self._level(_ages.decode(packed_ages), len(claims) // 3)

    def _level(self, ages: Mapping[str, int], number: int) -> None:
        """Subtract the ages of queues, so that ranks of the last claims compare across queues."""
        for at in range(len(self.claims) - number, len(self.claims)):
            rank, place, claim = self.claims[at]
            self.claims[at] = (rank - ages.get(queue_of(claim.queue), 0), place, claim)

    def left_bytes(self) -> int:
        """Return the unused part of the byte budget."""
        return self.plan.most_bytes - sum(len(claim.payload) for _, _, claim in self.claims)

    def note_more(self) -> None:
        """Make the batch report that there may be more to claim now."""
        self._next_in_ms = 0

    def batch(self) -> Batch:
        if self.is_gone:
            return Batch(gone=True)
        return Batch(
            claims=tuple(claim for _, _, claim in self._in_turn()),
            next_in_ms=self._next_in_ms,
            suspects=self._suspects,
        )

    def _in_turn(self) -> list[tuple[int, int, Claim]]:
        """Sort claims by queue if the plan names queues, then by priority and place."""
        if len(self.plan.queues) < 2:
            return sorted(self.claims, key=_rank_and_place)
        turns = {queue: -number for number, queue in enumerate(reversed(self.plan.queues))}
        return sorted(
            self.claims,
            key=lambda held: (turns.get(queue_of(held[2].queue), 1), held[0], held[1]),
        )
