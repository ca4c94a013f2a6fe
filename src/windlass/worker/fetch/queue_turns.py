"""Weighted turns of queues: which queues a claim asks for, and the order of the claimed jobs.

The engine keeps the strict order of tiers. Where queues share a tier, a claim names the queues with
the next turns, and the child notes which jobs it got. So the weights hold over many claims, however
few jobs each claim asks for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from windlass.core.queues.labels import queue_of
from windlass.core.queues.plans import Tier, Turns, read_tiers
from windlass.engine.contract import Claim, Plan, Share


class QueueTurns:
    """Plans of the claims of one child. Used by the fetcher only."""

    def __init__(
        self, queues: Sequence[str], labels: Sequence[str] = (), *, is_solo: bool = False
    ) -> None:
        tiers = read_tiers(queues)
        self._tiers = [(tier, Turns(tier.weights)) for tier in tiers]
        self.is_shared = any(tier.is_shared for tier in tiers)
        #: The plan without turns, for all uses except claims.
        self.plan = Plan(
            queues=tuple(queue for tier in tiers for queue in tier.queues),
            suspects=is_solo,
            labels=tuple(labels),
        )

    def plan_for(self, room: int) -> Plan:
        """Return the plan of a claim of at most `room` jobs."""
        if not self.is_shared:
            return self.plan
        shares, first = [], 0
        for tier, turns in self._tiers:
            if tier.is_shared:
                shares.append(Share(first, len(tier.queues), turns.ahead(room)))
            first += len(tier.queues)
        return replace(self.plan, shares=tuple(shares))

    def in_order(self, claims: Sequence[Claim], plan: Plan, room: int) -> Sequence[Claim]:
        """Order the jobs of a claim by their turns. Needed only where queues share a tier."""
        shares = {share.first: share for share in plan.shares}
        pools: dict[str, list[Claim]] = {queue: [] for queue in plan.queues}
        for claim in claims:
            pools[queue_of(claim.queue)].append(claim)
        ordered: list[Claim] = []
        first = 0
        for tier, turns in self._tiers:
            if tier.is_shared:
                asked = Counter(shares[first].turns[: max(0, room - len(ordered))])
                ordered += _interleaved(tier, turns, pools, asked)
            else:
                ordered += pools[tier.queues[0]]
            first += len(tier.queues)
        return ordered


def _interleaved(
    tier: Tier, turns: Turns, pools: dict[str, list[Claim]], asked: Counter[int]
) -> list[Claim]:
    taken = [len(pools[queue]) for queue in tier.queues]
    order = turns.take(taken, [asked[position] for position in range(len(tier.queues))])
    waiting = [iter(pools[queue]) for queue in tier.queues]
    return [next(waiting[position]) for position in order]
