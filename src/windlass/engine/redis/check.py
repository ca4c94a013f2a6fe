"""`check`: verify that indexes, counters and records agree, in bounded batches.

Every batch is one script, so its findings hold for one instant, also while other clients write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

#: The walks from beginning to end: over every job, then every index, and schedules.
WALKS: Final = (
    *("ids", "ready", "due", "parked", "held", "asked", "keep", "dead", "unique", "lease"),
    *("schedule_names", "schedule_due", "lines", "ready_lines"),
)

#: (partition, walk, cursor) -> next cursor, empty at the end; then a sentence for each fault
Ask = Callable[[int, str, str], Sequence[bytes]]


def check(ask: Ask, partitions: int) -> list[str]:
    return [sentence for number in range(partitions) for sentence in _check(ask, number)]


def _check(ask: Ask, partition: int) -> Iterator[str]:
    yield from _sentences(ask(partition, "counts", ""))
    for walk in WALKS:
        far: str | None = "0"
        while far:
            reply = ask(partition, walk, far)
            far = reply[0].decode("utf-8", "surrogateescape")
            yield from _sentences(reply)


def _sentences(reply: Sequence[bytes]) -> Iterator[str]:
    for text in reply[1:]:
        yield text.decode("utf-8", "replace")
