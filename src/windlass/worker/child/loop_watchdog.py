"""What blocks the event loop of a child: which job, and where in its code.

1. At each look the loop is asked for a sign, which it gives behind all that it has to do before.
2. If there is none at the next look, the step that the loop is in is looked at twice. A loop that
   has only very much to do is in another one by then, and nobody is to blame.
3. The job is found by the context variables of the step, so that a coroutine which a job has
   started beside its own is known too. It is told once; then not before the loop has given a sign
   again.

A step that keeps the interpreter to itself cannot be seen from inside: the supervisor tells of it.
"""

from __future__ import annotations

import asyncio
import sys
import traceback
from contextlib import suppress
from contextvars import Context as Variables
from logging import getLogger
from threading import get_ident
from time import monotonic, sleep
from types import FrameType
from typing import NamedTuple

from windlass.context import running

log = getLogger("windlass.worker")

#: Between the two looks at a step, in seconds.
CONFIRM_S = 0.2

#: The function in which every step of a loop runs.
_STEP = asyncio.Handle._run.__code__


class Step(NamedTuple):
    """What the loop is in."""

    frame: FrameType  # of asyncio
    inner: FrameType  # where it is now


class LoopWatchdog:
    """Made on the loop that is to be watched; `look` is called by another thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = get_ident()
        self._asked_at = monotonic()
        self._is_answered = True
        self._is_reported = False

    def look(self, *, is_punctual: bool) -> None:
        if self._is_answered:
            self._is_reported = False
            self._ask()
        elif is_punctual and not self._is_reported:
            self._is_reported = self._tell_block()

    def _ask(self) -> None:
        self._is_answered = False
        self._asked_at = monotonic()
        with suppress(RuntimeError):  # the loop is closed, and the process ends
            self._loop.call_soon_threadsafe(self._answer)

    def _answer(self) -> None:
        self._is_answered = True

    def _tell_block(self) -> bool:
        """Whether something was told of."""
        before = self._step()
        if before is None:
            return False
        sleep(CONFIRM_S)
        step = self._step()
        if step is None or step.frame is not before.frame:
            return False
        log.warning(
            "%s blocks the event loop, for %g s already: %s",
            _name_job(step),
            round(monotonic() - self._asked_at, 1),
            _stack(step),
        )
        return True

    def _step(self) -> Step | None:
        inner = sys._current_frames().get(self._thread)
        frame = inner
        while frame is not None and frame.f_code is not _STEP:
            frame = frame.f_back
        return None if frame is None or inner is None else Step(frame, inner)


def _name_job(step: Step) -> str:
    handle = step.frame.f_locals.get("self")
    variables = getattr(handle, "_context", None)
    context = variables.get(running) if isinstance(variables, Variables) else None
    return f"job {context.job_id} of task {context.task}" if context else "code of no job"


def _stack(step: Step) -> str:
    """From asyncio inwards, without values: those may be arguments."""
    inside = []
    for frame, line in traceback.walk_stack(step.inner):
        if frame is step.frame:
            break
        inside.append((frame, line))
    lines = traceback.StackSummary.extract(reversed(inside)).format()
    return "\n" + "".join(lines).rstrip()
