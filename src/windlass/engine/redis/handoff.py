"""Hand-off: a put leases the job that it stores to a waiting session.

A worker registers its idle sessions, each with the nonce of its next claim, and listens on its own
channel. A put that makes one job ready leases it to one of these sessions and publishes it, so that
the job arrives without a call. Only speed depends on the message: the nonce is fixed before the
session waits, and if the message is lost, the usual claim under that nonce finds the job. A last
claim uses up its nonce, so that no later put leases a job under it.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from windlass.engine.contract import Batch, WakeUp
from windlass.engine.redis import decode

#: The first byte of a message: sessions that should claim, a job that was handed off, or a request
#: to the worker to register again and learn when the next job is due.
_LOOK: Final = b"?"
_HANDED: Final = b"!"
RENEW: Final = b"~"
#: The sizes of session, nonce, id and record, at the start of a job that was handed off.
_SIZES: Final = struct.Struct(">HHHH")

_sessions = msgspec.msgpack.Decoder(list[str])


def wake_ups(message: bytes) -> list[WakeUp]:
    """Decode the wake-ups in a message."""
    kind = message[:1]
    if kind == _HANDED:
        session_size, *_ = _SIZES.unpack_from(message, 1)
        session = message[1 + _SIZES.size : 1 + _SIZES.size + session_size].decode()
        return [WakeUp(session, message[1:])]
    if kind == _LOOK:
        return [WakeUp(session) for session in _sessions.decode(message[1:])]
    return []


def read(handed: bytes, nonce: str) -> Batch | None:
    """Decode a hand-off; None if it was made under another nonce."""
    session_size, nonce_size, id_size, record_size = _SIZES.unpack_from(handed)
    nonce_at = _SIZES.size + session_size
    id_at = nonce_at + nonce_size
    record_at = id_at + id_size
    body_at = record_at + record_size
    if not nonce or handed[nonce_at:id_at] != nonce.encode():
        return None
    job_id, record = handed[id_at:record_at].decode(), handed[record_at:body_at]
    _, _, claim = decode.to_claim(job_id, record, handed[body_at:], nonce)
    return Batch(claims=(claim,))
