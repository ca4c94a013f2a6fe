"""What a workload gets and gives: a system with its installation and sizes, and numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from benchmarks.peers.environments import Installation
from benchmarks.peers.systems import System

Taken = dict[str, float]


class Sizes(msgspec.Struct, frozen=True):
    """How much a workload does."""

    single: int = 5_000
    bulk: int = 50_000
    concurrent: int = 10_000
    drain_s: float = 3.0
    pick_ups: int = 600
    stored: int = 20_000
    idle_s: float = 8.0
    imports: int = 5
    recovery_s: float = 90.0

    def drain(self, system: System) -> int:
        return max(500, int(system.pace * self.drain_s))


QUICK: Final = Sizes(500, 5_000, 1_000, 0.4, 60, 5_000, 2.0, 2, 15.0)


class InstalledSystem(msgspec.Struct, frozen=True):
    """A system that is measured, and where it was installed."""

    system: System
    installation: Installation
    sizes: Sizes


class PeerWorkload(msgspec.Struct, frozen=True):
    """A workload, and the systems that it applies to."""

    take: Callable[[InstalledSystem], Taken]
    applies: Callable[[System], bool] = lambda system: True
    #: In how many rounds it is taken, where the figure hardly varies.
    most_rounds: int = 1_000
    #: All systems at once: the tasks sleep.
    is_parallel: bool = False
