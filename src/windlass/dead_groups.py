"""Groups of dead jobs, from the index of the engine.

1. `GroupChoice` chooses groups, and `DeadGroupList` has them.
2. `read_groups` reads the groups of the engine, and one dead job of each as its example. The cost
   depends on the number of groups, and never on the number of dead jobs.
3. `add_letter` makes groups of dead letters that were read one by one, for a choice that the index
   does not know.
4. `label_page` computes the fingerprints of dead jobs that have none, a bounded page at a time.

A group is new since a release if none of its jobs died in that release, in a release that began
before it, or without a release.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from windlass.client.payloads import Packing
from windlass.core.durations import instant
from windlass.core.foreign_words import most_similar
from windlass.core.states import State
from windlass.dead_letter import (
    DeadGroup,
    DeadLetter,
    DeadRelease,
    Unreadable,
    fingerprint_of,
    read_each,
)
from windlass.engine.contract import DeadLabel, DeadTally, Engine, Filter, JobRecord
from windlass.engine.releases import read_releases
from windlass.errors import ReleaseNotFound
from windlass.job import latest_error

#: At most this many groups are read in full: with their example.
MAX_GROUPS: Final = 500
#: The parts of this many groups are read by one call.
WHOLE_GROUPS: Final = 50
#: Dead jobs are read with their histories, this many at a time.
PAGE: Final = 50


class GroupChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Filter of groups: a group must match all given parts."""

    task: str | None = None
    fingerprint: str | None = None
    release: str | None = None  # only jobs that died in this release
    new_since: str | None = None  # mark the groups that are new since this release
    may_use: Callable[[str], bool] = lambda _queue: True  # only jobs of these queues
    limit: int = MAX_GROUPS


class DeadGroupList(msgspec.Struct, frozen=True, kw_only=True):
    """Groups, the largest first. `is_exact` is false if small groups were left out."""

    groups: tuple[DeadGroup, ...]
    is_exact: bool
    releases: Mapping[str, int]  # known releases, in the order in which they began


def read_groups(engine: Engine, choice: GroupChoice, packing: Packing) -> DeadGroupList:
    """Read the chosen groups. Raises `ReleaseNotFound` if `new_since` is no known release."""
    only = None if choice.fingerprint is None else [choice.fingerprint]
    found = engine.dead_tallies(only)
    releases = _with_deaths(read_releases(engine), found.tallies)
    if choice.new_since is not None and choice.new_since not in releases:
        known, meant = tuple(reversed(releases)), most_similar(choice.new_since, releases)
        raise ReleaseNotFound(choice.new_since, engine.location, known, meant)
    wanted = _by_group(found.tallies, choice)
    largest = sorted(wanted, key=lambda names: (-_count(wanted[names]), names))
    shown = largest[: choice.limit]
    if found.more and only is None:
        # Small parts of these groups may be among those left out.
        wanted = _by_group(_read_whole(engine, shown), choice)
        shown = [names for names in shown if names in wanted]  # others were retried meanwhile
    examples = _read_examples(engine, [_latest(wanted[names]).example for names in shown])
    groups = [
        _to_group(names, wanted[names], examples.get(_latest(wanted[names]).example), packing)
        for names in shown
    ]
    if choice.new_since is not None:
        groups = [_marked(one, choice.new_since, releases) for one in groups]
    if choice.release is not None:
        groups = [_of_release(one, choice.release) for one in groups]
    ordered = sorted(groups, key=lambda one: (-one.count, one.task))
    return DeadGroupList(
        groups=tuple(one for one in ordered if one.count),
        is_exact=not found.more and len(largest) <= choice.limit,
        releases=releases,
    )


def count_jobs(engine: Engine, choice: GroupChoice) -> int | None:
    """The number of dead jobs that match; None if the engine has too many groups to tell."""
    only = None if choice.fingerprint is None else [choice.fingerprint]
    found = engine.dead_tallies(only)
    if found.more:
        return None
    return sum(
        one.number
        for one in found.tallies
        if _matches(one, choice) and choice.release in (None, one.release)
    )


_Names = tuple[str, str]  # task and fingerprint


def _by_group(tallies: Iterable[DeadTally], choice: GroupChoice) -> dict[_Names, list[DeadTally]]:
    groups: dict[_Names, list[DeadTally]] = {}
    for one in tallies:
        if _matches(one, choice):
            groups.setdefault((one.task, one.fingerprint), []).append(one)
    return groups


def _matches(one: DeadTally, choice: GroupChoice) -> bool:
    return choice.task in (None, one.task) and choice.may_use(one.queue)


def _read_whole(engine: Engine, groups: Sequence[_Names]) -> list[DeadTally]:
    """All parts of groups. A call has some fingerprints only, because it returns a bounded number
    of parts."""
    names = list(dict.fromkeys(fingerprint for _, fingerprint in groups))
    return [
        tally
        for at in range(0, len(names), WHOLE_GROUPS)
        for tally in engine.dead_tallies(names[at : at + WHOLE_GROUPS]).tallies
    ]


def _count(tallies: Sequence[DeadTally]) -> int:
    return sum(one.number for one in tallies)


def _latest(tallies: Sequence[DeadTally]) -> DeadTally:
    return max(tallies, key=lambda one: one.last_ms)


