"""Find the figures in which another system is ahead of every engine of windlass."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from benchmarks.peers.measures import MEASURES
from benchmarks.peers.results import PeerResults
from benchmarks.peers.targets import best


class Loss(msgspec.Struct, frozen=True):
    """A measure in which another system is ahead."""

    measure: str
    our_system: str
    ours: float
    peer: str
    theirs: float

    @property
    def factor(self) -> float:
        low, high = sorted((self.ours, self.theirs))
        return high / low if low else float("inf")


def losses(results: PeerResults) -> Iterator[Loss]:
    ours = [system.name for system in results.systems if system.is_ours]
    others = [system.name for system in results.systems if not system.is_ours]
    for measure, about in MEASURES.items():
        mine, theirs = best(results, ours, (measure,)), best(results, others, (measure,))
        if mine is None or theirs is None:
            continue
        is_behind = theirs[1] > mine[1] if about.more_is_better else theirs[1] < mine[1]
        if is_behind:
            yield Loss(measure, mine[0], mine[1], theirs[0], theirs[1])
