"""The base of all context managers of tracing: a block with its own current context.

Interrupts of the thread are delayed while code of the tracer runs, which may hold a lock. A block
ends exactly once, also if an interrupt hits its beginning or its end.
"""

from __future__ import annotations

from contextvars import Token
from types import TracebackType

from opentelemetry import context as contexts
from opentelemetry.context import Context

from windlass.interrupt_shield import shield
from windlass.telemetry.otel.safety import ending


class Scope:
    """A context manager. Subclasses begin it with `_begin`, which attaches a context, and end it
    with `_end`."""

    __slots__ = ("_is_over", "_token")

    def __init__(self) -> None:
        self._token: Token[Context] | None = None
        self._is_over = False

    def __enter__(self) -> None:
        try:
            with shield():
                self._begin()
        except BaseException as error:
            self._finish(error)  # an interrupt that was delayed: the block is not entered
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            with shield():
                self._finish(error)
        except BaseException as interrupt:
            self._finish(interrupt)  # no second interrupt comes
            raise

    def _finish(self, error: BaseException | None) -> None:
        if self._is_over:
            return
        self._is_over = True
        if self._token is not None:
            with ending:
                contexts.detach(self._token)
        self._end(error)

    def _attach(self, context: Context) -> None:
        self._token = contexts.attach(context)

    def _begin(self) -> None:
        raise NotImplementedError  # each subclass has its own

    def _end(self, error: BaseException | None) -> None:
        """End the span of a subclass that has one."""
