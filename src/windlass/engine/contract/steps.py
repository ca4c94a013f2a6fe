"""The engine contract for steps: completed parts of a job, which no later attempt repeats.

A step belongs to its job and is removed with the record of the job. Only the holder of the job
stores and reads steps: a call with a stale token changes nothing, and its reply says STALE.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, Protocol

import msgspec

from windlass.errors import EngineError

#: A job has at most this many steps.
MAX_STEPS: Final = 1_000
#: The name of a step has at most this many characters.
MAX_STEP_NAME: Final = 200
#: The value of a step has at most this many bytes.
MAX_STEP_BYTES: Final = 256 * 1024
#: The values of all steps of a job have at most this many bytes.
MAX_ALL_STEPS_BYTES: Final = 4 * 1024 * 1024


class Step(msgspec.Struct, frozen=True):
    """A completed part of a job. Engines do not decode `value`. `name` is a text of 1 to
    `MAX_STEP_NAME` characters, without NUL."""

    name: str
    value: bytes


class NewStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step that the holder of a job has just completed."""

    id: str  # of the job
    token: str
    step: Step

    @property
    def size(self) -> int:
        """The number of bytes that travel with this step."""
        return len(self.step.value)


class StepCode(StrEnum):
    """The result of `put_steps` for one step."""

    STORED = "stored"
    KNOWN = "known"  # the job has a step with this name, which was not changed
    FULL = "full"  # the job has too many steps, or too many bytes in them; nothing was stored
    STALE = "stale"  # the token is not current; nothing was stored


def is_step_name(name: str) -> bool:
    """Return whether a step can have this name in every engine."""
    if not 0 < len(name) <= MAX_STEP_NAME or "\0" in name:
        return False
    try:
        name.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True


def check_steps(steps: Sequence[Step]) -> None:
    """Refuse steps that some engine cannot store. Every engine calls this function."""
    for step in steps:
        if not is_step_name(step.name):
            raise EngineError(
                f"Expected the name of a step to have 1 to {MAX_STEP_NAME} characters without NUL, "
                f"found {step.name[: MAX_STEP_NAME + 1]!r}. Choose another name."
            )
        if len(step.value) > MAX_STEP_BYTES:
            raise EngineError(
                f"The value of step {step.name} has {len(step.value)} bytes, and may have at most "
                f"{MAX_STEP_BYTES}. Store the data elsewhere, and a reference to it in the step."
            )


class StepVerbs(Protocol):
    """Store and read steps of jobs that run."""

    def put_steps(self, steps: Sequence[NewStep]) -> list[StepCode]:
        """Store steps in turn, each only if its token is current. The first step with a name
        counts: a repeat after a lost reply returns KNOWN. Steps that `check_steps` refuses raise
        `EngineError`, and nothing is stored.

        A retry, a release, a loss and a revival keep the steps of a job. A put that replaces the
        call of a unique job removes them, because they belong to the old call."""

    def read_steps(self, id: str, token: str) -> tuple[Step, ...] | None:
        """Read the steps of a job, sorted by the bytes of their names; None if the token is not
        current."""
