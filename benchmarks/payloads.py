"""`python -m benchmarks.payloads`: what codecs and seals cost, in bytes and microseconds.

Each line is one call, stored and read again as an app and a worker do it, without an engine: the
fidelity of the values is checked, the envelope packed, the seal made and opened. The time is the
least of several rounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec

from windlass import Windlass
from windlass.core.serialization.envelope import Envelope

_SECRET: Final = "only-for-measuring-32-characters-or-more"
_ROUNDS: Final = 300
_REPEATS: Final = 10

WAYS: Final[dict[str, dict[str, Any]]] = {
    "JSON": {},
    "msgpack": {"codec": "msgpack"},
    "pickle, signed": {"codec": "pickle", "secret": _SECRET},
    "JSON, encrypted": {"secret": _SECRET, "encrypt": True},
    "msgpack, encrypted": {"codec": "msgpack", "secret": _SECRET, "encrypt": True},
}


class Order(msgspec.Struct):
    id: int
    placed: datetime
    lines: list[dict[str, float]]


def small(user_id: int, template: str) -> None: ...
def order(order: Order) -> None: ...
def image(data: bytes) -> None: ...


_ORDER: Final = Order(7, datetime(2024, 2, 29, tzinfo=UTC), [{"price": 9.9, "n": 2.0}] * 40)
CALLS: Final[dict[str, tuple[Callable[..., object], tuple[Any, ...]]]] = {
    "an id and a name": (small, (42, "welcome")),
    "an order of 40 lines": (order, (_ORDER,)),
    "64 KiB of bytes": (image, (bytes(range(256)) * 256,)),
}


class Figure(NamedTuple):
    call: str
    way: str
    size: int
    write_us: float
    read_us: float


def measure(call: str, way: str) -> Figure:
    function, arguments = CALLS[call]
    task = Windlass("sqlite:///:memory:", **WAYS[way]).task(name="task")(function)
    packing, codec = task.app.packing, task.codec

    def write() -> bytes:
        encoded = codec.encode(arguments, {})
        return packing.pack_call(Envelope(task="task", call=msgspec.Raw(encoded), codec=codec.mark))

    def read() -> object:
        envelope = packing.unpack_call(stored, "task")
        return task.codecs[envelope.codec].decode(bytes(envelope.call))

    stored = write()
    return Figure(call, way, len(stored), _least_us(write), _least_us(read))


def _least_us(step: Callable[[], object]) -> float:
    rounds = []
    for _ in range(_ROUNDS):
        begin = time.perf_counter_ns()
        for _ in range(_REPEATS):
            step()
        rounds.append((time.perf_counter_ns() - begin) / _REPEATS / 1_000)
    return min(rounds)


def main() -> None:
    print("| call | stored as | bytes | written in | read in |\n| --- | --- | --- | --- | --- |")
    for call in CALLS:
        for way in WAYS:
            _, _, size, write_us, read_us = measure(call, way)
            print(f"| {call} | {way} | {size:,} | {write_us:.0f} µs | {read_us:.0f} µs |")


if __name__ == "__main__":
    main()
