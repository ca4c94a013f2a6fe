"""An app whose worker loses the replies of its first claims, after their effect.

The engine is wrapped where the worker's child opens it: the claim is committed, and then the child
is told that the engine did not answer.
"""

from __future__ import annotations

from collections.abc import Sequence

from proofs.lost_claim_reply import SWALLOWED
from tests.worker.apps.scripted import app
from windlass.engine.contract import Outcome, Plan, Turn
from windlass.engine.sqlite.engine import SQLiteEngine
from windlass.errors import EngineUnavailable

_turn = SQLiteEngine.turn
_left = SWALLOWED


def _swallowing_turn(
    engine: SQLiteEngine,
    session: str,
    outcomes: Sequence[Outcome],
    nonce: str,
    plan: Plan,
    limit: int,
    *,
    is_last: bool = False,
) -> Turn:
    global _left  # noqa: PLW0603  # the fault is a property of this process
    turn = _turn(engine, session, outcomes, nonce, plan, limit, is_last=is_last)
    if turn.batch.claims and _left:
        _left -= 1
        raise EngineUnavailable("the reply was swallowed on purpose")
    return turn


# Replacing the method is the fault that this proof is about.
SQLiteEngine.turn = _swallowing_turn  # type: ignore[method-assign, assignment]

__all__ = ["app"]
