"""Claims over several partitions: send outcomes to the partitions of their jobs, then ask the
partitions in turn until the batch is full.

A session stays with a partition that fills its batches, so that a busy worker needs one round trip
per turn. It moves on after some turns, because other partitions may have more urgent jobs.

A repeated claim must not start at another partition: a partition that does not know the nonce would
lease again. So this module remembers the nonce of each session's latest claim, and a repeat asks
every partition for the jobs held under it, and for nothing new. That is enough because a session
belongs to one engine object, in its child process: no other engine object repeats its claims.

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
_ACCEPTED, _REFUSED = b"10"
_NO_CLAIM: Final = None

_rank_and_place: Final = itemgetter(0, 1)
_ages: Final = msgspec.msgpack.Decoder(dict[str, int])


class _Trail:
    """The partition that last served a session, and the nonce of the session's latest claim."""

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
    ) -> None:
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
        trail = self._trail(session)
        is_repeat = nonce <= trail.nonce
        trail.nonce = max(nonce, trail.nonce)
        if is_repeat:
            self._collect(
                turn, [ask(number, _HELD_ONLY) for number in range(self._partitions.number)]
            )
        elif len(turn.plan.queues) > 1:
            self._ask_by_plan(turn, ask, trail, session, limit)
        else:
            self._ask_in_turn(turn, ask, trail, limit)

    def _ask_in_turn(self, turn: _Replies, ask: _CallMaker, trail: _Trail, limit: int) -> None:
        first, *others = self._partitions.from_on(trail.partition)
        elsewhere = [
            self._finishing(turn, *group) for group in ask.groups.items() if group[0] != first
        ]
        self._collect(turn, [*elsewhere, ask(first, limit)])
        for partition in others:
            if turn.is_gone or (limit and len(turn.claims) >= limit):
                break
            before, left = len(turn.claims), turn.left_bytes()
            if left <= 0:
                turn.note_more()
                break
            self._collect(turn, [ask(partition, limit - before, left, with_outcomes=False)])
            if len(turn.claims) > before:
                trail.partition, trail.stays = partition, 0
        trail.stays += 1
        if trail.stays >= _MOST_STAYS:
            trail.partition, trail.stays = (trail.partition + 1) % self._partitions.number, 0

    def _ask_by_plan(
        self, turn: _Replies, ask: _CallMaker, trail: _Trail, session: str, limit: int
    ) -> None:
        numbers = self._partitions.from_on(trail.partition)
        trail.partition = numbers[1]
        packed = [session.encode(), b"%d" % limit, *encode.of_plan(turn.plan)]
        prepare = [self._make_call(number, "prepare", packed) for number in numbers]
        ends = [self._finishing(turn, *group) for group in ask.groups.items()]
        replies = self._run([*(call for call, _ in ends), *prepare])
        for (_, positions), reply in zip(ends, replies, strict=False):
            turn.add(positions, reply)
        waiting = []
        for reply in replies[len(ends) :]:
            turn.add((), reply[:5])
            waiting.append(reply[5:])
        if not turn.is_gone:
            divided = zip(numbers, divide(turn.plan, waiting, limit), strict=True)
            parts = [(number, part) for number, part in divided if part]
            most_bytes = turn.plan.most_bytes // max(1, len(parts))
            self._collect(turn, [ask.part(number, part, most_bytes) for number, part in parts])

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
        self._nonce = nonce
        self.verdicts = [Verdict.STALE] * len(outcomes)
        self._suspects = False
        self._next_in_ms: int | None = None

    def add(self, positions: Sequence[int], reply: Sequence[Any]) -> None:
        verdicts, gone, next_in_ms, suspects, packed_ages, *claims = reply
        if len(positions) == len(self.verdicts) and _REFUSED not in verdicts:
            self.verdicts = [Verdict.OK] * len(verdicts)
        else:
            for position, verdict in zip(positions, verdicts, strict=True):
                if verdict == _ACCEPTED:
                    self.verdicts[position] = Verdict.OK
        self.is_gone |= bool(gone)
        self._suspects |= bool(suspects)
        if next_in_ms >= 0:
            known = self._next_in_ms
            self._next_in_ms = next_in_ms if known is None else min(known, next_in_ms)
        nonce, to_claim = self._nonce, decode.to_claim
        self.claims += [
            to_claim(job_id.decode(), packed, body, nonce)
            for job_id, packed, body in zip(claims[::3], claims[1::3], claims[2::3], strict=True)
        ]
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
