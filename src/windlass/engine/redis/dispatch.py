"""The layer between the operations of the engine and its server: calls of scripts.

1. `_call` makes a call of a script in one partition; `_run` sends several at once, `_ask` one.
2. `_broadcast` makes the same call in every partition. `_spread` sends each partition its part of
   some items and returns the replies in the order of the items.
3. Before the first call, and after the server has lost its scripts, the server is checked, and set
   up if it is new. A server that was emptied is detected.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from msgspec.structs import replace

from windlass.core.ids import new_id
from windlass.engine.contract import BATCH, BATCH_BYTES, EngineOptions, batches
from windlass.engine.redis import keys, setup
from windlass.engine.redis.client import scripts
from windlass.engine.redis.client.pool import PIECE
from windlass.engine.redis.client.scripts import Prefixes
from windlass.engine.redis.client.server import RedisCall, Reply, Server
from windlass.engine.redis.migrate import old_prefix
from windlass.engine.redis.partitions import Partitions
from windlass.engine.redis.setup import PartitionIds
from windlass.engine.redis.url import RedisAddress
from windlass.errors import EngineUnavailable

T = TypeVar("T")
R = TypeVar("R")

#: Scripts with one word per item in their reply, so that the replies of two halves can be joined.
_HALVED: Final = frozenset(
    {"put", "put_any", "put_copies", "put_steps", "revive", "change", "fire", "cancel", "discard"}
)
#: One call has at most this many items.
CHUNK: Final = BATCH


def _no_bytes(_item: object) -> int:
    return 0


class Caller:
    """Base class of the engine: call scripts in partitions."""

    def __init__(self, address: RedisAddress, options: EngineOptions) -> None:
        self._clock_offset_ms = 0
        self._address = address
        self._options = options
        self._limits = [b"%d" % options.lease_ms, b"%d" % options.dead_ttl_ms]
        self._server = Server(address, options)
        self._partitions = Partitions(address.partitions)
        self._prefixes: dict[tuple[str, int], Prefixes] = {}
        self._is_fit = False  # the server has passed the checks
        self._partition_ids = PartitionIds()

    @property
    def clock_offset_ms(self) -> int:
        return self._clock_offset_ms

    @clock_offset_ms.setter
    def clock_offset_ms(self, offset_ms: int) -> None:
        self._clock_offset_ms = offset_ms
        self._prefixes.clear()

    def _pack_prefixes(self, name: str, partition: int) -> Prefixes:
        """Pack the head of calls of a script, which includes its first three arguments."""
        common = [str(self._clock_offset_ms).encode(), *self._limits]
        made = scripts.load(name).prefixes(self._address.namespace, partition, common)
        self._prefixes[name, partition] = made
        return made

    def _call(self, partition: int, name: str, packed: Sequence[bytes]) -> RedisCall:
        found = self._prefixes.get((name, partition)) or self._pack_prefixes(name, partition)
        return RedisCall(found.by_digest.command(packed), found, packed)

    def _call_for(
        self,
        partition: int,
        name: str,
        items: Sequence[T],
        pack: Callable[[Sequence[T]], list[bytes]],
    ) -> RedisCall:
        """Make a call that can be split if it is large. Its reply lists one answer per item, or
        has one answer for all (`put`)."""
        call = self._call(partition, name, pack(items))
        if name not in _HALVED or len(call.command) <= PIECE or len(items) == 1:
            return call

        def halves() -> tuple[RedisCall, RedisCall]:
            some, others = items[: len(items) // 2], items[len(items) // 2 :]
            return (
                self._call_for(partition, name, some, pack),
                self._call_for(partition, name, others, pack),
            )

        return replace(call, halves=halves, join=min if name == "put" else call.join)

    def _bare_call(self, partition: int, name: str, packed: Sequence[bytes]) -> RedisCall:
        """Make a call of a script that does not take the common arguments."""
        found = scripts.load(name).prefixes(self._address.namespace, partition)
        return RedisCall(found.by_digest.command(packed), found, packed)

    def _run(self, calls: Sequence[RedisCall]) -> list[Reply]:
        deadline = time.monotonic() + self._server.timeout_s
        if not self._is_fit or self._server.has_forgotten:
            try:
                self._open(deadline)
            except EngineUnavailable as error:
                error.unsent = True  # the commands of the setup were sent, but none of the calls
                raise
        return self._server.run(calls, deadline) if calls else []

    def _ask(self, partition: int, name: str, packed: Sequence[bytes]) -> Reply:
        """Run one script in one partition and return its reply."""
        return self._run([self._call(partition, name, packed)])[0]

    def _run_in_turn(self, calls: Sequence[RedisCall]) -> list[Reply]:
        """Run calls in turn, when all of them at once would have too much data in flight."""
        replies: list[Reply] = []
        for call in calls:
            try:
                replies += self._run([call])
            except EngineUnavailable as error:
                error.unsent = error.unsent and not replies
                raise
        return replies

    def _broadcast(self, name: str, packed: Sequence[bytes] = ()) -> list[Reply]:
        """Run the same script in every partition."""
        numbers = range(self._partitions.number)
        return self._run([self._call(number, name, packed) for number in numbers])

    def _spread(
        self,
        name: str,
        items: Sequence[T],
        place: Callable[[T], int],
        pack: Callable[[Sequence[T]], list[bytes]],
        unpack: Callable[[Sequence[T], Sequence[Reply]], Sequence[R]],
        size_of: Callable[[T], int] = _no_bytes,
    ) -> list[R]:
        """Run one call per partition that has some of the items; return the answers in the order of
        the items. Items with more bytes than a batch take several calls, in turn."""
        is_small = len(items) <= 1 or sum(map(size_of, items)) <= BATCH_BYTES
        if self._partitions.number == 1 and 0 < len(items) <= CHUNK and is_small:
            (reply,) = self._run([self._call_for(0, name, items, pack)])
            return list(unpack(items, reply))
        calls: list[RedisCall] = []
        where: list[Sequence[int]] = []
        for partition, positions in self._partitions.group(items, place).items():
            for chunk in batches(positions, lambda at: size_of(items[at])):
                some = [items[at] for at in chunk]
                calls.append(self._call_for(partition, name, some, pack))
                where.append(chunk)
        answers: dict[int, R] = {}
        replies = self._run(calls) if is_small else self._run_in_turn(calls)
        for chunk, reply in zip(where, replies, strict=True):
            asked = [items[at] for at in chunk]
            answers.update(zip(chunk, unpack(asked, reply), strict=True))
        return [answers[at] for at in range(len(items))]

    # ------------------------------------------------------------------------ first use

    def _open(self, deadline: float, *, migrates: bool = False) -> int:
        self._is_fit = False  # if this fails, the next call tries again
        self._server.has_forgotten = False
        asked = [scripts.pack(b"INFO", part) for part in (b"server", b"memory")]
        info = setup.read_info(b"\r\n".join(self._server.ask(asked, deadline)))
        setup.check_fit(info, self._address)
        settled = [b"%d" % setup.FORMAT, b"%d" % self._partitions.number]
        birth = new_id(time.time_ns() // 1_000_000).encode()
        births = []
        for partition in range(self._partitions.number):
            old = f"{old_prefix(self._address.namespace, partition)}meta".encode()
            packed = [*settled, birth, old, b"1" if migrates else b"0", *keys.sentinel_scores()]
            (stored,) = self._server.run([self._bare_call(partition, "open", packed)], deadline)
            setup.check_stored(stored, self._address)
            births.append(stored[2])
        self._partition_ids.note(births)
        self._is_fit = True
        return setup.FORMAT

    def _check_identity(self) -> None:
        """Detect a server that was emptied, and set it up again. A restarted server is detected by
        its lost scripts; an emptied server still has its scripts."""
        if self._is_fit and self._partition_ids.have_changed(self._read_partition_ids()):
            self._is_fit = False

    def _read_partition_ids(self) -> list[Reply]:
        """Read the ids that partitions got at their setup."""
        numbers = range(self._partitions.number)
        names = [keys.key(self._address.namespace, number, "meta") for number in numbers]
        asked = [scripts.pack(b"HGET", name.encode(), b"born") for name in names]
        return self._server.ask(asked, self._server.deadline())
