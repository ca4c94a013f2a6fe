"""Two Redis servers in cluster mode that share one slot, which is put into every state of its move
from one server to the other.

1. `Node` is a server and a connection to it; `Pair` is two connected nodes.
2. A `Snapshot` is all data of a partition; it can be restored on either node.
3. `record` records every call of an engine: the command, the data before and after it and the
   reply, all in a stable slot. A recorded `Case` can be sent again in any state.
4. `judge` sends it in each state in which all its keys are available: the effect must be the same.
   `refuse` sends it with every incomplete set of keys: nothing may change.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from threading import Thread
from typing import Any, Final

import pytest
from redis.connection import Connection
from redis.crc import key_slot
from redis.exceptions import AskError, ResponseError, TryAgainError

from tests.redis_server import RedisServer, private_server
from windlass.engine.redis import keys
from windlass.engine.redis.client import scripts
from windlass.engine.redis.client.scripts import Script
from windlass.engine.redis.client.server import RedisCall
from windlass.engine.redis.engine import RedisEngine

NAMESPACE: Final = "w"
SLOT: Final = key_slot(keys.key(NAMESPACE, 0, "meta").encode())
EVERY_KEY: Final = frozenset(keys.KINDS)
#: How long two nodes may take to connect, in seconds.
MEET_TIMEOUT_S: Final = 20.0
IN_CLUSTER_MODE: Final = ("--cluster-enabled", "yes", "--cluster-require-full-coverage", "no")
REFUSALS: Final = (b"-TRYAGAIN", b"-ASK")
_ASKING: Final = scripts.pack(b"ASKING")

Value = dict[bytes, bytes] | None  # fields or members; None when there is no such key


def name_of(name: str) -> bytes:
    return keys.key(NAMESPACE, 0, name).encode()


@dataclass(frozen=True)
class Snapshot:
    """The data under each key, to compare and to restore."""

    values: Mapping[str, Value]
    dumps: Mapping[str, bytes]

    def only(self, names: Collection[str]) -> dict[str, Value]:
        return {name: value if name in names else None for name, value in self.values.items()}


# ------------------------------------------------------------------------------------------ nodes


def _connect(port: int, make: Any = Connection) -> Any:
    """Connect with the driver, whose connections have no type hints."""
    return make(port=port, protocol=2)


class Node:
    """One server in cluster mode, and the only connection to it."""

    def __init__(self) -> None:
        self.server: RedisServer = private_server(*IN_CLUSTER_MODE, "--appendonly", "no")
        self._connection = _connect(self.server.port)
        self._flood = socket.create_connection(("127.0.0.1", self.server.port), timeout=30)
        self.id: bytes = self.tell(b"CLUSTER", b"MYID")
        for name in scripts.names():
            self.tell(b"SCRIPT", b"LOAD", scripts.load(name).text)

    def end(self) -> None:
        self._connection.disconnect()
        self._flood.close()
        self.server.end()

    def tell(self, *words: bytes) -> Any:
        (reply,) = self.send([scripts.pack(*words)])
        if isinstance(reply, ResponseError):
            raise reply
        return reply

    def do(self, commands: Sequence[bytes]) -> None:
        """Send packed commands that must succeed."""
        replies = self.send(commands)
        assert replies == [b"OK"] * len(commands), replies

    def send(self, commands: Sequence[bytes], *, asking: bool = False) -> list[Any]:
        """Send packed commands and return their replies; errors are replies too."""
        self._connection.send_packed_command([_ASKING + c if asking else c for c in commands])
        replies = []
        for _ in commands:
            if asking:
                self._connection.read_response()
            replies.append(self._read())
        return replies

    def _read(self) -> Any:
        try:
            return self._connection.read_response()
        except ResponseError as error:
            return error

    def flood(self, commands: Sequence[bytes], *, asking: bool) -> Counter[bytes]:
        """Send very many commands that should be refused; count the replies by their first word."""
        between = _ASKING if asking else b""
        packed = between + between.join(commands)
        sending = Thread(target=self._flood.sendall, args=(packed,))
        sending.start()
        lines = missing = len(commands) * (2 if asking else 1)
        received = []
        while missing > 0:
            received.append(self._flood.recv(1 << 20))
            missing -= received[-1].count(b"\n")
        sending.join()
        replies = b"".join(received)
        said = Counter({word: replies.count(word) for word in REFUSALS})
        said[b"else"] = lines - said.total() - replies.count(b"+OK\r\n")
        return +said  # without zeros

    # ----------------------------------------------------------------------------- what is stored

    def place(self, snapshot: Snapshot, names: Collection[str], *states: bytes) -> None:
        """Store only these keys of a snapshot. The slot is in the first of the states during this,
        and in the last one afterwards."""
        restore = [
            scripts.pack(b"RESTORE-ASKING", name_of(name), b"0", dump)
            for name, dump in snapshot.dumps.items()
            if name in names
        ]
        self.do([states[0], scripts.pack(b"FLUSHALL"), *restore, *states[1:]])

    def snapshot(self) -> Snapshot:
        names = list(keys.KINDS)
        dumps = self.send([scripts.pack(b"DUMP", name_of(name)) for name in names])
        found = {name: dump for name, dump in zip(names, dumps, strict=True) if dump is not None}
        return Snapshot(self.values(), found)

    def values(self, *, asking: bool = False) -> dict[str, Value]:
        """Read the data under each key, and count other keys."""
        replies = self.send([_reading(name) for name in keys.KINDS], asking=asking)
        values = {
            name: _to_value(name, reply) for name, reply in zip(keys.KINDS, replies, strict=True)
        }
        strange = self.tell(b"DBSIZE") - sum(value is not None for value in values.values())
        return {**values, "strange": {b"number": b"%d" % strange} if strange else None}


def _reading(name: str) -> bytes:
    if keys.KINDS[name] is keys.KeyKind.HASH:
        return scripts.pack(b"HGETALL", name_of(name))
    return scripts.pack(b"ZRANGE", name_of(name), b"0", b"-1", b"WITHSCORES")


def _to_value(name: str, reply: Any) -> Value:
    if isinstance(reply, AskError) or not reply:
        return None
    pairs = dict(zip(reply[::2], reply[1::2], strict=True))
    if name == "waiters":  # contains an instant of the server's clock, which moves
        return dict.fromkeys(pairs, b"")
    return pairs


def slot(state: bytes, *nodes: Node) -> bytes:
    """The command that puts the slot into a state."""
    ids = (node.id for node in nodes)
    return scripts.pack(b"CLUSTER", b"SETSLOT", b"%d" % SLOT, state, *ids)


RESTING: Final = slot(b"STABLE")


class Pair:
    """A slot that belongs to `source` and moves to `target`."""

    def __init__(self) -> None:
        self.source, self.target = Node(), Node()
        # Each node keeps another slot: a node that has lost its last one becomes a replica.
        self.source.tell(b"CLUSTER", b"ADDSLOTS", b"%d" % SLOT, b"1")
        self.target.tell(b"CLUSTER", b"ADDSLOTS", b"2")
        self.source.tell(b"CLUSTER", b"MEET", b"127.0.0.1", b"%d" % self.target.server.port)
        deadline = time.monotonic() + MEET_TIMEOUT_S
        while not (self._knows(self.source, self.target) and self._knows(self.target, self.source)):
            assert time.monotonic() < deadline, "the nodes do not find each other"
            time.sleep(0.02)

    def _knows(self, node: Node, other: Node) -> bool:
        nodes, info = node.tell(b"CLUSTER", b"NODES"), node.tell(b"CLUSTER", b"INFO")
        is_met = other.id in nodes and b"handshake" not in nodes and b"%d" % SLOT in nodes
        return is_met and b"cluster_state:ok" in info

    def end(self) -> None:
        self.source.end()
        self.target.end()

    def begin(
        self, snapshot: Snapshot, on_source: Collection[str], on_target: Collection[str]
    ) -> None:
        """Start the move, with these keys here and those there."""
        self.source.place(snapshot, on_source, RESTING, slot(b"MIGRATING", self.target))
        self.target.place(snapshot, on_target, slot(b"IMPORTING", self.source))

    def rest(self) -> None:
        """Return the slot to the source, without data."""
        for node in (self.target, self.source):
            node.do([RESTING, scripts.pack(b"FLUSHALL")])

    def hand_over(self, owner: Node, heir: Node) -> None:
        """End the move. The importing node has the last word on the owner of the slot."""
        heir.do([slot(b"IMPORTING", owner)])
        for node in (heir, owner):
            node.do([slot(b"NODE", heir)])

    def call_source(self, case: Case) -> Any:
        (reply,) = self.source.send([case.command])
        return reply

    def call_target(self, case: Case) -> Any:
        (reply,) = self.target.send([case.command], asking=True)
        return reply

    def values(self) -> tuple[dict[str, Value], dict[str, Value]]:
        return self.source.values(), self.target.values(asking=True)

    def move(self, name: str) -> None:
        """Move a key for real, as a cluster does."""
        port = b"%d" % self.target.server.port
        words = (b"MIGRATE", b"127.0.0.1", port, name_of(name), b"0", b"5000")
        assert self.source.tell(*words) == b"OK"


# ------------------------------------------------------------------------------------------ cases


@dataclass(frozen=True)
class Case:
    """One call of a script, and its effect in a stable slot."""

    script: Script
    command: bytes
    before: Snapshot
    after: Mapping[str, Value]
    reply: Any

    @property
    def emptied(self) -> frozenset[str]:
        """The keys that were left with only their sentinel."""
        return frozenset(
            name
            for name, value in self.before.values.items()
            if value is not None and len(value) > 1 and len(self.after[name] or {}) == 1
        )

    @property
    def changed(self) -> set[str]:
        return {name for name, value in self.before.values.items() if value != self.after[name]}

    @property
    def is_complete(self) -> bool:
        """Whether all keys that the script declares exist."""
        return all(self.before.values[name] is not None for name in self.script.keys)

    def expected(self, available: Collection[str]) -> dict[str, Value]:
        """The data at the node that ran the call with these keys."""
        return {name: value if name in available else None for name, value in self.after.items()}

    def without_sentinel(self, pair: Pair, name: str) -> Case:
        """The same call on the same data without the sentinel of this key."""
        command = b"HDEL" if keys.KINDS[name] is keys.KeyKind.HASH else b"ZREM"
        pair.source.place(self.before, EVERY_KEY, RESTING)
        pair.source.tell(command, name_of(name), b"")
        return _run(pair.source, self.script, self.command, pair.source.snapshot())

    def around_keys(self) -> tuple[bytes, bytes]:
        """The command before and after the names of the keys."""
        names = _packed_names(self.script.keys, ())
        assert self.command.count(names) == 1
        head, _, tail = self.command.partition(names)
        return head, tail


@dataclass
class Recording:
    """The calls of an engine, each once for each state that it met."""

    cases: dict[tuple[bytes, str], Case] = field(default_factory=dict)

    def add(self, case: Case) -> None:
        self.cases[case.command, repr(case.before.values)] = case

    def most_changing(self, name: str) -> Case:
        """The call of a script that changed most keys, among those whose keys all exist."""
        complete = [case for case in self.of(name) if case.is_complete]
        return max(complete, key=lambda case: len(case.changed))

    def distinct(self, name: str) -> list[Case]:
        """The calls of a script, but of equal calls that changed nothing only the last one."""
        cases = self.of(name)
        reads = {case.command: case for case in cases if not case.changed}
        return [case for case in cases if case.changed or reads[case.command] is case]

    def of(self, name: str) -> list[Case]:
        return [case for case in self.cases.values() if case.script.name == name]


_BY_SHA: Final = {scripts.load(name).sha: scripts.load(name) for name in scripts.names()}


def _run(node: Node, script: Script, command: bytes, before: Snapshot) -> Case:
    (reply,) = node.send([command])
    return Case(script, command, before, node.values(), reply)


def run_case(pair: Pair, script: Script, before: Snapshot) -> Case:
    """Call a script that no engine calls, in a stable slot."""
    pair.source.place(before, EVERY_KEY, RESTING)
    for node in (pair.source, pair.target):
        node.tell(b"SCRIPT", b"LOAD", script.text)
    return _run(pair.source, script, script.prefixes(NAMESPACE, 0).by_digest.command(()), before)


@contextlib.contextmanager
def record(engine: RedisEngine, node: Node, recording: Recording) -> Iterator[None]:
    """Record every call of a script that this engine sends to this node, whose slot is stable."""
    server = engine._server
    original = server.run

    def run(calls: Sequence[RedisCall], *deadline: float) -> list[Any]:
        replies = []
        for call in calls:
            before = node.snapshot()
            replies += original([call], *deadline)
            if call.prefixes is None:
                continue
            (script,) = (script for sha, script in _BY_SHA.items() if sha in call.command)
            case = Case(script, call.command, before, node.values(), replies[-1])
            recording.add(case)
        return replies

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server, "run", run)
        yield


# ---------------------------------------------------------------------------------------- verdicts


def judge(pair: Pair, case: Case) -> list[str]:
    """Check a call while its slot moves: return a sentence for each state with another effect than
    in a stable slot."""
    declared = frozenset(case.script.keys)
    others = EVERY_KEY - declared
    nothing: frozenset[str] = frozenset()
    states = (
        ("migrating, nothing has moved", EVERY_KEY, nothing, False),
        ("migrating, what it does not declare has moved", declared, others, False),
        ("importing, all has arrived", nothing, EVERY_KEY, True),
        ("importing, what it does not declare has not arrived", others, declared, True),
    )
    wrong = []
    for words, on_source, on_target, at_target in states:
        pair.begin(case.before, on_source, on_target)
        untouched = (case.before.only(on_source), case.before.only(on_target))
        if at_target:
            reply = pair.call_target(case)
            done = (untouched[0], case.expected(on_target))
        else:
            reply = pair.call_source(case)
            done = (case.expected(on_source), untouched[1])
        is_done = is_same(reply, case.reply) and pair.values() == done
        is_left = is_refusal(reply) and not case.is_complete and pair.values() == untouched
        if not (is_done or is_left):
            wrong.append(f"{case.script.name}, {words}: {reply!r}")
    return wrong


def is_refusal(reply: Any) -> bool:
    return isinstance(reply, (AskError, TryAgainError))


def is_same(reply: Any, other: Any) -> bool:
    return not isinstance(reply, Exception) and bool(reply == other)


def refuse(pair: Pair, case: Case, *, most: int | None = None) -> Counter[bytes]:
    """Call a script with every incomplete set of its keys, on both nodes; count the replies. With
    `most`, only with sets of at most `most` keys, and with sets that miss at most `most` keys.

    No key is moved for it: a key on the other node is named by a name that does not exist, which is
    all that a server knows about it.
    """
    pair.begin(case.before, EVERY_KEY, EVERY_KEY)
    before = pair.values()
    said: Counter[bytes] = Counter()
    for commands in _exhaustive(case) if most is None else _at_the_edges(case, most):
        for node, asking in ((pair.source, False), (pair.target, True)):
            said.update(node.flood(commands, asking=asking))
    assert pair.values() == before, f"{case.script.name} changed something: {dict(said)}"
    return said


def _exhaustive(case: Case) -> Iterator[list[bytes]]:
    """Every incomplete set of keys, built from two halves that are packed once."""
    names = case.script.keys
    first, second = names[: len(names) // 2], names[len(names) // 2 :]
    head, tail = case.around_keys()
    beginnings = [head + packed for packed in _every_subset(first)]
    endings = [packed + tail for packed in _every_subset(second)]
    for ending in endings[1:]:
        yield [beginning + ending for beginning in beginnings]
    yield [beginning + endings[0] for beginning in beginnings[1:]]


def _every_subset(names: Sequence[str]) -> list[bytes]:
    """For each set of missing keys, the empty one first."""
    sizes = range(len(names) + 1)
    return [
        _packed_names(names, missing) for size in sizes for missing in combinations(names, size)
    ]


def _at_the_edges(case: Case, most: int) -> Iterator[list[bytes]]:
    names = case.script.keys
    head, tail = case.around_keys()
    sizes = [*range(1, most + 1), *range(len(names) - most, len(names) + 1)]
    for size in sizes:
        yield [head + _packed_names(names, lost) + tail for lost in combinations(names, size)]


def _packed_names(names: Sequence[str], missing: Collection[str]) -> bytes:
    called = [name_of(name) + b"-" * (name in missing) for name in names]
    return b"".join(b"$%d\r\n%b\r\n" % (len(name), name) for name in called)
