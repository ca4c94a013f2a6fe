"""Jobs that are handed off: leased by the put that stores them, to a session that waits.

A worker registers its idle sessions, each with the nonce of its next claim, and listens on a
channel of its own. A put that makes one job ready leases it to one of these sessions and publishes
it, so that the job arrives without a call. Only speed depends on that: the claim has its nonce
before the session waits, and when the message is lost the usual claim under that nonce finds what
is held under it. A last claim uses its nonce up, so that no later put leases a job under it.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from windlass.engine.contract import Batch, WakeUp
from windlass.engine.redis import decode

#: The first byte of a message: sessions that should look, a job that was handed off, and the wish
#: that the worker learn anew when the next thing is due.
_LOOK: Final = b"?"
_HANDED: Final = b"!"
RENEW: Final = b"~"
#: The sizes of session, nonce, id and record, at the beginning of a job that was handed off.
_SIZES: Final = struct.Struct(">HHHH")

_sessions = msgspec.msgpack.Decoder(list[str])


def wake_ups(message: bytes) -> list[WakeUp]:
    """The sessions that a message is for."""
    kind = message[:1]
    if kind == _HANDED:
        session_size, *_ = _SIZES.unpack_from(message, 1)
        session = message[1 + _SIZES.size : 1 + _SIZES.size + session_size].decode()
        return [WakeUp(session, message[1:])]
    if kind == _LOOK:
        return [WakeUp(session) for session in _sessions.decode(message[1:])]
    return []


def read(handed: bytes, nonce: str) -> Batch | None:
    """What was handed off; None when that was under another nonce."""
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
