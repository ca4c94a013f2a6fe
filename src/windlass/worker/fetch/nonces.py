"""The nonces under which a child holds claims, or has asked for some.

They stand in shared memory from before the claim until the last of its jobs is settled. The
supervisor tells them to the engine with every third beat, and the engine gives back claims under
any other nonce up to the newest: those of a reply that never arrived.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

from windlass.core.ids import new_nonce
from windlass.engine.contract import Outcome, Progressed
from windlass.worker.ipc.shared_memory import SlotTable


class Nonces:
    """Used by the fetcher alone. A job's token is the nonce of its claim."""

    def __init__(self, table: SlotTable) -> None:
        self._records = table.nonces
        self._newest = table.newest_nonce
        self._numbers = count(1)
        self._free = list(range(self._records.count - 1, -1, -1))
        self._places: dict[str, int] = {}
        self._jobs: dict[str, int] = {}
        self._kept: set[str] = set()

    def announce(self) -> str:
        """A fresh nonce for a claim about to be sent: from then on the engine may hold jobs under
        it. It is known before it is the newest, so that it is never taken for an unknown one."""
        nonce = new_nonce(next(self._numbers))
        place = self._free.pop()
        self._records.write(place, nonce)
        self._newest.write(0, nonce)
        self._places[nonce] = place
        self._jobs[nonce] = 0
        return nonce

    def begin(self, nonce: str, jobs: int) -> None:
        """The reply to an announced claim."""
        if jobs:
            self._jobs[nonce] = jobs
        else:
            self.forget(nonce)

    def end(self, outcomes: Iterable[Outcome]) -> None:
        """The engine has answered to these."""
        for outcome in outcomes:
            if not isinstance(outcome, Progressed):
                self.drop(outcome.token)

    def drop(self, nonce: str) -> None:
        """One job less is held under this nonce."""
        left = self._jobs.get(nonce, 0) - 1
        if left > 0:
            self._jobs[nonce] = left
        else:
            self.forget(nonce)

    def keep(self, nonce: str) -> None:
        """One job less is held under this nonce by this child, while the engine holds it until the
        process is gone: the nonce stays known, and the engine does not give the job back."""
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
        """How many more there can be at a time."""
        return len(self._free)

    def are_held(self, except_for: str = "") -> bool:
        """Whether anything is, or may be, held under a nonce other than this one."""
        return len(self._places) > (except_for in self._places)
