"""The watchdog of the event loop: which job blocks the loop, and where in its code.

1. Each look schedules a callback on the loop.
2. If the callback has not run at the next look, the watchdog inspects the current step of the loop
   twice. A loop that is only busy is in another step by then, and no job is to blame.
3. The context variables of the step identify the job, also for a coroutine that the job has
   started. The block is logged once, until the loop has run a callback again.

A step that holds the GIL cannot be seen from inside the process: the supervisor reports it.
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
from windlass.worker.logs.events import LogEvent

log = getLogger("windlass.worker")

#: The time between the two inspections of a step, in seconds.
CONFIRM_S = 0.2

#: The function in which every step of a loop runs.
_STEP = asyncio.Handle._run.__code__


class LoopStep(NamedTuple):
    """The current step of the loop."""

    frame: FrameType  # of `Handle._run`
    inner: FrameType  # the innermost one


class LoopWatchdog:
    """Created on the loop that it watches; another thread calls `look`."""

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
            self._is_reported = self._log_block()

    def _ask(self) -> None:
        self._is_answered = False
        self._asked_at = monotonic()
        with suppress(RuntimeError):  # the loop is closed, and the process ends
            self._loop.call_soon_threadsafe(self._answer)

    def _answer(self) -> None:
        self._is_answered = True

    def _log_block(self) -> bool:
        """Log the job that blocks the loop. Return whether there was one."""
        before = self._step()
        if before is None:
            return False
        sleep(CONFIRM_S)
        step = self._step()
        if step is None or step.frame is not before.frame:
            return False
        log.warning(
            LogEvent.LOOP_BLOCKED,
            _name_job(step),
            round(monotonic() - self._asked_at, 1),
            _stack(step),
        )
        return True

    def _step(self) -> LoopStep | None:
        inner = sys._current_frames().get(self._thread)
        frame = inner
        while frame is not None and frame.f_code is not _STEP:
            frame = frame.f_back
        return None if frame is None or inner is None else LoopStep(frame, inner)


def _name_job(step: LoopStep) -> str:
    handle = step.frame.f_locals.get("self")
    variables = getattr(handle, "_context", None)
    context = variables.get(running) if isinstance(variables, Variables) else None
    return f"job {context.job_id} of task {context.task}" if context else "code of no job"


def _stack(step: LoopStep) -> str:
    """The stack inside asyncio, without values, because those may be arguments."""
    inside = []
    for frame, line in traceback.walk_stack(step.inner):
        if frame is step.frame:
            break
        inside.append((frame, line))
    lines = traceback.StackSummary.extract(reversed(inside)).format()
    return "\n" + "".join(lines).rstrip()
