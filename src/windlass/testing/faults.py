"""A wrapper that injects faults into any engine.

The contract allows three faults. The engine is unavailable, and the call has no effect. The reply
is lost, and the call takes effect without the caller's knowledge. The engine is slow. In the first
two cases the caller gets `EngineUnavailable`, and cannot distinguish them. All other calls go to
the real engine unchanged.
"""

from __future__ import annotations

import inspect
import time
from collections import deque
from collections.abc import Callable
from threading import Lock
from typing import Any, Final, NamedTuple, cast

from windlass.core.durations import Duration, to_ms
from windlass.engine.contract import Engine
from windlass.errors import EngineUnavailable

#: The verbs of the engine contract.
VERBS: Final = frozenset(
    name
    for name, member in inspect.getmembers(Engine, inspect.isfunction)
    if not name.startswith("_")
)


class _Fault(NamedTuple):
    delay_ms: int = 0
    is_refused: bool = False  # the call has no effect
    is_reply_lost: bool = False  # the call takes effect


class Faults:
    """Injects faults into the next calls of `engine`, a wrapper of the real engine.

    Each fault applies to one call, or to `times` calls. Faults of one verb apply in the order in
    which they were added. Thread-safe."""

    def __init__(self, engine: Engine) -> None:
        self._lock = Lock()
        self._faults: dict[str, deque[_Fault]] = {}
        self.engine: Engine = cast(Engine, _FaultyEngine(engine, self._take))

    def refuse(self, verb: str = "put", *, times: int = 1) -> None:
        """Make the next call of a verb raise `EngineUnavailable`, without effect."""
        self._add(verb, _Fault(is_refused=True), times)

    def lose_reply(self, verb: str = "put", *, times: int = 1) -> None:
        """Make the next call of a verb take effect, and then raise `EngineUnavailable`."""
        self._add(verb, _Fault(is_reply_lost=True), times)

    def delay(self, by: Duration, verb: str = "put", *, times: int = 1) -> None:
        """Make the next call of a verb take this much longer, by the real clock."""
        self._add(verb, _Fault(delay_ms=to_ms(by, name="by")), times)

    def clear(self) -> None:
        """Remove the pending faults."""
        with self._lock:
            self._faults.clear()

    @property
    def pending(self) -> int:
        """The number of pending faults."""
        with self._lock:
            return sum(map(len, self._faults.values()))

    def _add(self, verb: str, fault: _Fault, times: int) -> None:
        if verb not in VERBS:
            raise ValueError(
                f"Expected a verb of the engine contract, found {verb!r}: an enqueue is put, and "
                f"the others are {', '.join(sorted(VERBS - {'put'}))}."
            )
        if times < 1:
            raise ValueError(f"times must be 1 or more, found {times!r}")
        with self._lock:
            self._faults.setdefault(verb, deque()).extend([fault] * times)

    def _take(self, verb: str) -> _Fault | None:
        """Remove and return the next fault for a verb, or None."""
        if not self._faults:
            return None
        with self._lock:
            waiting = self._faults.get(verb)
            if not waiting:
                return None
            fault = waiting.popleft()
            if not waiting:
                del self._faults[verb]
            return fault


class _FaultyEngine:
    """Wrapper of an engine that applies pending faults to its verbs."""

    def __init__(self, engine: Engine, take: Callable[[str], _Fault | None]) -> None:
        self._engine = engine
        self._take = take

    @property
    def clock_offset_ms(self) -> int:
        return self._engine.clock_offset_ms

    @clock_offset_ms.setter
    def clock_offset_ms(self, offset_ms: int) -> None:
        self._engine.clock_offset_ms = offset_ms

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._engine, name)
        return self._wrap(name, value) if name in VERBS else value

    def _wrap(self, verb: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def faulty(*args: Any, **kwargs: Any) -> Any:
            fault = self._take(verb)
            if fault is None:
                return call(*args, **kwargs)
            time.sleep(fault.delay_ms / 1000)
            if fault.is_refused:
                raise self._unavailable(verb)
            answer = call(*args, **kwargs)
            if fault.is_reply_lost:
                raise self._unavailable(verb)
            return answer

        return faulty

    def _unavailable(self, verb: str) -> EngineUnavailable:
        location = self._engine.location
        return EngineUnavailable(
            f"The engine at {location} did not answer to {verb}: the test injected this fault. "
            "The caller cannot know whether the call took effect.",
            location=location,
        )
