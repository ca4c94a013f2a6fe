"""Groups of dead jobs over all partitions: merge the tallies of a group in each of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from windlass.engine.contract import DeadLabel, DeadTallies, DeadTally, Filter, to_tallies

#: The words for each group in a reply of `tallies`.
_TALLY: Final = 4
#: The size of an instant before the id of a job.
_INSTANT: Final = 6


def of_query(fingerprints: Sequence[str] | None, limit: int) -> list[bytes]:
    if fingerprints is None:
        return [b"%d" % limit, b"all"]
    names = dict.fromkeys(name for name in fingerprints if "\0" not in name)
    return [b"%d" % limit, b"of", *(name.encode() for name in names)]


def of_labels(labels: Sequence[DeadLabel]) -> list[bytes]:
    words: list[bytes] = []
    for label in labels:
        words += (label.id.encode(), b"%d" % label.finished_ms, label.fingerprint.encode())
    return words


def of_filter(filter: Filter, position: bytes, number: int) -> list[bytes]:
    """The arguments of `find_deaths`."""
    chosen = (filter.release, filter.queue, filter.task)
    return [
        b"%d" % number,
        (filter.fingerprint or "").encode(),
        *(b"" if part is None else b"=" + part.encode() for part in chosen),
        position,
    ]


def merge(replies: Sequence[Sequence[Any]], limit: int) -> DeadTallies:
    found: dict[bytes, DeadTally] = {}
    for reply in replies:
        for at in range(1, len(reply), _TALLY):
            name, number, first, last = reply[at : at + _TALLY]
            here = _to_tally(name, int(float(number)), first, last)
            known = found.get(name)
            found[name] = here if known is None else _sum(known, here)
    return to_tallies(list(found.values()), limit, more=any(reply[0] for reply in replies))


def _to_tally(name: bytes, number: int, first: bytes, last: bytes) -> DeadTally:
    fingerprint, release, queue, task = name.decode().split("\0")
    return DeadTally(
        fingerprint=fingerprint,
        release=release,
        queue=queue,
        task=task,
        number=number,
        first_ms=int.from_bytes(first[:_INSTANT]),
        last_ms=int.from_bytes(last[:_INSTANT]),
        example=last[_INSTANT:].decode(),
    )


def _sum(one: DeadTally, other: DeadTally) -> DeadTally:
    latest = max(one, other, key=lambda tally: tally.last_ms)
    number, first_ms = one.number + other.number, min(one.first_ms, other.first_ms)
    return msgspec.structs.replace(latest, number=number, first_ms=first_ms)
