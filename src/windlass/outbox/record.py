"""A job in the outbox, as bytes: the number of the format, then a map of the fields that differ
from their default.

A reader ignores unknown fields. So a new field that a relay must not drop needs a new number: an
older relay then leaves the row to newer ones.
"""

from __future__ import annotations

from typing import Final

import msgspec

from windlass.engine.contract import NewJob
from windlass.errors import DecodeError, NewerFormat

FORMAT: Final = 1

_FIELDS: Final = msgspec.structs.fields(NewJob)
_pack: Final = msgspec.msgpack.Encoder().encode
_unpack: Final = msgspec.msgpack.Decoder(NewJob).decode


def encode(job: NewJob) -> bytes:
    fields = {field.name: getattr(job, field.name) for field in _FIELDS}
    stored = {
        field.name: fields[field.name] for field in _FIELDS if fields[field.name] != field.default
    }
    return bytes([FORMAT]) + _pack(stored)


def decode(body: bytes) -> NewJob:
    """Raises `DecodeError`, and `NewerFormat` for the bytes of a newer windlass."""
    found = body[0] if body else 0
    if found > FORMAT:
        raise NewerFormat(
            f"The row was written by a newer windlass (format {found}; this one reads up to "
            f"{FORMAT}). Upgrade this worker.",
            found=found,
            supported=FORMAT,
        )
    if found < 1:
        raise DecodeError(f"Expected a row of format 1 to {FORMAT}, found {found}: it is damaged.")
    try:
        return _unpack(body[1:])
    except msgspec.MsgspecError as error:
        raise DecodeError(f"The row is damaged: {error}.") from error
