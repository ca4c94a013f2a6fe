"""Write the hash tags of partitions: `python tools/make_partition_tags.py`.

Stored keys contain these tags, so a released table never changes. A test compares the table with
this tool.
"""

from __future__ import annotations

import string
from binascii import crc_hqx
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Final

SLOTS: Final = 16_384
PARTITIONS: Final = 1_024
MODULE: Final = (
    Path(__file__).parent.parent / "src" / "windlass" / "engine" / "redis" / "partition_tags.py"
)
_LETTERS: Final = string.digits + string.ascii_lowercase
_SIZE: Final = 3
_TAGS_PER_LINE: Final = 30
_HEAD: Final = '''"""The hash tags of partitions, which decide their slots in a cluster.

The tag of a partition depends on its number only. The slots of the first 2, 4, 8 ... partitions are
evenly spaced, so that they lie evenly on any number of nodes with equal ranges of slots.
`tools/make_partition_tags.py` wrote this module. Stored keys contain the tags: never change them.
"""

from __future__ import annotations

from typing import Final

_SIZE: Final = 3
_TAGS: Final = (
'''
_TAIL: Final = """)


def tag_of(partition: int) -> str:
    return _TAGS[_SIZE * partition : _SIZE * (partition + 1)]
"""


def slot_of(tag: str) -> int:
    """The slot of keys with this tag, as Redis computes it."""
    return crc_hqx(tag.encode(), 0) % SLOTS


def best_slot(partition: int) -> int:
    """The middle of the range of slots of a partition. The bits of its number, in reverse order,
    number the ranges: partition 1 is in the second half, 2 and 3 are in the second quarter of each
    half, and so on."""
    bits = PARTITIONS.bit_length() - 1
    number = int(f"{partition:0{bits}b}"[::-1], 2)
    width = SLOTS // PARTITIONS
    return number * width + width // 2


def tags() -> Iterator[str]:
    """For each partition the tag whose slot is nearest to the best one, then the first by name."""
    by_slot: dict[int, str] = {}
    for letters in product(_LETTERS, repeat=_SIZE):
        tag = "".join(letters)
        by_slot.setdefault(slot_of(tag), tag)
    for best in map(best_slot, range(PARTITIONS)):
        _, slot = min((abs(slot - best), slot) for slot in by_slot)
        yield by_slot[slot]


def text() -> str:
    found = list(tags())
    starts = range(0, len(found), _TAGS_PER_LINE)
    lines = ("".join(found[start : start + _TAGS_PER_LINE]) for start in starts)
    return _HEAD + "".join(f'    "{line}"\n' for line in lines) + _TAIL


if __name__ == "__main__":
    MODULE.write_text(text(), encoding="utf-8")
