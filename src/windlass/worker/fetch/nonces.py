"""The nonces of claims that a child holds or has requested.

A nonce is in shared memory from before the claim until the last job of the claim is settled. The
supervisor sends the nonces to the engine with every third heartbeat. The engine releases claims
under older nonces that are missing from this list: the child never got the reply to those claims.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import count

from windlass.core.ids import new_nonce
from windlass.engine.contract import Outcome, Progressed
from windlass.worker.ipc.shared_memory import SlotTable


class Nonces:
    """Nonces of one child. The token of a job is the nonce of its claim. Used by the fetcher
    only."""

    def __init__(self, table: SlotTable) -> None:
        self._records = table.nonces
        self._newest = table.newest_nonce
        self._numbers = count(1)
        self._free = list(range(self._records.count - 1, -1, -1))
        self._places: dict[str, int] = {}
        self._jobs: dict[str, int] = {}
        self._kept: set[str] = set()

    def announce(self) -> str:
        """Create the nonce for the next claim. Write the nonce to the records before it becomes the
        newest, so that the engine never takes it for an unknown nonce."""
        nonce = new_nonce(next(self._numbers))
        place = self._free.pop()
        self._records.write(place, nonce)
        self._newest.write(0, nonce)
        self._places[nonce] = place
        self._jobs[nonce] = 0
        return nonce

    def begin(self, nonce: str, jobs: int) -> None:
        """Note how many jobs the reply to a claim contains."""
        if jobs:
            self._jobs[nonce] = jobs
        else:
            self.forget(nonce)

    def end(self, outcomes: Iterable[Outcome]) -> None:
        """Note that the engine has settled these outcomes."""
        ended = Counter([one.token for one in outcomes if type(one) is not Progressed])
        for nonce, jobs in ended.items():
            self.drop(nonce, jobs)

    def drop(self, nonce: str, jobs: int = 1) -> None:
        """Note that jobs of this nonce are settled."""
        left = self._jobs.get(nonce, 0) - jobs
        if left > 0:
            self._jobs[nonce] = left
        else:
            self.forget(nonce)

    def keep(self, nonce: str) -> None:
        """Note that one job is settled, but leave its nonce in shared memory until this process has
        ended, so that the engine does not release the job earlier."""
        self._kept.add(nonce)
        self.drop(nonce)

    def forget(self, nonce: str) -> None:
        place = self._places.pop(nonce, None)
        if place is None:
            return
        del self._jobs[nonce]
        if nonce not in self._kept:
            self._records.clear(place)
            self._free.append(place)

    def left(self) -> int:
        """Return how many more nonces fit into shared memory."""
        return len(self._free)

    def are_held(self, except_for: str = "") -> bool:
        """Return whether the child holds, or may hold, jobs under any nonce but `except_for`."""
        return len(self._places) > (except_for in self._places)