def _read_examples(engine: Engine, ids: Sequence[str]) -> dict[str, JobRecord]:
    found: dict[str, JobRecord] = {}
    for at in range(0, len(ids), PAGE):
        for record in read_each(engine, ids[at : at + PAGE]):
            if record is not None and not isinstance(record, Unreadable):
                found[record.id] = record
    return found


def _to_group(
    names: _Names, tallies: Sequence[DeadTally], example: JobRecord | None, packing: Packing
) -> DeadGroup:
    task, fingerprint = names
    latest = _latest(tallies)
    queues: dict[str, int] = {}
    for one in sorted(tallies, key=lambda one: one.queue):
        queues[one.queue] = queues.get(one.queue, 0) + one.number
    error = None if example is None else latest_error(packing.reveal_failures(example))
    return DeadGroup(
        fingerprint=fingerprint,
        task=task,
        count=_count(tallies),
        first_at=instant(min(one.first_ms for one in tallies)),
        last_at=instant(latest.last_ms),
        example=latest.example,
        reason=None if example is None else example.reason,
        error=error,
        queues=queues,
        releases=_to_releases(tallies),
    )


def _to_releases(tallies: Sequence[DeadTally]) -> tuple[DeadRelease, ...]:
    """The releases of a group, the one with the latest death first."""
    parts: dict[str, list[DeadTally]] = {}
    for one in tallies:
        parts.setdefault(one.release, []).append(one)
    releases = [
        DeadRelease(
            release=release,
            count=_count(some),
            first_at=instant(min(one.first_ms for one in some)),
            last_at=instant(_latest(some).last_ms),
        )
        for release, some in parts.items()
    ]
    return tuple(sorted(releases, key=lambda one: one.last_at, reverse=True))


def _with_deaths(known: Mapping[str, int], tallies: Iterable[DeadTally]) -> dict[str, int]:
    """Add releases that are not known, because their workers were of an earlier version: each began
    with its first death."""
    began = dict(known)
    for one in tallies:
        if one.release and one.release not in known:
            began[one.release] = min(one.first_ms, began.get(one.release, one.first_ms))
    return dict(sorted(began.items(), key=lambda item: item[1]))


def _marked(group: DeadGroup, since: str, releases: Mapping[str, int]) -> DeadGroup:
    order = list(releases)
    before = order[: order.index(since) + 1]
    is_new = not any(one.release in before or not one.release for one in group.releases)
    return msgspec.structs.replace(group, is_new=is_new)


def _of_release(group: DeadGroup, release: str) -> DeadGroup:
    """The part of a group that died in one release."""
    own = [one for one in group.releases if one.release == release]
    if not own:
        return msgspec.structs.replace(group, count=0)
    return msgspec.structs.replace(
        group, count=own[0].count, first_at=own[0].first_at, last_at=own[0].last_at
    )


# ------------------------------------------------------------------------------- groups of letters


def largest_first(groups: dict[tuple[str, str], DeadGroup]) -> tuple[DeadGroup, ...]:
    """Put the largest groups first."""
    return tuple(sorted(groups.values(), key=lambda group: (-group.count, group.task)))


def add_letter(groups: dict[tuple[str, str], DeadGroup], letter: DeadLetter) -> None:
    """Add a letter to its group. Letters come latest first, if they are kept for the same time;
    otherwise in the reverse order of the purge."""
    known = groups.get((letter.task, letter.fingerprint))
    if known is None:
        groups[letter.task, letter.fingerprint] = DeadGroup(
            fingerprint=letter.fingerprint,
            task=letter.task,
            count=1,
            first_at=letter.died_at,
            last_at=letter.died_at,
            example=letter.id,
            reason=letter.reason,
            error=letter.error,
        )
        return
    groups[letter.task, letter.fingerprint] = msgspec.structs.replace(
        known,
        count=known.count + 1,
        first_at=min(known.first_at, letter.died_at),
        last_at=max(known.last_at, letter.died_at),
    )


# --------------------------------------------------------------------------------------- labelling


class LabelPage(msgspec.Struct, frozen=True):
    """Dead jobs that got a fingerprint, and the cursor of the next page, None at the end."""

    number: int
    cursor: str | None


def label_page(
    engine: Engine, packing: Packing, cursor: str | None, *, everything: bool = False
) -> LabelPage:
    """Compute the fingerprints of one page of dead jobs: those that have none or, with
    `everything`, all of them. A failure that this app cannot decrypt keeps its fingerprint."""
    filter = Filter(state=State.DEAD) if everything else Filter(fingerprint="")
    page = engine.find(filter, cursor, PAGE)
    labels: list[DeadLabel] = []
    for record in read_each(engine, [one.id for one in page.records]):
        if record is None or isinstance(record, Unreadable) or record.state is not State.DEAD:
            continue
        fingerprint = fingerprint_of(record, packing)
        if fingerprint and fingerprint != record.fingerprint:
            finished_ms = record.finished_ms or 0
            labels.append(DeadLabel(id=record.id, finished_ms=finished_ms, fingerprint=fingerprint))
    if labels:
        engine.label_dead(labels)
    return LabelPage(len(labels), page.cursor)
