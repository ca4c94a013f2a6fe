"""What a job stores about its call: opaque to engines, versioned, JSON.

    {"version":1,"task":"media.resize","call":{"args":["cat.jpg",[100]]}}

`headers` and `options` follow when the caller chose some. `pack` writes it, `unpack` reads it, and
`call_text` shows it.

A reader ignores fields that it does not know, so a field may be added within a version as long as
an old worker that ignores it still runs the job as the caller meant. Any other change takes a new
version, which an older worker refuses with a sentence. Bytes that say no version are read
as the first.
"""

from __future__ import annotations

from typing import Final

import msgspec

from windlass.core.nesting import MAX_DEPTH, too_deep
from windlass.errors import DecodeError, NewerFormat

#: The format that this windlass writes, and the newest that it reads.
VERSION: Final = 1

#: An argument stands inside the envelope, the call and its list, or object, of arguments.
_DEPTH: Final = MAX_DEPTH + 3


def _version() -> int:
    return VERSION


class Overrides(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the caller chose for this job in place of the task's own options."""

    retry: dict[str, object] | None = None
    result_ttl_ms: int | None = None
    timeout_ms: int | None = None


_NO_OVERRIDES: Final = Overrides()


class Envelope(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One call of a task, with what came along with it."""

    # A default made by a function is written even when unchanged: stored bytes always say theirs.
    version: int = msgspec.field(default_factory=_version)
    task: str
    call: msgspec.Raw
    headers: dict[str, str] = {}
    options: Overrides = _NO_OVERRIDES


class _Version(msgspec.Struct):
    version: int


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(Envelope).decode
_decode_version: Final = msgspec.json.Decoder(_Version).decode


def pack(envelope: Envelope) -> bytes:
    """The envelope as bytes; the same envelope always gives the same bytes."""
    if envelope.options is not _NO_OVERRIDES and envelope.options == _NO_OVERRIDES:
        envelope = msgspec.structs.replace(envelope, options=_NO_OVERRIDES)
    return _encode(envelope)


def unpack(packed: bytes) -> Envelope:
    """The envelope in the bytes; a DecodeError, or a NewerFormat, if there is none to be read."""
    if too_deep(packed, _DEPTH):
        raise DecodeError(f"the stored job is nested deeper than {_DEPTH} levels, or cut off")
    try:
        envelope = _decode(packed)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        _refuse_newer(_version_of(packed))
        raise DecodeError(f"the stored job is not an envelope of windlass: {error}") from error
    _refuse_newer(envelope.version)
    if envelope.version < 1:
        raise DecodeError(f"the stored job says format {envelope.version}, which never existed")
    return envelope


def call_text(packed: bytes) -> str:
    """The stored call, for people; of bytes that make none, why not."""
    try:
        return bytes(unpack(packed).call).decode()
    except DecodeError as error:
        return f"(undecodable: {error})"


def _version_of(packed: bytes) -> int:
    try:
        return _decode_version(packed).version
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return VERSION


def _refuse_newer(found: int) -> None:
    if found > VERSION:
        raise NewerFormat(
            f"the stored job was written by a newer windlass, in format {found}; this one reads up "
            f"to {VERSION}: upgrade the worker",
            found=found,
            supported=VERSION,
        )
