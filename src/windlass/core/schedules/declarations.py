"""Schedules that are declared in code: which declaration counts while versions of it are mixed.

1. `fingerprint` is the same for two declarations only if they say the same.
2. `declare` compares what a worker declares with what is known, and says which of them counts.
3. `is_abandoned` says whether nobody declares a schedule any more.

During a rolling deploy old and new workers start in any order, and both declare a schedule of the
same name. The higher version wins. Among equal versions, and that is all there is unless somebody
numbers them, a declaration that was never seen before is the newer one; one that it replaced is
known as outdated and changes nothing. So an old worker that is started again does not turn the
clock back.

Workers declare again every `RENEWAL_MS`. A declaration that fell silent no longer stands in the way
of an outdated one: that is how a rollback takes effect.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from windlass.core.digest import blake2b
from windlass.core.schedules.triggers import Schedule

#: How often a worker says again what it declares.
RENEWAL_MS: Final = 60_000
#: A declaration that nobody renewed for this long gives way to an outdated one.
SILENT_MS: Final = 5 * RENEWAL_MS
#: Whoever runs and declares a schedule has done so within this time: after it nobody is left who
#: would bring back what is removed.
REMOVABLE_MS: Final = 2 * RENEWAL_MS
#: A schedule that nobody declared for this long is paused, and shown as abandoned.
ABANDONED_MS: Final = 24 * 60 * 60 * 1000
#: At most this many outdated declarations are remembered, the newest ones.
MAX_OUTDATED: Final = 20

_canonical: Final = msgspec.json.Encoder(order="sorted").encode


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the declarations of one schedule."""

    fingerprint: str
    version: int
    declared_ms: int  # when somebody last declared it like this
    outdated: tuple[str, ...] = ()  # fingerprints of what it replaced, the newest last


class Standing(StrEnum):
    NEW = "new"  # it counts from now on: store it, and what comes next of it
    CURRENT = "current"  # it is what counts already
    OUTDATED = "outdated"  # something newer counts: leave it alone


def fingerprint(schedule: Schedule, call: bytes) -> str:
    """32 hexadecimal characters; `call` is all that the schedule enqueues, as it is stored."""
    timing = _canonical(schedule.to_data())
    return blake2b(timing + b"\0" + call, digest_size=16).hexdigest()


def declare(
    known: Declared | None, fingerprint: str, now_ms: int, *, version: int = 0
) -> tuple[Standing, Declared]:
    """What becomes of a declaration, and what is known afterwards."""
    if known is None:
        return Standing.NEW, Declared(fingerprint=fingerprint, version=version, declared_ms=now_ms)
    if (known.version, known.fingerprint) == (version, fingerprint):
        renewed = msgspec.structs.replace(known, declared_ms=max(now_ms, known.declared_ms))
        return Standing.CURRENT, renewed
    if _is_outdated(known, fingerprint, version) and now_ms - known.declared_ms < SILENT_MS:
        return Standing.OUTDATED, known
    outdated = [*known.outdated, known.fingerprint]
    remembered = tuple(text for text in outdated if text != fingerprint)[-MAX_OUTDATED:]
    return Standing.NEW, Declared(
        fingerprint=fingerprint, version=version, declared_ms=now_ms, outdated=remembered
    )


def is_abandoned(known: Declared, now_ms: int) -> bool:
    return now_ms - known.declared_ms >= ABANDONED_MS


def _is_outdated(known: Declared, fingerprint: str, version: int) -> bool:
    if version == known.version:
        return fingerprint in known.outdated
    return version < known.version
