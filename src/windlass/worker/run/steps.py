"""Run parts of a job once: `ctx.once()` and `await ctx.aonce()`.

1. The first call of a run reads the steps that earlier attempts have completed, under the token of
   the claim. So a job that was reassigned is noticed before the function runs.
2. For a completed step, the call returns the stored value and does not run the function.
3. Otherwise the function runs, and the step is stored with its value. If the value cannot be
   stored, the step is stored without a value, and the function does not run again.
4. During an outage of the engine the call waits, because the function has taken effect. It gives up
   when the run is interrupted.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from logging import getLogger
from threading import Lock
from typing import Any, Final, TypeVar

from windlass.client.payloads import Codecs, Packing
from windlass.context import Context
from windlass.core.serialization.codec import CallCodec, check_size
from windlass.core.signals import Interruption
from windlass.engine.contract import (
    MAX_ALL_STEPS_BYTES,
    MAX_STEP_BYTES,
    MAX_STEP_NAME,
    MAX_STEPS,
    Claim,
    NewStep,
    Step,
    StepCode,
    StepVerbs,
    is_step_name,
)
from windlass.errors import (
    ClaimLost,
    DecodeError,
    EncodeError,
    EngineUnavailable,
    MissingDecoder,
    OnceRefused,
)
from windlass.interrupt_shield import shield
from windlass.worker.logs.events import LogEvent
from windlass.worker.run.transactions import RunEnding, put_off_cancellation

T = TypeVar("T")

log = getLogger("windlass.worker")

#: The wait before a repeated call of the engine, in seconds: at first, and at most.
_FIRST_PAUSE_S: Final = 0.05
_MOST_PAUSE_S: Final = 2.0
#: Stored in place of a value that cannot be stored. The bytes of a value are never empty.
_NO_VALUE: Final = b""
#: A step is refused before it runs when the job has less room for its value, in bytes.
_LEAST_ROOM: Final = 1024


class RunSteps:
    """The steps of one run. Threads and coroutines of a task may use it at the same time."""

    def __init__(
        self,
        verbs: StepVerbs,
        packing: Packing,
        codec: str,
        claim: Claim,
        context: Context,
        ending: RunEnding | None,
    ) -> None:
        self._verbs = verbs
        self._packing = packing
        self._codec = codec
        self._claim = claim
        self._context = context
        self._ending = ending
        self._known: dict[str, bytes] | None = None
        self._used: set[str] = set()
        self._lock = Lock()

    # ------------------------------------------------------------------------------- for the task

    def once(
        self,
        key: str,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> Any:
        _refuse_event_loop()
        with self._use(key):
            codecs = self._codecs_for(key, function)
            with shield():
                stored = self._find(key)
            if stored is not None:
                return self._recall(key, codecs, stored)
            value = function(*args, **kwargs)
            if inspect.isawaitable(value):
                _refuse_awaitable(key, value)
        with shield():
            return self._store(key, codecs, value)

    async def aonce(
        self,
        key: str,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> Any:
        with self._use(key):
            codecs = self._codecs_for(key, function)
            stored = await asyncio.to_thread(self._find, key)
            if stored is not None:
                return self._recall(key, codecs, stored)
            value = function(*args, **kwargs)
            if inspect.isawaitable(value):
                value = await value
        return await put_off_cancellation(asyncio.to_thread(self._store, key, codecs, value))

    # ----------------------------------------------------------------------------------- refusing

    @contextmanager
    def _use(self, key: object) -> Iterator[None]:
        """Use a key for one step of this run. The task may use the key again after the function
        failed, but not after the function has run."""
        if not isinstance(key, str) or not is_step_name(key):
            raise OnceRefused(
                f"Expected a key for ctx.once to be a text of 1 to {MAX_STEP_NAME} characters "
                f"without NUL, found {key!r:.250}. Give each step of a job a short key."
            )
        self._check_claim()
        with self._lock:
            if key in self._used:
                raise OnceRefused(
                    f"ctx.once({key!r}) was called before in this run of job {self._claim.id}. "
                    f"Give each step a key of its own, in a loop for example f'{key}:{{item.id}}'."
                )
            self._used.add(key)
        try:
            yield
        except BaseException:
            self._used.discard(key)
            raise

    def _check_claim(self) -> None:
        if self._context.interruption is Interruption.LOST:
            raise ClaimLost(self._claim.id)
        if self._ending is not None:
            self._ending.check_may_store_step()

    def _check_room(self, key: str, known: Mapping[str, bytes]) -> None:
        """Refuse a step before it runs if its completion could not be stored."""
        room = _room_in(known)
        if len(known) < MAX_STEPS and room >= _LEAST_ROOM:
            return
        raise OnceRefused(
            f"ctx.once({key!r}) was not run: job {self._claim.id} has {len(known)} completed steps "
            f"with {MAX_ALL_STEPS_BYTES - room:,} bytes, and may have at most {MAX_STEPS:,} with "
            f"{MAX_ALL_STEPS_BYTES:,} bytes. Enqueue a job for each part of the work."
        )

    # ------------------------------------------------------------------------------------ storing

    def _find(self, key: str) -> bytes | None:
        """The stored value of a step, or None for a step that was not completed."""
        known = self._known
        if known is None:
            known = self._known = self._read()
        if key not in known:
            self._check_room(key, known)
        return known.get(key)

    def _read(self) -> dict[str, bytes]:
        claim = self._claim
        steps = self._insist(lambda: self._verbs.read_steps(claim.id, claim.token))
        if steps is None:
            raise ClaimLost(claim.id)
        return {step.name: step.value for step in steps}

    def _store(self, key: str, codecs: Codecs, value: object) -> Any:
        """Store a completed step; return its value as later attempts get it."""
        try:
            packed = self._pack(key, codecs[self._codec], value)
            value = self._unpack(key, codecs, packed)
        except Exception as error:
            raise self._store_without_value(key, str(error)) from error
        if not self._put(Step(key, packed)):
            raise self._store_without_value(key, "other threads have stored as much as a job may")
        return value

    def _store_without_value(self, key: str, why: str) -> EncodeError:
        """Store a completed step whose value cannot be stored; return the error to raise."""
        told = "will not run again, but its value cannot be stored for later attempts"
        advice = " Return a value that can be stored, or None."
        if not self._put(Step(key, _NO_VALUE)):
            told, advice = "will run again in the next attempt", ""
            why = "other threads have completed as many steps as a job may have"
        return EncodeError(
            f"ctx.once({key!r}) of job {self._claim.id} has run, and {told}: {why}.{advice}",
            task=self._claim.task,
        )

    def _put(self, step: Step) -> bool:
        """Store a completed step; return False if steps of other threads have taken the room."""
        claim = self._claim
        new = NewStep(id=claim.id, token=claim.token, step=step)
        (code,) = self._insist(lambda: self._verbs.put_steps([new]))
        if code is StepCode.STALE:
            raise ClaimLost(claim.id)
        if code is StepCode.FULL:
            return False
        if self._known is not None:
            self._known[step.name] = step.value
        return True

    def _insist(self, call: Callable[[], T]) -> T:
        """Repeat a call until the engine answers, or the run is interrupted."""
        pause_s, is_logged = _FIRST_PAUSE_S, False
        while True:
            try:
                return call()
            except EngineUnavailable as error:
                if self._context.interruption is not None:
                    raise
                if not is_logged:
                    log.warning(LogEvent.STEP_WAITS, self._claim.id, error)
                is_logged = True
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, _MOST_PAUSE_S)

    # ------------------------------------------------------------------------------------- values

    def _codecs_for(self, key: str, function: Callable[..., Any]) -> Codecs:
        """The codecs of the value. Raises `AnnotationError` if no value could be stored."""
        label = f"ctx.once({key!r})"
        codecs = Codecs(_annotated(function), skip_first=False, name=label)
        try:
            codec = codecs[self._codec]
        except ValueError:  # a function of C without a signature
            return Codecs(_anything, skip_first=False, name=label)
        if codec.mark != "pickle":
            codec.signature.result.resolve()
        return codecs

    def _pack(self, key: str, codec: CallCodec, value: object) -> bytes:
        claim = self._claim
        encoded = codec.encode_result(value)
        packed = self._packing.pack_step(
            codec.mark, encoded, claim.task, claim.id, key, claim.payload
        )
        most = min(MAX_STEP_BYTES, _room_in(self._known or {}))
        check_size(packed, most, f"The value of ctx.once({key!r})")
        return packed

    def _recall(self, key: str, codecs: Codecs, stored: bytes) -> Any:
        """The value of a step that an earlier attempt has completed, perhaps in other code."""
        try:
            return self._unpack(key, codecs, stored)
        except MissingDecoder:
            raise
        except DecodeError as error:
            raise DecodeError(
                f"ctx.once({key!r}) of job {self._claim.id} ran in an earlier attempt and does not "
                f"run again, and its stored value does not fit its function any more: {error}. Let "
                "the annotation of the function accept the older value.",
                task=self._claim.task,
            ) from error

    def _unpack(self, key: str, codecs: Codecs, stored: bytes) -> Any:
        claim = self._claim
        if stored == _NO_VALUE:
            raise EncodeError(
                f"ctx.once({key!r}) of job {claim.id} ran in an earlier attempt, and its value "
                "could not be stored. The function does not run again: finish the work of this job "
                "by hand, and discard the job.",
                task=claim.task,
            )
        mark, encoded = self._packing.unpack_step(stored, claim.task, claim.id, key)
        return codecs[mark].decode_result(encoded)


def _room_in(known: Mapping[str, bytes]) -> int:
    """The bytes that further values may have."""
    return MAX_ALL_STEPS_BYTES - sum(map(len, tuple(known.values())))


def _annotated(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function whose annotations a callable has: that of a partial, or of an object. A class
    returns its objects, whatever its `__init__` returns."""
    while isinstance(function, partial):
        function = function.func
    if isinstance(function, type):
        return _returning(function)
    call = getattr(type(function), "__call__", None)  # noqa: B004  # not whether it is callable
    return call if call is not None and hasattr(call, "__globals__") else function


def _anything(*args: Any, **kwargs: Any) -> Any:
    """Stands for a function without a signature."""


def _returning(kind: type) -> Callable[..., Any]:
    def make(*args: Any, **kwargs: Any) -> Any:
        """Stands for a class that is called."""

    make.__annotations__["return"] = kind
    return make


def _refuse_event_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise OnceRefused(
        "ctx.once() would block the event loop. In a coroutine, write `await ctx.aonce(...)`."
    )


def _refuse_awaitable(key: str, value: Any) -> None:
    """Refuse a coroutine, which has not begun to run."""
    if inspect.iscoroutine(value):
        value.close()
    raise OnceRefused(
        f"ctx.once({key!r}) was given a function that is a coroutine. In a coroutine, write `await "
        "ctx.aonce(...)`; in a plain function, pass a plain function."
    )
