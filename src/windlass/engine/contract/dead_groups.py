"""The engine contract for groups of dead jobs.

A dead job has a fingerprint, which the process that reports the death computes: it is equal for
similar failures. The engine keeps it with the release of the worker that reported the death, and
maintains the number of dead jobs of each group. Both cost nothing for a job that does not die.

1. `DeadTally` and `DeadTallies`: the groups, and how many dead jobs each has.
2. `DeadLabel`: the fingerprint of a job that died without one, or by an earlier rule.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from windlass.engine.contract.jobs import ChangeCode
from windlass.errors import EngineError

#: One call reads at most this many groups.
MAX_DEAD_TALLIES: Final = 1_000
_FINGERPRINT: Final = re.compile(r"[0-9a-f]{0,64}")


class DeadTally(msgspec.Struct, frozen=True, kw_only=True):
    """The dead jobs with one fingerprint, of one release, queue and task."""

    fingerprint: str  # empty for jobs that died without one
    release: str  # of the worker that reported the death; empty for none
    queue: str  # without labels
    task: str
    number: int
    first_ms: int  # when the first of them died
    last_ms: int
    example: str  # a job that died last


class DeadTallies(msgspec.Struct, frozen=True):
    """Groups of dead jobs, the largest first. `more` is true if others were left out."""

    tallies: tuple[DeadTally, ...]
    more: bool = False


class DeadLabel(msgspec.Struct, frozen=True, kw_only=True):
    """The fingerprint that a dead job gets."""

    id: str
    finished_ms: int  # only if the job ended at this instant
    fingerprint: str


def check_fingerprint(fingerprint: str) -> None:
    """Refuse a fingerprint that some engine cannot store."""
    if not _FINGERPRINT.fullmatch(fingerprint):
        raise EngineError(
            "Expected a fingerprint of at most 64 hexadecimal digits, or an empty one, found "
            f"{fingerprint!r}."
        )


def to_tallies(found: Sequence[DeadTally], limit: int, *, more: bool) -> DeadTallies:
    """Put the largest groups first, and leave out those beyond the limit."""
    ordered = sorted(
        found, key=lambda one: (-one.number, one.fingerprint, one.release, one.queue, one.task)
    )
    return DeadTallies(tuple(ordered[:limit]), more or len(ordered) > limit)


class DeadGroupVerbs(Protocol):
    """Read the groups of dead jobs, and change the group of a job."""

    def dead_tallies(
        self, fingerprints: Sequence[str] | None = None, limit: int = MAX_DEAD_TALLIES
    ) -> DeadTallies:
        """Read groups of dead jobs: of all fingerprints or, if given, only of these. Reads some
        records for each group, for any number of dead jobs. If groups are left out, each
        partition leaves out its smallest ones."""

    def label_dead(self, labels: Sequence[DeadLabel]) -> list[ChangeCode]:
        """Give dead jobs other fingerprints. REFUSED means that the job is not dead, or has died
        again since."""
