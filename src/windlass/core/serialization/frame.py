"""Frames for stored bytes that are not JSON: a byte that never starts JSON, a line of JSON, a body.

    \\x02 {"version":2,"codec":"msgpack"} \\n body

The line describes the body: its codec, and whether it is signed or encrypted, with which key. A
reader needs no setting to know that.
"""

from __future__ import annotations

from typing import Final

import msgspec

from windlass.core.serialization.depth_limit import too_deep
from windlass.errors import DecodeError, NewerFormat

#: The format of frames, and their first byte.
VERSION: Final = 2
_BEGIN: Final = bytes([VERSION])
#: windlass writes the line; only the options of a job are nested in it.
_DEPTH: Final = 10


def _version() -> int:
    return VERSION


class Label(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The line before a result, or the text of a failure."""

    version: int = msgspec.field(default_factory=_version)
    codec: str = "json"
    seal: str = ""  # one of `windlass.core.serialization.seals.Seal`
    key: str = ""  # the name of the key that it was sealed with


_decode_label: Final = msgspec.json.Decoder(Label).decode


def frame(line: bytes, body: bytes) -> bytes:
    return _BEGIN + line + b"\n" + body


def is_framed(data: bytes) -> bool:
    return data[:1] == _BEGIN


def split(data: bytes) -> tuple[bytes, bytes]:
    """The line and the body."""
    line, end, body = data[1:].partition(b"\n")
    if not end or too_deep(line, _DEPTH):
        raise DecodeError("the stored bytes are cut off before their body")
    return line, body


def read_label(data: bytes) -> tuple[Label, bytes, bytes]:
    """The label, its stored bytes, and the body. Bytes without a frame are plain JSON."""
    if not is_framed(data):
        return _JSON, b"", data
    line, body = split(data)
    try:
        label = _decode_label(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DecodeError(f"the stored bytes have no readable label: {error}") from error
    refuse_other_version(label.version)
    return label, line, body


def refuse_other_version(found: int) -> None:
    if found > VERSION:
        raise NewerFormat(
            f"the stored bytes were written by a newer windlass, in format {found}; this one reads "
            f"up to {VERSION}: upgrade the worker",
            found=found,
            supported=VERSION,
        )
    if found < VERSION:
        raise DecodeError(f"the stored bytes have format {found}, which has no frame")


_JSON: Final = Label()
