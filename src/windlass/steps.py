"""The steps of a job, which run once: `ctx.once()` and `await ctx.aonce()`.

`StepSource` is what a context asks for them. A worker gives each run its own
(`windlass.worker.run`).
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
        """The value of a step, which an earlier attempt or this call completes."""

    async def aonce(
        self,
        key: str,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> Any:
        """The same for a step that is a coroutine."""
