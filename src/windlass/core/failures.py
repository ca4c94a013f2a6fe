"""Convert exceptions to text, which is stored with a job.

Exceptions are never passed between processes as objects. The worker converts type, message and
traceback to text of a bounded size, and no process rebuilds the exception. Making and reading the
text never fails, even if code of the exception class (`__str__`, a property, a metaclass) raises a
`BaseException`.

1. `FailureText` is the text of an exception.
2. `place_of` finds the innermost function of a traceback outside of Python and windlass. The place
   is a name and not a line number, so edits above the function do not change it.
3. `without_values` replaces values in a message: numbers, quoted text, identifiers.
4. `fingerprint` groups similar failures: a short digest of type, place and message without values.
   The arguments of the job are not part of it.

The module `traceback` is imported on use: workers have loaded it, and readers do not need it.
"""

from __future__ import annotations

import re
import sys
from types import TracebackType
from typing import Final

import msgspec

#: The size limit of each part, in bytes.
MAX_TYPE: Final = 256
MAX_PLACE: Final = 512
MAX_MESSAGE: Final = 8 * 1024
MAX_BRIEF: Final = 800
MAX_TRACEBACK: Final = 32 * 1024
#: The length of the part of a message that its fingerprint includes, in characters.
MAX_COMPARED: Final = 500
#: The size of a fingerprint in bytes; shown as hexadecimal digits.
FINGERPRINT_SIZE: Final = 6
#: The message of an encrypted failure.
ENCRYPTED: Final = "(encrypted)"
#: The type name of an exception when its own name cannot be read.
UNKNOWN: Final = "BaseException"

# Reads attributes without the code of the exception class, which may raise.
_TRACEBACK: Final = vars(BaseException)["__traceback__"].__get__
_CAUSE: Final = vars(BaseException)["__cause__"].__get__
_CONTEXT: Final = vars(BaseException)["__context__"].__get__
_EXCEPTIONS: Final = vars(BaseExceptionGroup)["exceptions"].__get__

