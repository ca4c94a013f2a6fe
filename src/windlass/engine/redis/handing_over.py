"""Jobs that are handed over: leased by the put that stores them, for somebody who waits.

A waiter tells the server under which session and nonce it would claim, and listens on its channel.
A put that makes one job ready leases it to the waiter and publishes it, so that it arrives without
a call. Nothing depends on that but speed: the claim has its nonce before anybody waits, and
whatever becomes of the message, the claim is made by the usual way under that nonce, which gives
what is held under it. A claim under such a nonce that finds nothing uses the nonce up: a put that
comes later leases nothing for nobody.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from windlass.engine.contract import Batch, Plan
from windlass.engine.redis import arguments, records

#: What is published when nothing is handed over.
RING: Final = b""
#: The first byte of a waiter that says more than its channel.
_MARK: Final = b"="
#: The sizes of id and record, at the beginning of a message.
_SIZES: Final = struct.Struct(">HH")

_encode = msgspec.msgpack.Encoder().encode


class Waiting(msgspec.Struct):
    """The claim of an engine object that may be made by others."""

    nonce: str = ""  # of the claim for which it is on the list, as far as is known here
    told: str = ""  # the latest that was told to the server, whatever became of it
    waiter: bytes = b""


def describe(channel: str, session: str, nonce: str, plan: Plan) -> bytes:
    """What a waiter is on the list as."""
    arguments.check_name("session", session)
    arguments.check_name("nonce", nonce)
    said = (channel, plan.suspects, session, nonce, plan.queues)
    # Without its first byte an array is its items one after the other, which Lua takes as such.
    return _MARK + _encode(said)[1:]


def read(message: bytes, nonce: str) -> Batch | None:
    """What was handed over; None for a ring, and for what belongs to an earlier nonce: that was
    asked for by the usual way."""
    if message == RING:
        return None
    id_size, record_size = _SIZES.unpack_from(message)
    record_at = _SIZES.size + id_size
    body_at = record_at + record_size
    job_id, record = message[_SIZES.size : record_at].decode(), message[record_at:body_at]
    if not record.endswith(nonce.encode()):  # its token is the last thing in it
        return None
    _, _, claim = records.to_claim(job_id, record, message[body_at:], nonce)
    return Batch(claims=(claim,))
