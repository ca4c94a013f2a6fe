"""Exceptions that a task raises to control its job, and the one that a worker raises in a task.

1. `Reject`: a retry is pointless; the job is dead now.
2. `RetryLater`: a failed attempt that chooses its own delay.
3. `Snooze`: not a failure; the job runs again later and no attempt is charged.
4. `Interrupted`: the worker raises it in a plain function that must stop; `Interruption` is the
   reason.

The first three can be raised alone or `from` another error, and can be copied and pickled.
"""

from __future__ import annotations

from enum import StrEnum

from windlass.core.durations import Duration, describe_ms, to_ms


class Reject(Exception):
    """A retry is pointless: the job becomes a dead letter now, even if attempts are left.

    The message may be any object with a text, so `raise Reject(error)` works as well.
    """

    def __init__(self, message: object = "") -> None:
        self.message = str(message)
        super().__init__(self.message)

    def __str__(self) -> str:
        return self.message or "rejected by the task"


class RetryLater(Exception):
    """A failed attempt with its own, exact delay: no jitter and no cap.

    The delay is seconds as a number, text such as "10m", or a timedelta.
    """

    def __init__(self, delay: Duration, message: object = "") -> None:
        self.delay_ms = to_ms(delay, name="the delay of RetryLater")
        self.message = str(message)
        super().__init__(delay, self.message)

    def __str__(self) -> str:
        return self.message or f"to be tried again in {describe_ms(self.delay_ms)}"


class Snooze(Exception):
    """Not a failure: the job runs again after the delay, and no attempt is charged.

    The delay is seconds as a number, text such as "10m", or a timedelta.
    """

    def __init__(self, delay: Duration) -> None:
        self.delay_ms = to_ms(delay, name="the delay of Snooze")
        super().__init__(delay)

    def __str__(self) -> str:
        return f"put off for {describe_ms(self.delay_ms)}"


class Interrupted(BaseException):
    """Raised inside a plain function that timed out or whose job was cancelled, as
    `asyncio.CancelledError` is in a coroutine. Not an `Exception`, so that `except Exception` in a
    task does not catch it."""


class Interruption(StrEnum):
    """Why a run is interrupted."""

    TIMED_OUT = "timed out"
    CANCELLED = "cancelled"
    LOST = "lost"  # its worker sent no heartbeat for a lease: the job was reassigned
