"""The transaction in which a job ends: `with ctx.transaction() as connection:`.

1. `JobTransaction` is the block.
2. A context gets its blocks from a `TransactionSource`: that of its run in a worker
   (`windlass.worker.run.transactions`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

B = TypeVar("B")
A = TypeVar("A")


class JobTransaction(ABC, Generic[B, A]):
    """A block in a task, `with` or `async with`. Its value is the connection.

    The end of the block commits the writes on the connection together with the success of the job.
    An error rolls both back. `result` is the result of the job: set it inside the block."""

    def __init__(self) -> None:
        self.result: Any = None

    @abstractmethod
    def __enter__(self) -> B: ...

    @abstractmethod
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    @abstractmethod
    async def __aenter__(self) -> A: ...

    @abstractmethod
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


class TransactionSource(Protocol):
    """Makes the transactions of one run."""

    def begin(self, connection: object) -> JobTransaction[Any, Any]:
        """A block on a connection of the task, or of the worker if it is None."""
