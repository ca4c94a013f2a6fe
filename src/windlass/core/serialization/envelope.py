"""The stored form of a call, opaque to engines: a bare call, or a call in an envelope.

    {"args":["cat.jpg",[100]]}
    {"version":1,"task":"media.resize","call":{"args":["cat.jpg",[100]]},"headers":{"tenant":"a"}}

`pack` writes it, and `unpack` reads it. A JSON call without headers and options is stored bare: the
record of the job has the name of the task, so the reader passes the name. Any other call has an
envelope, which is versioned JSON. The first key distinguishes them: a bare call starts with `args`
or `kwargs`, or is `{}`, and an envelope starts with `version`. Earlier versions of windlass wrote
an envelope for every call.

A call that is not JSON, or is signed or encrypted, is the body of a frame (`frame.py`): the
envelope is the line of the frame, has null for the call, and names codec, seal and key.

A reader ignores unknown fields. So a version may add a field if an old worker that ignores it still
runs the job as intended. Any other change needs a new version, which an older worker refuses. Bytes
without a version have version 1.
"""

from __future__ import annotations

from typing import Final

import msgspec

from windlass.core.serialization import frame
from windlass.core.serialization.wire import MAX_DEPTH, too_deep
from windlass.errors import DecodeError

#: The format of envelopes outside of frames: the one that windlass writes, and the newest it reads.
VERSION: Final = 1

#: The deepest nesting: an argument is inside the envelope, the call, and `args` or `kwargs`.
_DEPTH: Final = MAX_DEPTH + 3


class Overrides(msgspec.Struct, frozen=True, omit_defaults=True):
    """Options of the caller that override those of the task."""

    retry: dict[str, object] | None = None
    result_ttl_ms: int | None = None
    timeout_ms: int | None = None


NO_OVERRIDES: Final = Overrides()
_NO_CALL: Final = msgspec.Raw(b"null")
#: The beginning of a bare call, and a bare call without arguments.
_BARE: Final = (b'{"args":', b'{"kwargs":')
_NO_ARGUMENTS: Final = b"{}"


class Envelope(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One call of a task, with its headers and options."""

    # msgspec always writes a field with a default factory: stored bytes always have a version.
    version: int = msgspec.field(default_factory=lambda: VERSION)
    task: str
    call: msgspec.Raw
    headers: dict[str, str] = {}
    options: Overrides = NO_OVERRIDES
    codec: str = "json"
    seal: str = ""  # one of `frame.Seal`
    key: str = ""  # the name of the key that sealed the call


class _EnvelopeVersion(msgspec.Struct):
    version: int


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(Envelope).decode
_decode_version: Final = msgspec.json.Decoder(_EnvelopeVersion).decode
_check_json: Final = msgspec.json.Decoder(msgspec.Raw).decode


def is_bare(packed: bytes) -> bool:
    """Whether a stored call has no envelope."""
    return packed.startswith(_BARE) or packed == _NO_ARGUMENTS


def pack(envelope: Envelope) -> bytes:
    """Encode an envelope, or its call alone if there is nothing else to store. The same envelope
    always gives the same bytes."""
    if envelope.options is not NO_OVERRIDES and envelope.options == NO_OVERRIDES:
        envelope = msgspec.structs.replace(envelope, options=NO_OVERRIDES)
    if envelope.codec == "json":
        is_plain = not (envelope.headers or envelope.options is not NO_OVERRIDES or envelope.seal)
        call = bytes(envelope.call)
        return call if is_plain and is_bare(call) else _encode(envelope)
    return frame.frame(pack_line(envelope), bytes(envelope.call))


def pack_line(envelope: Envelope) -> bytes:
    """Encode an envelope without its call."""
    replace = msgspec.structs.replace
    return _encode(replace(envelope, version=frame.VERSION, call=_NO_CALL))


def unpack(packed: bytes, task: str) -> Envelope:
    """Decode an envelope, or make the envelope of a bare call, of a job of this task. A sealed call
    stays sealed. Raises `DecodeError` or `NewerFormat`."""
    if len(packed) > 2 * _DEPTH and too_deep(packed, _DEPTH):
        if frame.is_framed(packed):
            return _unpack_framed(packed)
        raise DecodeError(f"the stored job is nested deeper than {_DEPTH} levels, or cut off")
    if is_bare(packed):
        return _unpack_bare(packed, task)
    try:
        envelope = _decode(packed)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if frame.is_framed(packed):  # checked last: most envelopes are JSON
            return _unpack_framed(packed)
        frame.refuse_newer("the stored job was", _version_of(packed), VERSION)
        raise DecodeError(f"the stored job is not an envelope of windlass: {error}") from error
    if not 1 <= envelope.version <= VERSION:
        frame.refuse_newer("the stored job was", envelope.version, VERSION)
        raise DecodeError(f"the stored job says format {envelope.version}, which never existed")
    return envelope


def _unpack_bare(packed: bytes, task: str) -> Envelope:
    try:
        return Envelope(version=VERSION, task=task, call=_check_json(packed))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(f"the stored job is not a call: {error}") from error


def _unpack_framed(packed: bytes) -> Envelope:
    line, call = frame.split(packed)
    try:
        envelope = _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        found = _version_of(line)
        if found > VERSION:
            frame.refuse_other_version(found)
        raise DecodeError(f"the stored job is not an envelope of windlass: {error}") from error
    frame.refuse_other_version(envelope.version)
    return msgspec.structs.replace(envelope, call=msgspec.Raw(call))


def _version_of(packed: bytes) -> int:
    try:
        return _decode_version(packed).version
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return VERSION
