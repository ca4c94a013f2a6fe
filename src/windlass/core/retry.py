"""Retry policies: when a failed job is retried, and when it is given up.

1. `Retry` is the policy: attempts, delays, and the errors that are retried. It is an immutable
   value, checked when it is made.
2. `Retry.decide` returns the decision for one failed attempt: `RetryIn` or `GiveUp`.
3. `Retry.to_data` and `Retry.from_data` store a policy with a job as plain data.

The random generator is an argument, so the same input gives the same decision.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeGuard, final, overload

import msgspec
from msgspec import UNSET, UnsetType

from windlass.core import foreign_words
from windlass.core.durations import MAX_DURATION_MS, Duration, describe_ms, to_ms
from windlass.core.quantities import count
from windlass.core.signals import Reject, RetryLater
from windlass.core.states import Reason
from windlass.core.value_type import Value

if TYPE_CHECKING:
    from random import Random

#: A fraction of the delay from 0 to 1, or a duration as text with a unit or as a timedelta.
Jitter = float | str | timedelta
ErrorTypes = type[BaseException] | Sequence[type[BaseException]]
#: A predicate for errors that `retry_on` and `reject_on` do not decide. Its argument is `Any`,
#: because it may expect only the types in `retry_on`.
Predicate = Callable[[Any], bool]

#: The largest factor. With a larger one, delays reach any cap at the second attempt.
MAX_FACTOR: Final = 1_000

_DEFAULT_ATTEMPTS: Final = 5
_DEFAULT_BASE: Final = "10s"
_DEFAULT_FACTOR: Final = 2
_DEFAULT_CAP: Final = "10m"
_DEFAULT_JITTER: Final = 0.25


class RetryIn(msgspec.Struct, frozen=True):
    """The decision to retry after a delay."""

    delay_ms: int


class GiveUp(msgspec.Struct, frozen=True):
    """The decision not to retry, with the reason."""

    reason: Reason


Decision = RetryIn | GiveUp


class Growing(msgspec.Struct, frozen=True):
    """Delays that grow by a factor up to a cap."""

    base_ms: int
    factor: float
    cap_ms: int

    def delay_ms(self, attempt: int) -> int:
        try:
            grown = self.base_ms * self.factor ** (attempt - 1)
        except OverflowError:
            grown = math.inf if self.base_ms else 0  # a base of 0 stays 0 with any factor
        return round(min(grown, self.cap_ms))


class Listed(msgspec.Struct, frozen=True):
    """An explicit list of delays. The first delay follows the first failure."""

    delays_ms: tuple[int, ...]

    def delay_ms(self, attempt: int) -> int:
        return self.delays_ms[attempt - 1]


@final
class Retry(Value):
    """A retry policy: attempts, delays, and the errors that are retried.

    `max_attempts` includes the first try. After failure n the job waits
    `min(base * factor ** (n - 1), cap)`, or `delays[n - 1]` of an explicit list, which sets
    `max_attempts` by its length.

    `jitter` spreads jobs that failed together. A number from 0 to 1 is a fraction: 0.25 spreads
    evenly from three to five quarters of the delay. Text or a timedelta adds evenly from zero up to
    that duration. The default is 0.25, and 0 for an explicit list.

    The first matching rule decides. `Reject` is given up. `RetryLater` is a failed attempt with its
    own delay. `reject_on` types are given up. With `retry_on`, all other types are given up. An
    error for which `retry_if` returns False is given up. A `retry_if` that raises counts as True,
    because a bug in it must not cost a job, and a note on the error reports it. All other errors
    are retried while attempts are left.

    `Retry` is not an exception: a task that asks for another try raises `RetryLater`.
    """

    max_attempts: int
    backoff: Growing | Listed
    jitter_share: float
    jitter_ms: int
    retry_on: tuple[type[BaseException], ...]
    reject_on: tuple[type[BaseException], ...]
    retry_if: Predicate | None

    @overload
    def __init__(
        self,
        max_attempts: int = 5,
        *,
        base: Duration = "10s",
        factor: float = 2,
        cap: Duration = "10m",
        jitter: Jitter = 0.25,
        delays: None = None,
        retry_on: ErrorTypes = (),
        reject_on: ErrorTypes = (),
        retry_if: Predicate | None = None,
    ) -> None: ...

    @overload
    def __init__(
        self,
        max_attempts: int = ...,
        *,
        delays: Sequence[Duration],
        jitter: Jitter = 0,
        retry_on: ErrorTypes = (),
        reject_on: ErrorTypes = (),
        retry_if: Predicate | None = None,
    ) -> None: ...

    @foreign_words.refuse_foreign_arguments("Retry", foreign_words.OF_RETRY)
    def __init__(
        self,
        max_attempts: int | UnsetType = UNSET,
        *,
        base: Duration | UnsetType = UNSET,
        factor: float | UnsetType = UNSET,
        cap: Duration | UnsetType = UNSET,
        jitter: Jitter | UnsetType = UNSET,
        delays: Sequence[Duration] | None = None,
        retry_on: ErrorTypes = (),
        reject_on: ErrorTypes = (),
        retry_if: Predicate | None = None,
    ) -> None:
        backoff: Growing | Listed
        if delays is None:
            backoff = _growing(base, factor, cap)
            attempts = _DEFAULT_ATTEMPTS if max_attempts is UNSET else _attempts(max_attempts)
            share, spread_ms = _jitter(_DEFAULT_JITTER if jitter is UNSET else jitter)
        else:
            backoff = _listed(delays, base=base, factor=factor, cap=cap)
            attempts = _listed_attempts(max_attempts, len(backoff.delays_ms))
            share, spread_ms = _jitter(0 if jitter is UNSET else jitter)
        self._set(max_attempts=attempts, backoff=backoff, jitter_share=share, jitter_ms=spread_ms)
        self._set(
            retry_on=_error_types(retry_on, "retry_on"),
            reject_on=_error_types(reject_on, "reject_on"),
            retry_if=_predicate(retry_if),
        )
        _check_overlap(self.retry_on, self.reject_on)

    def decide(
        self, error: BaseException, attempt: int, random: Random, *, ask: bool = True
    ) -> Decision:
        """Decide on a failed attempt. Attempts start at 1.

        Call this method before `error` becomes text, because it may add a note to the error. Do not
        pass a `Snooze`, which is not a failure. Without `ask` no predicate is called.
        """
        if attempt < 1:
            raise ValueError(f"attempt must be 1 or more, found {attempt}")
        if self._is_pointless(error, ask):
            return GiveUp(Reason.REJECTED)
        if attempt >= self.max_attempts:
            return GiveUp(Reason.EXHAUSTED)
        if isinstance(error, RetryLater):
            return RetryIn(error.delay_ms)
        return RetryIn(self._spread_ms(self.backoff.delay_ms(attempt), random))

    def _is_pointless(self, error: BaseException, ask: bool) -> bool:
        if isinstance(error, Reject):
            return True
        if isinstance(error, RetryLater):
            return False
        if isinstance(error, self.reject_on):
            return True
        if self.retry_on and not isinstance(error, self.retry_on):
            return True
        return ask and self.retry_if is not None and not _is_worth_it(self.retry_if, error)

    def _spread_ms(self, delay_ms: int, random: Random) -> int:
        if self.jitter_ms:
            return delay_ms + random.randint(0, self.jitter_ms)
        # Rounded inwards, so that whole milliseconds stay in the documented range.
        lowest = math.ceil(delay_ms * (1 - self.jitter_share))
        highest = math.floor(delay_ms * (1 + self.jitter_share))
        return random.randint(lowest, highest)

    def paced_by(self, numbers: Retry) -> Retry:
        """This policy with the attempts and delays of `numbers`: for a job with its own policy,
        when its task decides which errors are retried."""
        verdicts = {name: getattr(self, name) for name in ("retry_on", "reject_on", "retry_if")}
        paced = object.__new__(Retry)
        paced._set(**vars(numbers) | verdicts)
        return paced

    def to_data(self) -> dict[str, object]:
        """Convert to plain data for `from_data`. Raises `TypeError` if it selects errors."""
        unportable = [name for name in ("retry_on", "reject_on", "retry_if") if getattr(self, name)]
        if unportable:
            raise TypeError(
                "a retry policy that is stored with a job can have only numbers, found "
                f"{' and '.join(unportable)}: give this policy to the task instead"
            )
        spread = {"jitter_ms": self.jitter_ms} if self.jitter_ms else {"jitter": self.jitter_share}
        backoff = msgspec.json.decode(msgspec.json.encode(self.backoff))
        return {"max_attempts": self.max_attempts, **backoff, **spread}

    @staticmethod
    def from_data(data: object) -> Retry:
        """Read the data that `to_data` wrote. Raises `ValueError` for other data."""
        try:
            return msgspec.convert(data, _StoredRetry).policy()
        except ValueError as error:
            raise ValueError(f"this is not a stored retry policy: {error}") from None

    def __repr__(self) -> str:
        return f"Retry({', '.join(self._described())})"

    def _described(self) -> Iterator[str]:
        """The arguments of this policy as source code, without defaults."""
        match self.backoff:
            case Listed(delays_ms=delays_ms):
                yield f"delays={[describe_ms(delay_ms) for delay_ms in delays_ms]!r}"
            case Growing(base_ms=base_ms, factor=factor, cap_ms=cap_ms):
                yield f"max_attempts={self.max_attempts}"
                yield f"base={describe_ms(base_ms)!r}"
                yield f"factor={_number(factor)}"
                yield f"cap={describe_ms(cap_ms)!r}"
        jitter = repr(describe_ms(self.jitter_ms)) if self.jitter_ms else _number(self.jitter_share)
        yield f"jitter={jitter}"
        for name, types in (("retry_on", self.retry_on), ("reject_on", self.reject_on)):
            if types:
                yield f"{name}=[{_names(types)}]"
        if self.retry_if is not None:
            yield f"retry_if={getattr(self.retry_if, '__qualname__', None) or repr(self.retry_if)}"


# --------------------------------------------------------------------------------- reading options


def _attempts(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    expected = "a whole number from 1, which counts the first try (1 never tries again)"
    raise _wrong("max_attempts", expected, value, int, float)


def _listed_attempts(max_attempts: object, delays: int) -> int:
    if max_attempts is not UNSET and _attempts(max_attempts) != delays + 1:
        raise ValueError(
            f"max_attempts={max_attempts} and delays disagree: with {count(delays, 'delay')} there "
            f"are {count(delays + 1, 'attempt')}. Remove max_attempts, or give "
            "max_attempts - 1 delays."
        )
    return delays + 1


def _growing(
    base: Duration | UnsetType, factor: float | UnsetType, cap: Duration | UnsetType
) -> Growing:
    base_ms = to_ms(_DEFAULT_BASE if base is UNSET else base, name="base")
    cap_ms = to_ms(_DEFAULT_CAP if cap is UNSET else cap, name="cap")
    if cap_ms < base_ms:
        found = f"{describe_ms(cap_ms)}, the default" if cap is UNSET else describe_ms(cap_ms)
        raise ValueError(
            f"cap must be at least base, {describe_ms(base_ms)}, found {found}: no delay is longer "
            "than the cap. Give a longer cap or a shorter base."
        )
    return Growing(base_ms, _factor(_DEFAULT_FACTOR if factor is UNSET else factor), cap_ms)


def _factor(value: object) -> float:
    if _is_number(value) and 1 <= value <= MAX_FACTOR:
        return float(value)
    expected = f"a number from 1 (the delay stays the same) to {MAX_FACTOR}"
    raise _wrong("factor", expected, value, int, float)


def _listed(delays: object, **growth: Duration | UnsetType) -> Listed:
    if isinstance(delays, str) or not isinstance(delays, Sequence):
        raise _wrong("delays", 'a list of durations such as [0, "1h", "6h"]', delays)
    given = [name for name, value in growth.items() if value is not UNSET]
    if given:
        raise ValueError(
            f"delays excludes base, factor and cap, found {' and '.join(given)} too: give either a "
            "list of delays or base, factor and cap"
        )
    return Listed(tuple(to_ms(delay, name=f"delays[{n}]") for n, delay in enumerate(delays)))


def _jitter(value: object) -> tuple[float, int]:
    """Read a jitter. Returns a fraction of the delay and milliseconds; one of them is 0."""
    # Text without a unit is refused: "0.25" could be a fraction or seconds.
    if isinstance(value, timedelta) or (isinstance(value, str) and value.strip()[-1:].isalpha()):
        return 0.0, to_ms(value, name="jitter")
    if _is_number(value) and 0 <= value <= 1:
        return float(value), 0
    expected = 'a fraction of the delay from 0 to 1, text with a unit such as "30s", or a timedelta'
    raise _wrong("jitter", expected, value, int, float, str)


def _error_types(value: object, name: str) -> tuple[type[BaseException], ...]:
    types = (value,) if isinstance(value, type) else value
    if isinstance(types, Sequence) and all(map(_is_error_type, types)):
        return tuple(types)
    raise _wrong(name, "an exception class or a list of them", value)


def _is_error_type(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)


def _check_overlap(
    retry_on: tuple[type[BaseException], ...], reject_on: tuple[type[BaseException], ...]
) -> None:
    covered = tuple(error_type for error_type in retry_on if issubclass(error_type, reject_on))
    if covered:
        raise ValueError(
            f"retry_on and reject_on disagree about {_names(covered)}: "
            f"reject_on=[{_names(reject_on)}] is checked first and covers it. "
            "Remove it from one of the two, or narrow reject_on."
        )


def _predicate(value: object) -> Predicate | None:
    if value is None:
        return None
    if callable(value) and not inspect.iscoroutinefunction(value):
        return value
    raise _wrong("retry_if", "a plain function of the error that returns True or False", value)


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _wrong(name: str, expected: str, found: object, *kinds: type) -> TypeError | ValueError:
    """The error for a wrong option: `ValueError` if its type is in `kinds`, else `TypeError`."""
    kind = ValueError if isinstance(found, kinds) else TypeError
    return kind(f"{name} must be {expected}, found {found!r}")


# ----------------------------------------------------------------------------- deciding and storing


def _is_worth_it(predicate: Predicate, error: BaseException) -> bool:
    try:
        return bool(predicate(error))
    except Exception as slip:  # noqa: BLE001  # a slip in a predicate must not cost the job
        import traceback  # needed only for a broken predicate

        summary = traceback.format_exception_only(slip)[-1].strip()
        error.add_note(f"retry_if raised for this error ({summary}): the error is retried")
        return True


_Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=MAX_DURATION_MS)]


class _StoredRetry(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A stored policy: either the three parts of `Growing`, or `delays_ms`."""

    max_attempts: int
    base_ms: _Milliseconds | None = None
    factor: float | None = None
    cap_ms: _Milliseconds | None = None
    delays_ms: tuple[_Milliseconds, ...] | None = None
    jitter: float = 0.0
    jitter_ms: _Milliseconds = 0

    def policy(self) -> Retry:
        if self.jitter and self.jitter_ms:
            raise ValueError("jitter and jitter_ms exclude each other")
        jitter = timedelta(milliseconds=self.jitter_ms) if self.jitter_ms else self.jitter
        match self.base_ms, self.factor, self.cap_ms, self.delays_ms:
            case int(base_ms), float(factor), int(cap_ms), None:
                base, cap = timedelta(milliseconds=base_ms), timedelta(milliseconds=cap_ms)
                return Retry(self.max_attempts, base=base, factor=factor, cap=cap, jitter=jitter)
            case None, None, None, tuple(delays_ms):
                delays = [timedelta(milliseconds=delay_ms) for delay_ms in delays_ms]
                return Retry(self.max_attempts, delays=delays, jitter=jitter)
            case _:
                raise ValueError("expected base_ms, factor and cap_ms together, or delays_ms alone")


#: Built at import: msgspec crashes when two threads inspect a class for the first time at once.
msgspec.json.Decoder(_StoredRetry)


# --------------------------------------------------------------------------------------- describing


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)


def _names(types: tuple[type[BaseException], ...]) -> str:
    return ", ".join(error_type.__qualname__ for error_type in types)
