"""The ring of ended jobs: partitions for spans of time in which records expire.

A record goes into the partition of the span in which it expires. While a partition is small,
expired records are removed row by row. A large partition waits until all of its records have
expired, and is emptied as a whole, which leaves no dead rows behind. Nothing relies on the spans:
an expired record that was left behind is removed by row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from windlass.engine.contract import BITE
from windlass.engine.postgres.statements import pack_numbers
from windlass.engine.postgres.transaction import Transaction, lock_number

#: The length of a span.
SLOT_MS: Final = 30 * 60 * 1000
#: The number of these partitions. Records that are kept for longer have a partition of their own.
SLOTS: Final = 8
#: Records that expire later than this do not fit: the last partitions are still being emptied.
RING_MS: Final = SLOT_MS * (SLOTS - 2)
#: A partition with more bytes than this is emptied as a whole.
LARGE: Final = 16 * 1024 * 1024


class Slot(NamedTuple):
    """A partition; the row of the statement `list_slots`."""

    number: int
    size: int
    has_records: bool  # that have not expired

    @property
    def is_large(self) -> bool:
        return self.size > LARGE


def list_slots(tx: Transaction) -> list[Slot]:
    return [Slot(*row) for row in tx.rows("list_slots", tx.now_ms)]


def purge(tx: Transaction, slots: Sequence[Slot]) -> int:
    """Remove a bounded number of expired records, but not from large partitions, unless they were
    left behind there; return their number."""
    if not _may_remove(tx):
        return 0
    spared = pack_numbers(slot.number for slot in slots if slot.is_large)
    gone = tx.rows("purge_ended", tx.now_ms, BITE, spared, tx.now_ms - RING_MS)
    for line, number in gone:
        tx.counts[line, "succeeded"] -= number
    return sum(number for _, number in gone)


def empty(tx: Transaction, slot: Slot) -> int:
    """Empty a partition whose records have all expired; return their number. Fails if other
    transactions use the table for longer than a moment."""
    if not _may_remove(tx):
        return 0
    tx.run("prepare_emptying")
    tx.rows_of_slot("close_slot", slot.number)
    if tx.rows_of_slot("slot_has_records", slot.number, tx.now_ms):
        return 0
    found = tx.rows_of_slot("count_slot", slot.number)
    tx.rows_of_slot("forget_keys_of_slot", slot.number)
    tx.rows_of_slot("forget_failures_of_slot", slot.number)
    tx.rows_of_slot("forget_steps_of_slot", slot.number)
    tx.rows_of_slot("lock_slot", slot.number)
    tx.rows_of_slot("truncate_slot", slot.number)
    for line, number in found:
        tx.counts[line, "succeeded"] -= number
    return sum(number for _, number in found)


def _may_remove(tx: Transaction) -> bool:
    """Keep other transactions from removing records, which two would count; return whether that
    was possible without waiting."""
    return bool(tx.first("try_upkeep", lock_number(tx.schema, "ring")))
