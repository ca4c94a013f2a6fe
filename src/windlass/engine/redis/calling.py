"""From verbs to calls of scripts: what stands between the engine's verbs and its server.

1. `_call` makes a call of a script in one partition, `_run` sends several at once.
2. `_broadcast` asks every partition the same; `_spread` asks each for its part of some items, and
   gives the answers in their order.
3. Before the first call, and after the server has forgotten a script, it is judged, and prepared
   where it is new. One that was emptied meanwhile is noticed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from windlass.core.ids import new_id
from windlass.engine.contract import EngineOptions
from windlass.engine.redis import keys, opening, scripts
from windlass.engine.redis.address import Address
from windlass.engine.redis.connection import Call, Reply, Server
from windlass.engine.redis.opening import Births, Fitness
from windlass.engine.redis.partitions import Partitions
from windlass.engine.redis.scripts import Prefixes

T = TypeVar("T")
R = TypeVar("R")

#: At most so many items go into one call.
CHUNK: Final = 500


class Caller:
    """The part of an engine that calls."""

    def __init__(self, address: Address, options: EngineOptions) -> None:
        self.clock_offset_ms = 0
        self._address = address
        self._options = options
        self._limits = [b"%d" % options.lease_ms, b"%d" % options.dead_ttl_ms]
        self._server = Server(
            address, options.timeout_ms, has_own_connections=options.has_own_connections
        )
        self._partitions = Partitions(address.partitions)
        self._prefixes: dict[tuple[str, int], Prefixes] = {}
        self._fitness: Fitness | None = None  # known once the server was found to be fit
        self._births = Births()

    def _prefixes_of(self, name: str, partition: int) -> Prefixes:
        if (name, partition) not in self._prefixes:
            made = scripts.load(name).prefixes(self._address.namespace, partition)
            self._prefixes[name, partition] = made
        return self._prefixes[name, partition]

    def _call(self, partition: int, name: str, packed: Sequence[bytes]) -> Call:
        found = self._prefixes.get((name, partition)) or self._prefixes_of(name, partition)
        words = [str(self.clock_offset_ms).encode(), *self._limits, *packed]
        return Call(found.by_digest.command(words), found, words)

    def _bare_call(self, partition: int, name: str, packed: Sequence[bytes]) -> Call:
        """Of a script that asks for nothing but what it is given here."""
        found = self._prefixes_of(name, partition)
        return Call(found.by_digest.command(packed), found, packed)

    def _run(self, calls: Sequence[Call]) -> list[Reply]:
        deadline = time.monotonic() + self._server.timeout_s
        if self._fitness is None or self._server.has_forgotten:
            self._open(deadline)
        return self._server.run(calls, deadline) if calls else []

    def _broadcast(self, name: str, packed: Sequence[bytes] = ()) -> list[Reply]:
        """The same call in every partition."""
        numbers = range(self._partitions.number)
        return self._run([self._call(number, name, packed) for number in numbers])

    def _spread(
        self,
        name: str,
        items: Sequence[T],
        id_of: Callable[[T], str],
        pack: Callable[[Sequence[T]], list[bytes]],
        unpack: Callable[[Sequence[T], Sequence[Reply]], Sequence[R]],
        place: Callable[[str], int] | None = None,
    ) -> list[R]:
        """One call for each partition that has some of the items; the answers in their order."""
        if self._partitions.number == 1 and 0 < len(items) <= CHUNK:
            (reply,) = self._run([self._call(0, name, pack(items))])
            return list(unpack(items, reply))
        calls: list[Call] = []
        where: list[Sequence[int]] = []
        for partition, positions in self._partitions.group(items, id_of, place).items():
            for chunk in chunks(positions):
                calls.append(self._call(partition, name, pack([items[at] for at in chunk])))
                where.append(chunk)
        answers: dict[int, R] = {}
        for chunk, reply in zip(where, self._run(calls), strict=True):
            asked = [items[at] for at in chunk]
            answers.update(zip(chunk, unpack(asked, reply), strict=True))
        return [answers[at] for at in range(len(items))]

    # ------------------------------------------------------------------------ the first use

    def _open(self, deadline: float) -> int:
        self._fitness = None  # also when this fails: then it is tried again
        self._server.has_forgotten = False
        fitness = self._judge(deadline)
        settled = [b"%d" % opening.FORMAT, b"%d" % self._partitions.number]
        birth = new_id(time.time_ns() // 1_000_000).encode()
        packed = [*settled, birth, *keys.sentinel_scores()]
        births = []
        for partition in range(self._partitions.number):
            (stored,) = self._server.run([self._bare_call(partition, "open", packed)], deadline)
            opening.check_stored(stored, self._address)
            births.append(stored[2])
        self._births.note(births)
        self._fitness = fitness
        return opening.FORMAT

    def _judge(self, deadline: float) -> Fitness:
        asked = [scripts.pack(b"INFO", part) for part in (b"server", b"memory", b"persistence")]
        info = b"\r\n".join(self._server.ask(asked, deadline))
        return opening.judge(opening.read_info(info), self._address)

    def _recognise(self) -> None:
        """A server that was restarted has forgotten scripts, and is prepared again for that; one
        that was emptied has not."""
        if self._fitness is not None and self._births.have_changed(self._born()):
            self._fitness = None

    def _born(self) -> list[Reply]:
        """The ids that partitions got when they were set up."""
        numbers = range(self._partitions.number)
        names = [keys.key(self._address.namespace, number, "meta") for number in numbers]
        asked = [scripts.pack(b"HGET", name.encode(), b"born") for name in names]
        return self._server.ask(asked, self._server.deadline())


def chunks(items: Sequence[T]) -> list[Sequence[T]]:
    return [items[at : at + CHUNK] for at in range(0, len(items), CHUNK)]
