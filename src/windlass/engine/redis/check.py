"""`check` and `repair`: walk over every index of a partition, in bounded batches.

Every batch is one script, so its findings hold for one instant, also while other clients write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from windlass.engine.contract import Repaired

#: Steps of a check: every job, then every index, then schedules.
_CHECKS: Final = (
    *("job", "ready", "due", "parked", "held", "asked", "keep", "cancelled", "dead", "deaths"),
    *(
        "dead_groups",
        "listed_groups",
        "unique",
        "lease",
        "body",
        "steps",
        "schedule_names",
        "schedule_due",
        "lines",
        "ready_lines",
    ),
)
#: Steps of a repair. Records come first: each index gains the entries that records call for. Then
#: each index loses entries without a record. The counters are recounted last.
_REPAIRS: Final = (
    *("sentinels", "job", "ready", "due", "parked", "held", "asked", "keep", "cancelled", "dead"),
    *(
        "deaths",
        "dead_groups",
        "listed_groups",
        "unique",
        "lines",
        "ready_lines",
        "body",
        "steps",
        "keys",
        "key_expiry",
        "lease",
    ),
    *("schedule", "schedule_names", "schedule_due", "settings", "pairs", "counts"),
)
_BEGIN: Final = "0"

#: Run a script with arguments in a partition. The reply is the next cursor, empty at the end, then
#: findings.
Ask = Callable[[int, str, Sequence[bytes]], Any]


def check(ask: Ask, partitions: int) -> list[str]:
    return [sentence for number in range(partitions) for sentence in _check(ask, number)]


def _check(ask: Ask, partition: int) -> Iterator[str]:
    _, *said = ask(partition, "check", [b"counts", b""])
    yield from map(_text, said)
    for walk in _CHECKS:
        far = _BEGIN.encode()
        while far:
            far, *said = ask(partition, "check", [walk.encode(), far])
            yield from map(_text, said)


def repair(ask: Ask, partitions: int, cursor: str | None, change: bool) -> Repaired:
    """Run one batch. The cursor names the partition, step and position of the next batch."""
    numbers = cursor.split(":", 2) if cursor else ("0", "0", _BEGIN)
    partition, walk, begin = int(numbers[0]), int(numbers[1]), numbers[2]
    words = [_REPAIRS[walk].encode(), begin.encode("utf-8", "surrogateescape")]
    far, *said = ask(partition, "repair", [*words, b"1" if change else b"0"])
    pairs = list(zip(said[::2], said[1::2], strict=True))
    following: str | None = None
    if far:
        following = f"{partition}:{walk}:{far.decode('utf-8', 'surrogateescape')}"
    elif walk + 1 < len(_REPAIRS):
        following = f"{partition}:{walk + 1}:{_BEGIN}"
    elif partition + 1 < partitions:
        following = f"{partition + 1}:0:{_BEGIN}"
    return Repaired(
        fixed=tuple(_text(sentence) for can, sentence in pairs if can == b"1"),
        left=tuple(_text(sentence) for can, sentence in pairs if can == b"0"),
        cursor=following,
    )


def _text(sentence: bytes) -> str:
    return sentence.decode("utf-8", "replace")
