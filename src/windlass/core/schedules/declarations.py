"""Schedules declared in code: which declaration wins during a rolling deploy.

1. `fingerprint` is equal only for equal declarations.
2. `declare` compares the declaration of a worker with the current declaration: which one wins.
3. `is_abandoned` says whether workers have stopped declaring a schedule.

During a rolling deploy old and new workers start in any order, and both declare a schedule of the
same name. The higher version wins. Versions are equal unless the code numbers them. Among equal
versions, a declaration that was never seen before wins. The replaced declaration becomes outdated
and changes nothing any more. So a restarted old worker does not undo the change.

Workers renew their declarations every `RENEWAL_MS`. When the current declaration is no longer
renewed, an outdated one wins again: that is how a rollback takes effect.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from windlass.core.ids import blake2b
from windlass.core.schedules.triggers import Schedule

#: How often a worker renews its declarations.
RENEWAL_MS: Final = 60_000
#: An outdated declaration wins again when no worker renewed the current one for this long.
SILENT_MS: Final = 5 * RENEWAL_MS
#: A running worker renews its declarations within this time. A schedule that was not renewed for
#: longer can be removed: no running worker declares it again.
REMOVABLE_MS: Final = 2 * RENEWAL_MS
#: A schedule that no worker declared for this long is paused, and shown as abandoned.
ABANDONED_MS: Final = 24 * 60 * 60 * 1000
#: At most this many outdated declarations are stored, the newest ones.
MAX_OUTDATED: Final = 20

_canonical: Final = msgspec.json.Encoder(order="sorted").encode


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """The known declarations of one schedule."""

    fingerprint: str
    version: int
    declared_ms: int  # when a worker last renewed the current declaration
    outdated: tuple[str, ...] = ()  # fingerprints of replaced declarations, the newest last


class Standing(StrEnum):
    NEW = "new"  # it wins: store it and its next occurrence
    CURRENT = "current"  # it is the current declaration
    OUTDATED = "outdated"  # a newer declaration wins: change nothing


def fingerprint(schedule: Schedule, call: bytes) -> str:
    """The fingerprint of a declaration: 32 hexadecimal characters. `call` is the stored call."""
    timing = _canonical(schedule.to_data())
    return blake2b(timing + b"\0" + call, digest_size=16).hexdigest()


def declare(
    known: Declared | None, fingerprint: str, now_ms: int, *, version: int = 0
) -> tuple[Standing, Declared]:
    """Decide whether a declaration wins. Returns its standing and the updated state."""
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
