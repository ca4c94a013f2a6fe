"""Claims that are made at the moment of the ring, and not a round trip later.

A waiter sends its claim behind a read that blocks until somebody rings: the server makes the claim
as soon as the read has ended, and ring and claim arrive together. Nothing depends on it but speed:
whatever becomes of the connection, the claim is repeated under its nonce by the usual way, and the
one that was sent ahead then gets nothing new. A claim under such a nonce that finds nothing uses
the nonce up: however late another one arrives that was sent under it, it leases nothing for nobody.
"""

from __future__ import annotations

import secrets
from typing import Final

import redis

from windlass.engine.redis import keys, scripts
from windlass.engine.redis.connection import Call, Reply, Server
from windlass.engine.redis.pool import Link, allow
from windlass.engine.waiting import POLL_FLOOR_MS, Nudge, await_readable

#: How long the server may take for what it should do at once.
_PATIENCE_S: Final = 1.0
#: And for the replies to what was called off; a new connection takes no longer.
_SOON_S: Final = 0.05
#: A read ends by itself after so long: the waiter has given up before.
_BLOCK_MS: Final = 2 * POLL_FLOOR_MS


class Broken(Exception):
    """What became of the claim is unknown."""


class HandingOver:
    """The connection on which one engine object has a claim waiting, in one process."""

    def __init__(self, server: Server, nudge: Nudge) -> None:
        self._nudge = nudge
        self.nonce = ""  # of the claim that waits
        self.sent = ""  # of the latest one that was sent ahead, whatever became of it
        self.waiter = b"*" + secrets.token_hex(8).encode()
        self._server = server
        self._link: Link | None = None
        self._id = b""  # of the connection
        self._bell = keys.key(server.address.namespace, 0, "bell").encode()
        self._list = keys.key(server.address.namespace, 0, "wait").encode()
        self._owed = 0  # so many replies will come
        self._knows_script = False  # the server, as far as this connection can tell

    def send(self, nonce: str, claim: Call, *, is_solo: bool) -> None:
        """Let a claim wait for the next ring."""
        if self.nonce:
            self.drop()  # nobody asks for that one any more
        self.sent = nonce
        try:
            link = self._ready_link()
            group = keys.SOLO_WAITERS if is_solo else keys.WAITERS
            read = scripts.pack(
                *(b"XREADGROUP", b"GROUP", group, b"all", b"COUNT", b"1"),
                *(b"BLOCK", b"%d" % _BLOCK_MS, b"NOACK", b"STREAMS", self._bell, b">"),
            )
            packed = claim.packed() if self._knows_script else claim.packed_whole()
            link.send_packed_command([read, packed], check_health=False)
        except (redis.exceptions.RedisError, OSError) as error:
            self.drop()
            raise Broken from error
        self.nonce, self._owed = nonce, 2

    def receive(self, timeout_s: float) -> Reply | None:
        """The reply to the claim; None when it still waits after that time, or was nudged."""
        link = self._link
        if link is None or link._sock is None:
            raise Broken
        try:
            if not link.can_read(0):
                sources = [self._nudge.descriptor, link._sock.fileno()]
                ready = await_readable(sources, timeout_s)
                if self._nudge.descriptor in ready:
                    self._nudge.take()
                    return None
                if not ready:
                    return None
            return self._read(link)
        except (redis.exceptions.RedisError, OSError) as error:
            self.drop()
            raise Broken from error

    def end(self) -> list[bytes]:
        """The commands that end the wait. The claim that was sent ahead is then made at once, and
        gets what one that is sent behind these commands gets."""
        self.nonce = ""
        return [
            scripts.pack(b"CLIENT", b"UNBLOCK", self._id),
            scripts.pack(b"ZREM", self._list, self.waiter),
        ]

    def _read(self, link: Link) -> Reply:
        self.nonce = ""
        reply = None
        while self._owed:
            self._owed -= 1
            reply = link.read_response()
        self._knows_script = True
        return reply

    def _ready_link(self) -> Link:
        if self._link is not None and self._owed:
            try:
                allow(self._link, _SOON_S)
                self._read(self._link)
                allow(self._link, _PATIENCE_S)
            except (redis.exceptions.RedisError, OSError):
                self.drop()
        if self._link is None:
            self._link = self._server.connect(_PATIENCE_S)
            self._knows_script = False
            self._link.send_packed_command([scripts.pack(b"CLIENT", b"ID")], check_health=False)
            self._id = b"%d" % self._link.read_response()
        return self._link

    def drop(self) -> None:
        link, self._link = self._link, None
        self.nonce, self._owed = "", 0
        if link is not None:
            link.disconnect()

    close = drop
