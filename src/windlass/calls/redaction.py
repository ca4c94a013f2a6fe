"""Redact stored calls, by the setting `redact` and the parameters of their tasks.

`CallRedactor` redacts the arguments of a call, and calls that were converted to text, such as
`DeadLetter.call`. A call of a task that this app does not declare is redacted by its keywords, and
by names inside of arguments: the names of its positional parameters are not known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from windlass.core.redaction import REDACTED, UNKNOWN_PARAMETERS, ParameterNames, Redactor
from windlass.core.serialization.codec import decode_json
from windlass.core.serialization.wire import to_json
from windlass.errors import DecodeError

if TYPE_CHECKING:
    from windlass.app import Windlass

_PARTS: Final = frozenset({"args", "kwargs"})


class CallRedactor:
    """Redacts the calls of tasks. `parameters_of` returns the parameters of a task."""

    def __init__(self, redactor: Redactor, parameters_of: Callable[[str], ParameterNames]) -> None:
        self._redactor = redactor
        self._parameters_of = parameters_of

    @classmethod
    def of(cls, app: Windlass) -> CallRedactor:
        return cls(app.redactor, partial(_parameters_in, app))

    @classmethod
    def without_code(
        cls, names: Sequence[str], parameters: Mapping[str, ParameterNames]
    ) -> CallRedactor:
        """For a process without the app: the setting `redact`, and the `sensitive_parameters`."""
        return cls(Redactor(names), lambda task: parameters.get(task, UNKNOWN_PARAMETERS))

    def redact(self, task: str, call: Mapping[str, Any]) -> dict[str, Any]:
        """Return a call, `{"args": [...], "kwargs": {...}}`, without the values that are hidden. A
        part that the call does not have is not added."""
        args, kwargs = self._redactor.redact_call(
            call.get("args", []), call.get("kwargs", {}), self._parameters_of(task)
        )
        redacted = {"args": args, "kwargs": kwargs}
        return {part: value for part, value in redacted.items() if part in call}

    def redact_text(self, task: str, text: str) -> str:
        """Return the text of a call without the values that are hidden. A text in parentheses says
        why the call cannot be read, and stays."""
        if text.startswith("("):
            return text
        try:
            call = decode_json(text.encode())
        except DecodeError:
            return REDACTED
        if not _is_call(call):
            return REDACTED  # a call that only msgpack can represent is shown by its bytes
        return to_json(self.redact(task, call)).decode()


def sensitive_parameters(app: Windlass) -> dict[str, ParameterNames]:
    """The parameters of those tasks, with code or remote, that have a positional parameter with a
    hidden name, by name and by alias."""
    found = {}
    for name in (*app.known_tasks, *app.remote_tasks):
        parameters = _parameters_in(app, name)
        if any(map(app.redactor.is_listed, (*parameters.positional, parameters.starred))):
            found[name] = parameters
    return found


def _parameters_in(app: Windlass, name: str) -> ParameterNames:
    task = app.find_task(name)
    if task is None:
        return UNKNOWN_PARAMETERS
    return ParameterNames.of(task.function, task.takes_context)


def _is_call(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() <= _PARTS
        and isinstance(value.get("args", []), list)
        and isinstance(value.get("kwargs", {}), dict)
    )
