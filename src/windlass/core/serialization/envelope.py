"""The envelope of a stored call: versioned JSON, opaque to engines.

    {"version":1,"task":"media.resize","call":{"args":["cat.jpg",[100]]}}

`pack` writes an envelope, and `unpack` reads it. `headers` and `options` follow if the caller gave
some. Without them only the call differs between jobs of a task: `head_of(task)`, the call, `TAIL`.

A call that is not JSON, or is signed or encrypted, is the body of a frame (`frame.py`): the
envelope is the line of the frame, has null for the call, and names codec, seal and key.

A reader ignores unknown fields. So a version may add a field if an old worker that ignores it still
runs the job as intended. Any other change needs a new version, which an older worker refuses. Bytes
without a version have version 1.
"""

from __future__ import annotations

from functools import lru_cache
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
#: The bytes after a call without headers and options.
TAIL: Final = b"}"


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


def pack(envelope: Envelope) -> bytes:
    """Encode an envelope. The same envelope always gives the same bytes."""
    if envelope.options is not NO_OVERRIDES and envelope.options == NO_OVERRIDES:
        envelope = msgspec.structs.replace(envelope, options=NO_OVERRIDES)
    if envelope.codec == "json":
        return _encode(envelope)
    return frame.frame(pack_line(envelope), bytes(envelope.call))


@lru_cache(maxsize=1024)
def head_of(task: str) -> bytes:
    """The bytes before the call in a JSON envelope of this task."""
    return pack(Envelope(task=task, call=_NO_CALL)).removesuffix(bytes(_NO_CALL) + TAIL)


def pack_line(envelope: Envelope) -> bytes:
    """Encode an envelope without its call."""
    replace = msgspec.structs.replace
    return _encode(replace(envelope, version=frame.VERSION, call=_NO_CALL))


def unpack(packed: bytes) -> Envelope:
    """Decode an envelope. A sealed call stays sealed. Raises `DecodeError` or `NewerFormat`."""
    if len(packed) > 2 * _DEPTH and too_deep(packed, _DEPTH):
        if frame.is_framed(packed):
            return _unpack_framed(packed)
        raise DecodeError(f"the stored job is nested deeper than {_DEPTH} levels, or cut off")
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
