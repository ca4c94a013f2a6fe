"""Steps, the parts of a job that run once: `ctx.once()` and `await ctx.aonce()`.

A context passes these calls to a `StepSource`: that of its run in a worker
(`windlass.worker.run.steps`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol


class StepSource(Protocol):
    """Runs and stores the steps of one run of a job."""

    def once(
        self,
        key: str,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> Any:
        """Return the value of a step; run the function unless an earlier attempt has completed
        it."""

    async def aonce(
        self,
        key: str,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> Any:
        """The same for a step that is a coroutine."""
