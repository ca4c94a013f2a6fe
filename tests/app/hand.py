"""A manual worker for tests: claims one job and ends it with the outcome of the test."""

from __future__ import annotations

from itertools import count

from windlass import FailureText, Reason, Windlass
from windlass.core.ids import new_nonce, new_session
from windlass.engine.contract import (
    Buried,
    Claim,
    Outcome,
    Plan,
    Progressed,
    Retried,
    Succeeded,
    Verdict,
)
from windlass.testing.contract.world import claim_jobs


class Hand:
    """Calls the engine of an app like a worker."""

    def __init__(self, app: Windlass) -> None:
        self.app = app
        self.session = "hand.1.0000"
        self._claims = count(1)

    def take(self) -> Claim:
        (claim,) = self.find()
        return claim

    def find(self) -> tuple[Claim, ...]:
        """Claim one job, if there is one."""
        return claim_jobs(
            self.app.engine, self.session, new_nonce(next(self._claims)), Plan(), 1
        ).claims

    def succeed(self, value: object, ttl_ms: int = 60_000) -> None:
        claim = self.take()
        result = self.app.tasks[claim.task].codec.encode_result(value)
        stored = result if ttl_ms else None
        self._end(Succeeded(id=claim.id, token=claim.token, result=stored, result_ttl_ms=ttl_ms))

    def bury(self, error: BaseException) -> None:
        claim = self.take()
        text = FailureText.of(error)
        self._end(
            Buried(
                id=claim.id,
                token=claim.token,
                reason=Reason.EXHAUSTED,
                error=text.pack(),
                fingerprint=text.fingerprint,
            )
        )

    def fail(self, error: BaseException, delay_ms: int) -> None:
        claim = self.take()
        text = FailureText.of(error).pack()
        self._end(Retried(id=claim.id, token=claim.token, delay_ms=delay_ms, error=text))

    def report(self, claim: Claim, progress: bytes) -> None:
        self._end(Progressed(id=claim.id, token=claim.token, progress=progress))

    def _end(self, outcome: Outcome) -> None:
        assert self.app.engine.finish([outcome]) == [Verdict.OK]


def bury_jobs(app: Windlass, task: str, number: int) -> list[str]:
    """Enqueue and bury this many jobs of a task, in a session of their own; return their ids."""
    hand, ids = Hand(app), []
    hand.session = new_session("hand", 1)
    for at in range(number):
        ids.append(app.tasks[task].enqueue(at).id)
        hand.bury(ValueError("no"))
    app.engine.close(hand.session, (), "done")
    return ids
