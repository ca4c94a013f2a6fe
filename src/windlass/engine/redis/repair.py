"""`repair`: the walks over a partition, their order, and the cursor.

Records come first: every index gets the entries that follow from them. Then every index loses
entries that follow from no record. At last the counters are recounted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from windlass.engine.contract import Repaired

WALKS: Final = (
    *("sentinels", "job", "ids", "ready", "due", "parked", "held", "asked", "keep", "dead"),
    *("unique", "lines", "ready_lines", "body", "keys", "key_expiry", "lease"),
    *("schedule", "schedule_names", "schedule_due", "settings", "counts"),
)
_BEGIN: Final = "0"


class Position(NamedTuple):
    """The cursor of a repair."""

    partition: int
    walk: int
    far: str

    def words(self) -> list[bytes]:
        return [WALKS[self.walk].encode(), self.far.encode("utf-8", "surrogateescape")]

    def after(self, far: str, partitions: int) -> str | None:
        if far:
            return f"{self.partition}:{self.walk}:{far}"
        if self.walk + 1 < len(WALKS):
            return f"{self.partition}:{self.walk + 1}:{_BEGIN}"
        if self.partition + 1 < partitions:
            return f"{self.partition + 1}:0:{_BEGIN}"
        return None


def read_cursor(cursor: str | None) -> Position:
    if cursor is None:
        return Position(0, 0, _BEGIN)
    partition, walk, far = cursor.split(":", 2)
    return Position(int(partition), int(walk), far)


def to_repaired(at: Position, reply: Sequence[bytes], partitions: int) -> Repaired:
    far, *said = reply
    pairs = list(zip(said[::2], said[1::2], strict=True))
    return Repaired(
        fixed=tuple(_text(sentence) for can, sentence in pairs if can == b"1"),
        left=tuple(_text(sentence) for can, sentence in pairs if can == b"0"),
        cursor=at.after(far.decode("utf-8", "surrogateescape"), partitions),
    )


def _text(sentence: bytes) -> str:
    return sentence.decode("utf-8", "replace")
