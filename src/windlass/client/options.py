"""The options of a task and of a call, checked when they are given.

1. `TaskOptions` and `CallOptions` list the options of `@app.task(...)` and `using(...)`.
2. `Choices` holds the given options in the units of the engine.
3. `read_task_options` and `read_call_options` make `Choices`. No option is silently ignored: the
   error for a misplaced option names the right place, for an unknown one the nearest match.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypedDict

import msgspec

from windlass.client.connections.connection import CallerConnection
from windlass.client.connections.recognition import read_connection
from windlass.core import foreign_words
from windlass.core.durations import (
    LATEST_MS,
    LATEST_YEAR,
    Duration,
    describe_ms,
    instant,
    instant_ms,
    to_ms,
)
from windlass.core.headers import read_headers
from windlass.core.queues.labels import read_labels
from windlass.core.queues.plans import QUEUE_NAME
from windlass.core.retry import Retry

#: Priorities are whole numbers within these bounds; a higher one starts first.
LOWEST_PRIORITY: Final = -100
HIGHEST_PRIORITY: Final = 100
#: The longest idempotency key, in characters.
MAX_KEY_LENGTH: Final = 256


class TaskOptions(TypedDict, total=False):
    """The options of `@app.task(...)` in addition to `name`, `aliases`, `takes_context`, `run_in`,
    `transaction`, `schedule`, `unique`, `on_success`, `on_retry` and `on_dead`."""

    queue: str
    requires: str | Sequence[str]
    priority: int
    retry: Retry
    timeout: Duration
    expires: Duration | datetime
    result_ttl: Duration
    headers: Mapping[str, str]


class CallOptions(TaskOptions, total=False):
    """The options of `using(...)`."""

    run_after: Duration | datetime
    idempotency_key: str
    connection: object  # a connection or session of a database library


class Moment(msgspec.Struct, frozen=True):
    """Either an instant, or a delay that the engine adds to its own clock."""

    at_ms: int | None = None
    in_ms: int | None = None

    def __str__(self) -> str:
        if self.at_ms is not None:
            return instant(self.at_ms).isoformat()
        return describe_ms(self.in_ms or 0)


class Choices(msgspec.Struct, frozen=True, kw_only=True):
    """The given options; None for an option that was not given."""

    queue: str | None = None
    requires: tuple[str, ...] | None = None
    priority: int | None = None
    retry: Retry | None = None
    timeout_ms: int | None = None
    expires: Moment | None = None
    result_ttl_ms: int | None = None
    headers: Mapping[str, str] | None = None
    run_after: Moment | None = None
    idempotency_key: str | None = None
    connection: CallerConnection | None = None

    def over(self, others: Choices) -> Choices:
        """Merge two sets of options: `self` overrides `others`, and headers are joined.

        Raises `ValueError` for a job that would expire before its start."""
        given = {name: getattr(self, name) for name in self.__struct_fields__}
        chosen = {name: value for name, value in given.items() if value is not None}
        if self.headers is not None and others.headers is not None:
            chosen["headers"] = {**others.headers, **self.headers}
        if not chosen:
            return others
        both = msgspec.structs.replace(others, **chosen)
        expires, run_after = both.expires, both.run_after
        if expires and run_after and _is_over_before(run_after, expires):
            raise ValueError(
                f"expires must be later than run_after, which is {run_after}, or the job would "
                f"never run, found {expires}"
            )
        return both


NO_CHOICES: Final = Choices()


def _is_over_before(run_after: Moment, expires: Moment) -> bool:
    """Whether `expires` is before `run_after`. An instant and a delay cannot be compared: only the
    engine knows its clock."""
    if run_after.in_ms is not None and expires.in_ms is not None:
        return expires.in_ms <= run_after.in_ms
    if run_after.at_ms is not None and expires.at_ms is not None:
        return expires.at_ms <= run_after.at_ms
    return False


def read_task_options(options: Mapping[str, Any]) -> Choices:
    """Read the `TaskOptions` of `@app.task(...)`."""
    return _read(options, _FOR_BOTH, "@app.task(...)", [*_FOR_BOTH, *_TASK_ONLY])


def read_remote_options(options: Mapping[str, Any]) -> Choices:
    """Read the `TaskOptions` of `app.task_named(...)`, which are stored with each job."""
    return _storable(_read(options, _FOR_BOTH, "task_named(...)", _FOR_BOTH))


def read_call_options(options: Mapping[str, Any]) -> Choices:
    """Read the options of `using(...)`."""
    return _storable(_read(options, _FOR_CALLS, "using(...)", _FOR_CALLS))


def _storable(choices: Choices) -> Choices:
    if choices.retry is not None:
        choices.retry.to_data()  # raises if the policy cannot be stored with a job
    return choices


def _read(
    options: Mapping[str, Any], readers: Mapping[str, _Reader], place: str, known: Iterable[str]
) -> Choices:
    fields: dict[str, Any] = {}
    for name, value in options.items():
        if name not in readers:
            raise _misplaced(name, place, known)
        field = f"{name}_ms" if name in _IN_MILLISECONDS else name
        fields[field] = readers[name](name, value)
    return Choices(**fields)


def _misplaced(name: str, place: str, known: Iterable[str]) -> TypeError:
    if name in _FOR_CALLS:
        return TypeError(f"{name} belongs to a call: write task.using({name}=...), not {place}.")
    if name in _TASK_ONLY:
        return TypeError(f"{name} belongs to the task: write @app.task({name}=...), not {place}.")
    if name in foreign_words.OPTIONS:
        return TypeError(f"{place} takes no option {name}: write {foreign_words.OPTIONS[name]}.")
    return TypeError(
        f"{place} takes no option {name}.{foreign_words.nearest(name, known)} It takes "
        f"{', '.join(known)}. Arguments of the function go to enqueue(...)."
    )


# ---------------------------------------------------------------------------------------- readers

_Reader = Callable[[str, Any], Any]


def read_queue(name: str, value: object) -> str:
    """Check the name of a queue. `name` is the option, for error messages."""
    if isinstance(value, str) and QUEUE_NAME.fullmatch(value):
        return value
    letters = "letters, digits, '_', '.' and '-', the first one a letter or a digit"
    raise _wrong(name, f"1 to 64 characters out of {letters}", value)


def _read_requires(name: str, value: object) -> tuple[str, ...]:
    labels = [value] if isinstance(value, str) else value
    if not isinstance(labels, Sequence):
        raise _wrong(name, "a label, or a list of labels", value)
    try:
        return read_labels(labels)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def _read_priority(name: str, value: object) -> int:
    number = value if isinstance(value, int) and not isinstance(value, bool) else None
    if number is not None and LOWEST_PRIORITY <= number <= HIGHEST_PRIORITY:
        return number
    bounds = f"from {LOWEST_PRIORITY} to {HIGHEST_PRIORITY}"
    raise _wrong(name, f"a whole number {bounds}, where higher starts first", value)


def _read_retry(name: str, value: object) -> Retry:
    if isinstance(value, Retry):
        return value
    instead = foreign_words.instead_of_number(value)
    raise _wrong(name, f"a windlass.Retry(...){instead}", value)


def _read_moment(name: str, value: Any) -> Moment:
    if isinstance(value, datetime):
        at_ms = instant_ms(value, name=name)
        if at_ms > LATEST_MS:
            raise ValueError(
                f"{name} must be before the year {LATEST_YEAR}, found {value.isoformat()}: leave "
                "it out for no limit"
            )
        return Moment(at_ms=at_ms)
    return Moment(in_ms=to_ms(value, name=name))


def _read_duration(name: str, value: Any) -> int:
    return to_ms(value, name=name)


def _read_key(name: str, value: object) -> str:
    if isinstance(value, str) and 0 < len(value) <= MAX_KEY_LENGTH:
        return value
    raise _wrong(name, f"text of 1 to {MAX_KEY_LENGTH} characters", value)


def _read_headers(_name: str, value: object) -> dict[str, str]:
    return read_headers(value)


def _wrong(name: str, expected: str, found: object) -> TypeError | ValueError:
    """The error for a wrong option: `ValueError` for text and numbers, `TypeError` for others."""
    kind = ValueError if isinstance(found, str | int) else TypeError
    return kind(f"{name} must be {expected}, found {found!r}")


_TASK_ONLY: Final = (
    *("name", "aliases", "takes_context", "run_in", "transaction", "schedule", "unique"),
    *("on_success", "on_retry", "on_dead"),
)
_IN_MILLISECONDS: Final = ("timeout", "result_ttl")
_FOR_BOTH: Final[Mapping[str, _Reader]] = {
    "queue": read_queue,
    "priority": _read_priority,
    "retry": _read_retry,
    "timeout": _read_duration,
    "expires": _read_moment,
    "result_ttl": _read_duration,
    "requires": _read_requires,
    "headers": _read_headers,
}
_FOR_CALLS: Final[Mapping[str, _Reader]] = {
    **_FOR_BOTH,
    "run_after": _read_moment,
    "idempotency_key": _read_key,
    "connection": read_connection,
}