_NOT_OURS: Final = sys.stdlib_module_names | {"windlass"}
#: Patterns and their replacements, in this order. `re` compiles and caches them at the first use.
_VALUES: Final = (
    (r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", "<id>"),
    (r"(?<!\w)'[^'\n]*'(?!\w)|(?<!\w)\"[^\"\n]*\"(?!\w)", "<text>"),
    (r"[\w.+-]+@\w[\w.-]*", "<address>"),
    (r"\b0[xX][0-9a-fA-F]+\b", "<number>"),
    (r"\b(?=[A-Za-z_-]*[0-9])[0-9A-Za-z_-]{16,}\b", "<id>"),
    (r"-?[0-9]+([.,:][0-9]+)*", "<number>"),
)


class FailureText(msgspec.Struct, frozen=True):
    """An exception as text: `type` is its full name, or "" for a cause outside of Python."""

    type: str = ""
    message: str = ""
    traceback: str = ""
    #: Message and traceback, encrypted, in base64; "" if this app does not have the key.
    sealed: str | msgspec.UnsetType = msgspec.UNSET
    place: str = ""  # the innermost function of the traceback outside of Python and windlass

    @property
    def name(self) -> str:
        """The full name of the type. For errors of windlass, the public import path."""
        return self.type.rpartition(".")[2] if self.type.startswith("windlass.") else self.type

    def __str__(self) -> str:
        """The type and the first line of the message: `ValueError: no such order`."""
        first, *others = self.message.splitlines() or [""]
        return ": ".join(part for part in (self.name, first) if part) + (" ..." if others else "")

    @property
    def fingerprint(self) -> str:
        """The fingerprint, equal for similar failures. "" if the failure is not decrypted."""
        is_read = self.sealed is msgspec.UNSET
        return fingerprint(self.type, self.place, self.message) if is_read else ""

    @classmethod
    def of(cls, error: BaseException) -> FailureText:
        """Convert `error` to text. Clears the frames of its traceback, so that they keep no objects
        of the job alive."""
        try:
            text = cls(
                type=_cut(_name_of(type(error)), MAX_TYPE),
                message=_cut(_message_of(error), MAX_MESSAGE),
                traceback=_cut(_traceback_of(error), MAX_TRACEBACK),
                place=_cut(place_of(_TRACEBACK(error)), MAX_PLACE),
            )
        except BaseException:  # noqa: BLE001  # its class may raise for any attribute
            text = cls(type=UNKNOWN, message="<no text: the exception cannot be inspected>")
        clear_frames(error)
        return text

    @classmethod
    def brief(cls, error: BaseException) -> FailureText:
        """The text of `error` without a traceback: small enough to be the reason why a job is
        held, also when it is encrypted."""
        kind, message = _cut(_name_of(type(error)), MAX_TYPE), _cut(_message_of(error), MAX_BRIEF)
        return cls(type=kind, message=message)

    @classmethod
    def reported(cls, kind: str, message: str, traceback: str) -> FailureText:
        """The text of an error that another program reports, cut to size."""
        return cls(
            type=_cut(kind, MAX_TYPE),
            message=_cut(message, MAX_MESSAGE),
            traceback=_cut(traceback, MAX_TRACEBACK),
        )

    def pack(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def unpack(cls, data: bytes) -> FailureText:
        """Read stored bytes. Bytes in another format become the message."""
        try:
            text = msgspec.json.decode(data, type=cls)
            return msgspec.structs.replace(text, message=ENCRYPTED) if text.sealed else text
        except msgspec.MsgspecError:
            return cls(message=_cut(data.decode("utf-8", "backslashreplace"), MAX_MESSAGE))


def _name_of(kind: type[BaseException]) -> str:
    name = kind.__qualname__
    return name if kind.__module__ == "builtins" else f"{kind.__module__}.{name}"


def _message_of(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as problem:  # noqa: BLE001  # a broken __str__ must not hide the failure
        return f"<no message: its __str__ raised {type(problem).__name__}>"


def _traceback_of(error: BaseException) -> str:
    import traceback

    try:
        return "".join(traceback.format_exception(error))
    except BaseException as problem:  # noqa: BLE001  # a broken exception must not hide the failure
        return f"<no traceback: making it raised {type(problem).__name__}>"


def clear_frames(error: BaseException) -> None:
    """Drop the local variables of all frames of `error` and its causes. A frame with a reference to
    the error is a cycle, and keeps its objects alive until the garbage collector runs."""
    import traceback

    seen: set[int] = set()
    chain: list[BaseException | None] = [error]
    while chain:
        link = chain.pop()
        if link is None or id(link) in seen:
            continue
        seen.add(id(link))
        traceback.clear_frames(_TRACEBACK(link))
        chain += [_CAUSE(link), _CONTEXT(link)]
        if issubclass(type(link), BaseExceptionGroup):
            chain += _EXCEPTIONS(link)


def _cut(text: str, limit: int) -> str:
    """Cut a text to at most `limit` bytes of valid UTF-8: its beginning and its end."""
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= limit:
        return data.decode()
    mark = b"\n... cut ...\n"
    half = (limit - len(mark)) // 2
    return (data[:half] + mark + data[-half:]).decode("utf-8", "ignore")


def place_of(traceback: TracebackType | None) -> str:
    """`module.function` of the innermost frame outside of Python and windlass, or ""."""
    place = ""
    while traceback is not None:
        frame = traceback.tb_frame
        module = frame.f_globals.get("__name__")
        if isinstance(module, str) and module.partition(".")[0] not in _NOT_OURS:
            place = f"{module}.{frame.f_code.co_qualname}"
        traceback = traceback.tb_next
    return place


def without_values(message: str) -> str:
    """The beginning of a message, with a placeholder for each value."""
    text = message[:MAX_COMPARED]
    for values, word in _VALUES:
        text = re.sub(values, word, text)
    return " ".join(text.split())


def fingerprint(kind: str, place: str, message: str) -> str:
    """A digest that is equal for similar failures, in every process and on every machine."""
    from hashlib import blake2s  # slow to import, and needed only to show failures

    parts = "\0".join((kind, place, without_values(message)))
    return blake2s(parts.encode("utf-8", "replace"), digest_size=FINGERPRINT_SIZE).hexdigest()
