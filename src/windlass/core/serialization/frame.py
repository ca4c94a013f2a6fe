"""Frames for stored bytes that are not JSON: a byte that never starts JSON, a line of JSON, a body.

    \\x02 {"version":2,"codec":"msgpack"} \\n body

The line describes the body: its codec, its seal (signed or encrypted) and the name of the key. So a
reader does not depend on settings.

`Seal` lists the kinds of protection. The cryptography itself is in `encryption.py`. An app without
a secret does not load that module, because it loads OpenSSL.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from windlass.core import install_command
from windlass.core.serialization.wire import too_deep
from windlass.errors import DecodeError, NewerFormat

#: The format of frames, and their first byte.
VERSION: Final = 2
_BEGIN: Final = bytes([VERSION])
#: The deepest nesting in a line. Only the options of a job are nested.
_DEPTH: Final = 10
#: The shortest secret, in characters.
SHORTEST: Final = 32
HOW_TO_MAKE_ONE: Final = 'python -c "import secrets; print(secrets.token_urlsafe(32))"'


class Seal(StrEnum):
    """The protection of stored bytes."""

    NONE = ""
    SIGNED = "hmac-sha256"
    ENCRYPTED = "chacha20-poly1305"


def describe_sealed(seal: str, name: str) -> str:
    """Describe sealed bytes to a reader without the key."""
    return f"{'signed' if seal == Seal.SIGNED else 'encrypted'} with key {name}"


def why_not_encrypting() -> str:
    """Why this installation cannot encrypt, or ""."""
    try:
        import cryptography.hazmat.primitives.ciphers.aead  # noqa: F401  # only whether it is there
    except ImportError:
        return (
            "encryption needs the package cryptography, which is not installed; install it with: "
            f"{install_command('encryption')}"
        )
    return ""


class Label(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The line of a frame with a result or with the text of a failure."""

    version: int = msgspec.field(default_factory=lambda: VERSION)
    codec: str = "json"
    seal: str = ""  # one of `Seal`
    key: str = ""  # the name of the key that sealed the body


_decode_label: Final = msgspec.json.Decoder(Label).decode


def frame(line: bytes, body: bytes) -> bytes:
    return _BEGIN + line + b"\n" + body


def is_framed(data: bytes) -> bool:
    return data[:1] == _BEGIN


def split(data: bytes) -> tuple[bytes, bytes]:
    """Split a frame into its line and its body."""
    line, end, body = data[1:].partition(b"\n")
    if not end or too_deep(line, _DEPTH):
        raise DecodeError("the stored bytes are cut off before their body")
    return line, body


def read_label(data: bytes) -> tuple[Label, bytes, bytes]:
    """Read a frame: the label, its stored bytes, and the body. Bytes without a frame are JSON."""
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
    refuse_newer("the stored bytes were", found, VERSION)
    if found < VERSION:
        raise DecodeError(f"the stored bytes have format {found}, which has no frame")


def refuse_newer(what: str, found: int, supported: int) -> None:
    """Raise `NewerFormat` if a newer windlass wrote the bytes."""
    if found > supported:
        raise NewerFormat(
            f"{what} written by a newer windlass, in format {found}; this one reads up to "
            f"{supported}: upgrade the worker",
            found=found,
            supported=supported,
        )


_JSON: Final = Label()
