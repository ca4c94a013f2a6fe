"""An app whose worker loses the replies of its first claims, after their effect.

The engines are wrapped in the worker's child: the claim is committed, and then the child
is told that the engine did not answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from proofs.lost_claim_reply import SWALLOWED
from tests.worker.apps.scripted import app
from windlass.engine.contract import Turn
from windlass.engine.postgres.engine import PostgresEngine
from windlass.engine.redis.engine import RedisEngine
from windlass.engine.sqlite.engine import SQLiteEngine
from windlass.errors import EngineUnavailable

_left = SWALLOWED


def _swallowing(turn: Callable[..., Turn]) -> Callable[..., Turn]:
    def swallow(*args: Any, **kwargs: Any) -> Turn:
        global _left  # noqa: PLW0603  # the fault is a property of this process
        answer = turn(*args, **kwargs)
        if answer.batch.claims and _left:
            _left -= 1
            raise EngineUnavailable("the reply was swallowed on purpose")
        return answer

    return swallow


for _engine in (SQLiteEngine, RedisEngine, PostgresEngine):
    # Replacing the method is the fault that this proof is about.
    _engine.turn = _swallowing(_engine.turn)  # type: ignore[method-assign]

__all__ = ["app"]
