"""What a task raises to say what should become of its job, and what is raised in it.

1. `Reject`: repeating is pointless; the job is dead now.
2. `RetryLater`: an ordinary failed attempt that chooses its own delay.
3. `Snooze`: not a failure; the job puts itself off and no attempt is charged.
4. `Interrupted`: raised by the worker in a plain function whose time is over; `Interruption` says
   why it is.

Each of the first three can be raised as it stands or `from` the error behind it, and can be copied
and pickled.
"""

from __future__ import annotations

from enum import StrEnum

from windlass.core.durations import Duration, describe_ms, to_ms


class Reject(Exception):
    """Repeating is pointless: the job becomes a dead letter now, whatever attempts are left.

    The message may be anything that has a text, so that `raise Reject(error)` works as well.
    """

    def __init__(self, message: object = "") -> None:
        self.message = str(message)
        super().__init__(self.message)

    def __str__(self) -> str:
        return self.message or "rejected by the task"


class RetryLater(Exception):
    """An ordinary failed attempt with its own delay, kept exactly: no jitter and no cap.

    The delay is seconds as a number, text such as "10m", or a timedelta.
    """

    def __init__(self, delay: Duration, message: object = "") -> None:
        self.delay_ms = to_ms(delay, name="the delay of RetryLater")
        self.message = str(message)
        super().__init__(delay, self.message)

    def __str__(self) -> str:
        return self.message or f"to be tried again in {describe_ms(self.delay_ms)}"


class Snooze(Exception):
    """Not a failure: the job comes back after the delay, and no attempt is charged for it.

    The delay is seconds as a number, text such as "10m", or a timedelta.
    """

    def __init__(self, delay: Duration) -> None:
        self.delay_ms = to_ms(delay, name="the delay of Snooze")
        super().__init__(delay)

    def __str__(self) -> str:
        return f"put off for {describe_ms(self.delay_ms)}"


class Interrupted(BaseException):
    """Raised in the midst of a plain function whose time is over or whose job was cancelled, as
    `asyncio.CancelledError` is in a coroutine. Not an `Exception`, so that code which catches those
    does not take it for a failure of its own."""


class Interruption(StrEnum):
    """Why nobody waits for a run any more."""

    TIMED_OUT = "timed out"
    CANCELLED = "cancelled"
    LOST = "lost"  # its worker was silent for a lease: another one has the job
