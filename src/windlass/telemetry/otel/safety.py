"""Keep errors of tracing away from jobs and callers.

Exporters, samplers and propagators are code of the user or of third parties. Whatever they raise,
an enqueue stores its job and a run keeps its outcome: `safely` logs the error and continues.
"""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Final

log: Final = logging.getLogger("windlass.telemetry")

#: The steps whose errors were logged.
_logged: Final[set[str]] = set()


class Safely:
    """Context manager that logs an error of one step of tracing, once in each process, and
    suppresses it."""

    __slots__ = ("_step",)

    def __init__(self, step: str) -> None:
        self._step = step

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        if self._step not in _logged:
            _logged.add(self._step)
            log.warning(
                "tracing failed to %s, continuing without (logged once): %r",
                *(self._step, error),
                exc_info=error,
            )
        return True


#: The steps of tracing.
extracting: Final = Safely("read the trace context of a job")
injecting: Final = Safely("write the trace context of a job")
starting: Final = Safely("start a span")
ending: Final = Safely("end a span")
linking: Final = Safely("find the attempt before")
measuring: Final = Safely("record a duration")
