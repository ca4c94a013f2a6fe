"""Exceptions that a task raises to control its job, and the one that a worker raises in a task.

1. `Reject`: end the job as dead now, because a retry is pointless.
2. `RetryLater`: fail this attempt, and retry after the given delay.
3. `Snooze`: run the job again later, without a failure and without charging an attempt.
4. `Interrupted`: the worker raises it in a plain function that must stop; `Interruption` is the
   reason.

The first three can be raised alone or `from` another error, and can be copied and pickled.
"""

from __future__ import annotations

from enum import StrEnum

from windlass.core.durations import Duration, describe_ms, to_ms


class Reject(Exception):
    """Raise in a task to end its job as a dead letter now, even if attempts are left.

    The message may be any object with a text, so `raise Reject(error)` works as well.
    """

    def __init__(self, message: object = "") -> None:
        self.message = str(message)
        super().__init__(self.message)

    def __str__(self) -> str:
        return self.message or "rejected by the task"


class RetryLater(Exception):
    """Raise in a task to fail this attempt and retry after an exact delay: no jitter, no cap.

    The delay is seconds as a number, text such as "10m", or a timedelta.
    """

    def __init__(self, delay: Duration, message: object = "") -> None:
        self.delay_ms = to_ms(delay, name="the delay of RetryLater")
        self.message = str(message)
        super().__init__(delay, self.message)

    def __str__(self) -> str:
        return self.message or f"to be tried again in {describe_ms(self.delay_ms)}"


class Snooze(Exception):
    """Raise in a task to run its job again after a delay. Not a failure: no attempt is charged.

    The delay is seconds as a number, text such as "10m", or a timedelta.
    """

    def __init__(self, delay: Duration) -> None:
        self.delay_ms = to_ms(delay, name="the delay of Snooze")
        super().__init__(delay)

    def __str__(self) -> str:
        return f"put off for {describe_ms(self.delay_ms)}"


class Interrupted(BaseException):
    """Raised by the worker inside a plain function when its job times out or is cancelled, like
    `asyncio.CancelledError` in a coroutine. Not an `Exception`, so that `except Exception` in a
    task does not catch it."""


class Interruption(StrEnum):
    """Why a run is interrupted."""

    TIMED_OUT = "timed out"
    CANCELLED = "cancelled"
    LOST = "lost"  # its worker sent no heartbeat for a lease: the job was reassigned
