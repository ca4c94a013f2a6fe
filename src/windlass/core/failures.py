"""An exception as text, as it is stored with a job.

Exceptions cross processes only as data: the type, the message and the traceback are turned into
text where the exception was caught, cut to a bounded size, and never rebuilt. Whatever a task
raises, making and reading that text does not fail: code of its class that runs here (`__str__`, a
property, a metaclass) may raise anything, even what is no `Exception`.

`traceback` is imported where it is used: whoever runs jobs has it loaded, and who only reads what
became of them needs no such thing.
"""

from __future__ import annotations

from typing import Final

import msgspec

from windlass.core.fingerprint import fingerprint, place_of

#: The most that is kept of each part, in bytes.
MAX_TYPE: Final = 256
MAX_PLACE: Final = 512
MAX_MESSAGE: Final = 8 * 1024
MAX_TRACEBACK: Final = 32 * 1024
#: The message of one that nobody has decrypted yet.
ENCRYPTED: Final = "(encrypted)"
#: The type of an exception that does not even tell its name.
UNKNOWN: Final = "BaseException"

# Past the code of a class that does not let itself be looked at.
_TRACEBACK: Final = vars(BaseException)["__traceback__"].__get__
_CAUSE: Final = vars(BaseException)["__cause__"].__get__
_CONTEXT: Final = vars(BaseException)["__context__"].__get__
_EXCEPTIONS: Final = vars(BaseExceptionGroup)["exceptions"].__get__


class FailureText(msgspec.Struct, frozen=True):
    """What is known of an exception: `type` is its full name, or "" for a cause found outside."""

    type: str = ""
    message: str = ""
    traceback: str = ""
    #: Message and traceback, encrypted, in base64; "" where the key for them is not here.
    sealed: str | msgspec.UnsetType = msgspec.UNSET
    place: str = ""  # the innermost function of neither Python nor windlass that it came through

    @property
    def name(self) -> str:
        """The type; of our own as they are imported, not where they are written."""
        return self.type.rpartition(".")[2] if self.type.startswith("windlass.") else self.type

    @property
    def fingerprint(self) -> str:
        """The same for failures that are alike: see `core.fingerprint`. "" where it was not
        decrypted: then nobody knows."""
        is_read = self.sealed is msgspec.UNSET
        return fingerprint(self.type, self.place, self.message) if is_read else ""

    @classmethod
    def of(cls, error: BaseException) -> FailureText:
        """The text of `error`. The frames it came through are cleared, so that it keeps nothing of
        the job alive."""
        try:
            text = cls(
                type=_cut(_name_of(type(error)), MAX_TYPE),
                message=_cut(_message_of(error), MAX_MESSAGE),
                traceback=_cut(_traceback_of(error), MAX_TRACEBACK),
                place=_cut(place_of(_TRACEBACK(error)), MAX_PLACE),
            )
        except BaseException:  # noqa: BLE001  # a class that makes nothing of itself known
            text = cls(type=UNKNOWN, message="<no text: the exception cannot be looked at>")
        clear_frames(error)
        return text

    def pack(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def unpack(cls, data: bytes) -> FailureText:
        """Stored bytes as text again; bytes that are none of ours are shown as they are."""
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
    """Drop the local variables of all frames that `error`, and what led to it, came through: one of
    them may hold the error, and so everything, until the collector of cycles comes by."""
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
    """At most `limit` bytes of valid UTF-8: the beginning and the end, where the news is."""
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= limit:
        return data.decode()
    mark = b"\n... cut ...\n"
    half = (limit - len(mark)) // 2
    return (data[:half] + mark + data[-half:]).decode("utf-8", "ignore")
