"""Two Redis servers in cluster mode with one slot between them, which is put into every state that
it has while it moves from one to the other.

1. `Node` is a server and a connection to it; `Pair` two of them that know each other.
2. A `Snapshot` is all that is stored under a partition; it can be put on either node again.
3. `record` notes every call that an engine sends: the command, what was stored before and after it
   and the reply, all in a slot that rests. Such a `Case` can be sent again in any state.
4. `judge` sends it in each state in which all its keys are at hand: the effect must be the same.
   `refuse` sends it with every set of keys that is not complete: nothing may change.
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
from windlass.engine.redis.client.server import Call
from windlass.engine.redis.engine import RedisEngine

NAMESPACE: Final = "w"
SLOT: Final = key_slot(keys.key(NAMESPACE, 0, "meta").encode())
EVERY_KEY: Final = frozenset(keys.KINDS)
#: How long two nodes may take to know each other, in seconds.
PATIENCE_S: Final = 20.0
IN_CLUSTER_MODE: Final = ("--cluster-enabled", "yes", "--cluster-require-full-coverage", "no")
REFUSALS: Final = (b"-TRYAGAIN", b"-ASK")
_ASKING: Final = scripts.pack(b"ASKING")

Value = dict[bytes, bytes] | None  # fields or members; None when there is no such key


def name_of(name: str) -> bytes:
    return keys.key(NAMESPACE, 0, name).encode()


@dataclass(frozen=True)
class Snapshot:
    """What is under each key, to be compared and to be put somewhere again."""

    values: Mapping[str, Value]
    dumps: Mapping[str, bytes]

    def only(self, names: Collection[str]) -> dict[str, Value]:
        return {name: value if name in names else None for name, value in self.values.items()}


# ------------------------------------------------------------------------------------------ nodes


def _connect(port: int, make: Any = Connection) -> Any:
    """The driver's connections have no types of their own."""
    return make(port=port, protocol=2)


class Node:
    """One server in cluster mode, and the only connection that there is to it."""

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
        """The replies to packed commands; errors are replies too."""
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
        """Send very many commands that should be refused; how often which word came back."""
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
        return +said  # without what was never said

    # ----------------------------------------------------------------------------- what is stored

    def place(self, snapshot: Snapshot, names: Collection[str], *states: bytes) -> None:
        """Store these keys of a snapshot and nothing else. The slot is in the first of the states
        meanwhile, and in the last one afterwards."""
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
        """What is under each key, and how many others there are."""
        replies = self.send([_reading(name) for name in keys.KINDS], asking=asking)
        values = {
            name: _to_value(name, reply) for name, reply in zip(keys.KINDS, replies, strict=True)
        }
        strange = self.tell(b"DBSIZE") - sum(value is not None for value in values.values())
        return {**values, "strange": {b"number": b"%d" % strange} if strange else None}


def _reading(name: str) -> bytes:
    if keys.KINDS[name] is keys.Kind.HASH:
        return scripts.pack(b"HGETALL", name_of(name))
    return scripts.pack(b"ZRANGE", name_of(name), b"0", b"-1", b"WITHSCORES")


def _to_value(name: str, reply: Any) -> Value:
    if isinstance(reply, AskError) or not reply:
        return None
    pairs = dict(zip(reply[::2], reply[1::2], strict=True))
    if name == "waiters":  # until when, by the clock of the server, which does not stand still
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
        # Each keeps a slot of its own: a node that has lost its last one becomes a replica.
        self.source.tell(b"CLUSTER", b"ADDSLOTS", b"%d" % SLOT, b"1")
        self.target.tell(b"CLUSTER", b"ADDSLOTS", b"2")
        self.source.tell(b"CLUSTER", b"MEET", b"127.0.0.1", b"%d" % self.target.server.port)
        deadline = time.monotonic() + PATIENCE_S
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
        """The slot is on its way, and so far these keys are here and those are there."""
        self.source.place(snapshot, on_source, RESTING, slot(b"MIGRATING", self.target))
        self.target.place(snapshot, on_target, slot(b"IMPORTING", self.source))

    def rest(self) -> None:
        """The slot is at the source, and nothing is stored."""
        for node in (self.target, self.source):
            node.do([RESTING, scripts.pack(b"FLUSHALL")])

    def hand_over(self, owner: Node, heir: Node) -> None:
        """The move is over. An heir that was importing has the last word on who owns the slot."""
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
        """Really move a key, as a cluster does."""
        port = b"%d" % self.target.server.port
        words = (b"MIGRATE", b"127.0.0.1", port, name_of(name), b"0", b"5000")
        assert self.source.tell(*words) == b"OK"


