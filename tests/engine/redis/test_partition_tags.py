"""The tags of partitions: the slots of any namespace are evenly spaced."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from redis.crc import key_slot

from tools import make_partition_tags
from windlass.core.ids import PARTITIONS
from windlass.engine.redis.keys import KINDS, key
from windlass.engine.redis.partition_tags import tag_of

SLOTS = 16_384
TAGS = [tag_of(partition) for partition in range(PARTITIONS)]


def slots_of(namespace: str, partitions: int) -> list[int]:
    """The slots of the first partitions, as a cluster client computes them."""
    return [key_slot(key(namespace, number, "job").encode()) for number in range(partitions)]


def test_the_table_is_as_the_tool_writes_it() -> None:
    assert make_partition_tags.MODULE.read_text(encoding="utf-8") == make_partition_tags.text()


def test_every_partition_has_a_tag_of_its_own() -> None:
    assert len(set(TAGS)) == PARTITIONS == make_partition_tags.PARTITIONS
    assert all(re.fullmatch("[0-9a-z]{3}", tag) for tag in TAGS)
    assert [make_partition_tags.slot_of(tag) for tag in TAGS] == slots_of("windlass", PARTITIONS)


def test_the_tags_of_stored_keys_never_change() -> None:
    assert TAGS[:16] == [
        *("fkt", "1cb", "fzv", "16h", "bgy", "5oo", "b2s", "a5u"),
        *("3ed", "dmr", "30n", "d8x", "7ii", "hhg", "7xk", "hye"),
    ]
    assert key("windlass", 0, "job") == "windlass:{fkt}:job"


@pytest.mark.parametrize("namespace", ["windlass", "a", "shop.eu-1_test"])
def test_all_keys_of_a_partition_are_in_its_slot(namespace: str) -> None:
    for partition in (0, 1, 5, 1023):
        slots = {key_slot(key(namespace, partition, name).encode()) for name in KINDS}
        assert slots == {make_partition_tags.slot_of(tag_of(partition))}


@pytest.mark.parametrize("bits", range(11))
def test_any_power_of_two_of_partitions_is_evenly_spaced(bits: int) -> None:
    number = 2**bits
    slots = sorted(slots_of("windlass", number))
    wanted = [at * (SLOTS // number) + 8 for at in range(number)]
    assert all(abs(slot - best) <= 1 for slot, best in zip(slots, wanted, strict=True))


@pytest.mark.parametrize("namespace", ["windlass", "shop"])
@pytest.mark.parametrize("masters", [1, 2, 3, 4, 6, 8, 16])
def test_sixteen_partitions_lie_evenly_on_masters(masters: int, namespace: str) -> None:
    """Masters have equal ranges of slots, as `redis-cli --cluster create` makes them."""
    ends = [round((at + 1) * SLOTS / masters) for at in range(masters)]
    found = Counter(
        next(at for at, end in enumerate(ends) if slot < end) for slot in slots_of(namespace, 16)
    )
    assert len(found) == masters
    assert max(found.values()) - min(found.values()) <= 1
