"""Pages of jobs: the order of `find`, its cursor, and the walk that every engine shares.

1. `JobIndex` lists the indexes in the order in which `find` reads them; `indexes_for` chooses those
   that a filter needs.
2. `to_cursor` and `read_cursor` convert a position in an index to a URL-safe text and back.
3. `collect` reads indexes, a bounded number of records, until a page is full.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Final, Generic, NamedTuple, TypeVar

from windlass.core.states import State
from windlass.engine.contract.jobs import MIN_RECORD_MS, Filter
from windlass.errors import InvalidCursor

Item = TypeVar("Item")

#: A page reads about this many records, in all partitions together. If few of them match, the page
#: is short and has a cursor.
SCAN_BUDGET: Final = 10_000


class JobIndex(StrEnum):
    """The indexes of jobs, in the order in which `find` reads them. Every job is in one of them;
    dead jobs are in `GROUPED` too, which only a filter with a fingerprint reads."""

    RUNNING = "running"  # by session, then by claim
    READY = "ready"  # line by line, each in the order in which its jobs start
    SUSPECT = "suspect"  # ready jobs that must run alone, in the same order
    PARKED = "parked"  # ready jobs that are held: by task, then in the order of their puts
    DUE = "due"  # scheduled and retrying jobs, the soonest first
    DEAD = "dead"  # ended jobs: the one that the purge visits last comes first
    CANCELLED = "cancelled"
    SUCCEEDED = "succeeded"
    GROUPED = "grouped"  # dead jobs with one fingerprint, the latest death first


_STATES: Final = {
    JobIndex.RUNNING: (State.RUNNING,),
    JobIndex.READY: (State.READY,),
    JobIndex.SUSPECT: (State.READY,),
    JobIndex.PARKED: (State.READY,),
    JobIndex.DUE: (State.SCHEDULED, State.RETRYING),
    JobIndex.DEAD: (State.DEAD,),
    JobIndex.CANCELLED: (State.CANCELLED,),
    JobIndex.SUCCEEDED: (State.SUCCEEDED,),
    JobIndex.GROUPED: (State.DEAD,),
}
#: URL-safe base64. The module `base64` takes longer to import than it saves here.
_TO_URL: Final = bytes.maketrans(b"+/", b"-_")
_FROM_URL: Final = bytes.maketrans(b"-_", b"+/")
#: Indexes of ended jobs, which are read in the reverse order of the purge.
ENDED: Final = (JobIndex.DEAD, JobIndex.CANCELLED, JobIndex.SUCCEEDED)


def indexes_for(filter: Filter) -> list[JobIndex]:
    """List the indexes of the jobs that a filter may choose."""
    return [
        index
        for index, states in _STATES.items()
        if (filter.state is None or filter.state in states)
        and (index is JobIndex.GROUPED) == (filter.fingerprint is not None)
        and (filter.release is None or State.DEAD in states)
        and (filter.hold is None or index is JobIndex.PARKED)
        and (not filter.suspects or index is JobIndex.SUSPECT)
    ]


def index_has(index: JobIndex, state: str) -> bool:
    """Whether jobs of a state belong into an index."""
    return state in _STATES[index]


def earliest_visit_ms(filter: Filter, index: JobIndex) -> int:
    """Return the instant before which the purge visits no job that a filter may choose. A job ends
    after its creation, and the purge visits it when its result or its record expires."""
    if filter.since_ms is None:
        return 0
    return filter.since_ms + (0 if index is JobIndex.SUCCEEDED else MIN_RECORD_MS)


# ---------------------------------------------------------------------------------------- cursors


def to_cursor(index: JobIndex, position: bytes) -> str:
    text = binascii.b2a_base64(position, newline=False).translate(_TO_URL)
    return f"{index}.{text.decode().rstrip('=')}"


def read_cursor(cursor: str | None, indexes: Sequence[JobIndex]) -> tuple[int, bytes]:
    """Return which of the indexes a page begins with, and the position in it; empty for the
    beginning."""
    if cursor is None:
        return 0, b""
    index, dot, position = cursor.partition(".")
    if not dot:
        raise bad_cursor(cursor)
    try:
        padded = position + "=" * (-len(position) % 4)
        packed = padded.encode("ascii").translate(_FROM_URL)
        return indexes.index(JobIndex(index)), binascii.a2b_base64(packed, strict_mode=True)
    except (ValueError, binascii.Error):
        raise bad_cursor(cursor) from None


def bad_cursor(cursor: str) -> InvalidCursor:
    return InvalidCursor(
        f"Expected the cursor of a page of jobs with the same filter, found {cursor!r}. Use the "
        "cursor as the page before returned it, or begin without one."
    )


# ------------------------------------------------------------------------------------------ walks


class Stretch(NamedTuple, Generic[Item]):
    """Entries that follow each other in an index."""

    found: Sequence[tuple[bytes, Item]]  # each with its position
    last: bytes | None  # the position after which to continue; None at the end of the index
    cost: int  # the number of records that were read


#: Read about `number` entries of an index after a position; b"" is the beginning.
ReadStretch = Callable[[JobIndex, bytes, int], Stretch[Item]]


def collect(
    filter: Filter, cursor: str | None, limit: int, read: ReadStretch[Item]
) -> tuple[list[Item], str | None]:
    """Read one page; return its items, and the cursor of the next page or None. One more item than
    the limit is looked for, to know whether there is another page."""
    indexes = indexes_for(filter)
    first, position = read_cursor(cursor, indexes)
    page: list[Item] = []
    budget, following, number = SCAN_BUDGET, "", limit + 1
    for index in indexes[first:]:
        last: bytes | None = position
        while last is not None:
            if budget <= 0:
                return page, to_cursor(index, last)
            stretch = read(index, last, min(number, budget))
            for place, item in stretch.found:
                if len(page) == limit:
                    return page, following
                page.append(item)
                following = to_cursor(index, place)
            last = stretch.last
            budget -= stretch.cost
            number = min(2 * number, SCAN_BUDGET)  # few records match: read more at a time
        position = b""
    return page, None