# ------------------------------------------------------------------------------------------ cases


@dataclass(frozen=True)
class Case:
    """One call of a script, and what it did in a slot that rested."""

    script: Script
    command: bytes
    before: Snapshot
    after: Mapping[str, Value]
    reply: Any

    @property
    def emptied(self) -> frozenset[str]:
        """The keys of which nothing but the sentinel was left."""
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

    def expected(self, at_hand: Collection[str]) -> dict[str, Value]:
        """What is stored at the node that ran it, which has these keys."""
        return {name: value if name in at_hand else None for name, value in self.after.items()}

    def without_sentinel(self, pair: Pair, name: str) -> Case:
        """The same call on the same things, had this key no sentinel."""
        command = b"HDEL" if keys.KINDS[name] is keys.Kind.HASH else b"ZREM"
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
    """What an engine sent, each call once for each thing that it met."""

    cases: dict[tuple[bytes, str], Case] = field(default_factory=dict)

    def add(self, case: Case) -> None:
        self.cases[case.command, repr(case.before.values)] = case

    def most_changing(self, name: str) -> Case:
        """Of the calls of a script, all of whose keys exist, the one that changed most of them."""
        complete = [case for case in self.of(name) if case.is_complete]
        return max(complete, key=lambda case: len(case.changed))

    def of(self, name: str) -> list[Case]:
        return [case for case in self.cases.values() if case.script.name == name]


_BY_SHA: Final = {scripts.load(name).sha: scripts.load(name) for name in scripts.names()}


def _run(node: Node, script: Script, command: bytes, before: Snapshot) -> Case:
    (reply,) = node.send([command])
    return Case(script, command, before, node.values(), reply)


def run_case(pair: Pair, script: Script, before: Snapshot) -> Case:
    """Call a script, which no engine calls, in a slot that rests."""
    pair.source.place(before, EVERY_KEY, RESTING)
    for node in (pair.source, pair.target):
        node.tell(b"SCRIPT", b"LOAD", script.text)
    return _run(pair.source, script, script.prefixes(NAMESPACE, 0).by_digest.command(()), before)


@contextlib.contextmanager
def record(engine: RedisEngine, node: Node, recording: Recording) -> Iterator[None]:
    """Note every call of a script that this engine sends to this node, whose slot rests."""
    server = engine._server
    original = server.run

    def run(calls: Sequence[Call], *deadline: float) -> list[Any]:
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
    """What is wrong with a call while its slot moves: a sentence for each state in which it had
    another effect than in a slot that rests."""
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
    """Call a script with every set of its keys that is not complete, on both nodes; how often they
    said what. With `most`, only with the sets of at most so many keys, and of all but so many.

    No key is moved for it: one that is elsewhere is called by a name that does not exist, which is
    all that a server knows of it.
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
    """Every set of keys but the complete one, put together from two halves that are packed once."""
    names = case.script.keys
    first, second = names[: len(names) // 2], names[len(names) // 2 :]
    head, tail = case.around_keys()
    beginnings = [head + packed for packed in _every_subset(first)]
    endings = [packed + tail for packed in _every_subset(second)]
    for ending in endings[1:]:
        yield [beginning + ending for beginning in beginnings]
    yield [beginning + endings[0] for beginning in beginnings[1:]]


def _every_subset(names: Sequence[str]) -> list[bytes]:
    """For each set of missing keys, none of them first."""
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
