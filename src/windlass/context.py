"""What a running task knows about its job.

A worker sets `running` around every job; `current_context` reads it anywhere below the task, in
coroutines and in `asyncio.to_thread` too. A task declared with `takes_context=True` is handed the
same object as its first argument.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, Final

import msgspec

from windlass.core.signals import Interruption
from windlass.errors import NoContext

#: A longer progress message is cut to this many characters.
MAX_PROGRESS_MESSAGE: Final = 1_000

_NO_HEADERS: Final[Mapping[str, str]] = {}


class Progress(msgspec.Struct, frozen=True):
    """How far a job is: a share from 0 to 1, and a word about it."""

    value: float
    message: str = ""


class Context:
    """The job that is running. `attempt` is 1 for the first try; `headers` are what its caller sent
    along; `state` is what the lifespan of the app gave to this process, or None."""

    __slots__ = (
        "_sink",
        "attempt",
        "headers",
        "interruption",
        "job_id",
        "max_attempts",
        "queue",
        "state",
        "task",
    )

    def __init__(
        self,
        *,
        job_id: str,
        task: str,
        queue: str,
        attempt: int,
        max_attempts: int,
        sink: Callable[[bytes], None],
        state: Any = None,
        headers: Mapping[str, str] = _NO_HEADERS,
    ) -> None:
        self.job_id = job_id
        self.task = task
        self.queue = queue
        self.attempt = attempt
        self.max_attempts = max_attempts
        self.state = state
        self.headers = headers
        self.interruption: Interruption | None = None  # set by the worker, and by nobody else
        self._sink = sink

    @property
    def cancelled(self) -> bool:
        """Whether to stop: the job was cancelled, its time is over, or another worker has it.

        Always False in a plain call."""
        return self.interruption is not None

    def progress(self, value: float, message: str = "") -> None:
        """Tell how far the job is, from 0 to 1. Seen in `job.info().progress` a moment later."""
        self._sink(msgspec.json.encode(Progress(_share(value), message[:MAX_PROGRESS_MESSAGE])))

    def __repr__(self) -> str:
        return (
            f"<Context of job {self.job_id}, task {self.task}, "
            f"attempt {self.attempt} of {self.max_attempts}>"
        )


#: The context of the job that runs here; set by a worker, unset elsewhere.
running: ContextVar[Context] = ContextVar("running")


def current_context() -> Context:
    """The context of the job that is running here; raises `NoContext` outside of one."""
    try:
        return running.get()
    except LookupError:
        raise NoContext from None


def _share(value: float) -> float:
    share = float(value)
    if math.isnan(share) or not 0.0 <= share <= 1.0:
        raise ValueError(f"progress is a share from 0 to 1, found {value!r}: divide by the total")
    return share
