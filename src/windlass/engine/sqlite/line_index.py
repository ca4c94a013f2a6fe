"""The index of lines: which line has the best job, found without looking at the others.

1. `refresh` brings the rows of a line up to date; a transaction calls it for each line it touched.
2. `groups` lists the groups of lines that a worker may take from. Inside a group the rows are in
   the order of their first jobs, so the best line of a group is its first row.
3. `best_jobs` merges: the best of all groups gives its first job, then the line itself takes part
   by its next one. So a claim reads as many lines as it takes jobs from, however many there are.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import count
from typing import Final, NamedTuple

import apsw

from windlass.core.queues.labels import queue_of, required_text, skip_labels
from windlass.core.queues.settings import USUAL, QueueSettings
from windlass.engine.sqlite.statements import Row, first, rows

#: Before every rank, and before every cohort that follows one.
_BEFORE_ALL: Final = -(2**62)
_BEHIND: Final = "\x01"
#: Behind every name of a line.
_BEHIND_ALL: Final = "\U0010ffff"
#: The number of jobs of a line, and of lines of a group, that are read at a time.
_CHUNK: Final = 32


class Group(NamedTuple):
    """Lines that require the same labels and whose queues age alike."""

    labels: str
    cohort: str


class Entry(NamedTuple):
    """What the index says of a line."""

    cohort: str
    rank: int
    place: int


def compare(
    connection: apsw.Connection, line: str, settings: Mapping[str, QueueSettings]
) -> tuple[dict[int, Entry], dict[int, Entry]]:
    """For each mark of suspects, what the index says of a line, and what it should say."""
    kept: dict[int, Entry] = {}
    right: dict[int, Entry] = {}
    own = settings.get(queue_of(line), USUAL)
    cohort, age = own.cohort
    for is_kept, suspect, found, rank, place in rows(connection, "line_heads", line):
        if is_kept:
            kept[suspect] = Entry(found, rank, place)
        elif not own.paused:
            right[suspect] = Entry(cohort, rank - age, place)
    return kept, right


def refresh(connection: apsw.Connection, line: str, settings: Mapping[str, QueueSettings]) -> None:
    kept, right = compare(connection, line, settings)
    if kept == right:
        return
    for suspect, entry in right.items():
        if kept.get(suspect) != entry:
            rows(connection, "keep_line", line, suspect, required_text(line), *entry)
    for suspect in kept.keys() - right.keys():
        rows(connection, "delete_line", line, suspect)


def add_first(
    connection: apsw.Connection,
    line: str,
    settings: Mapping[str, QueueSettings],
    rank: int,
    place: int,
) -> None:
    """A job came into a line, with nothing else changed: it may be the first one now."""
    own = settings.get(queue_of(line), USUAL)
    if not own.paused:
        cohort, age = own.cohort
        rows(connection, "better_line", line, required_text(line), cohort, rank - age, place)


def ready_lines(connection: apsw.Connection, queue: str | None = None) -> Iterator[str]:
    """Every line that has something ready, or those of one queue; jumps from one to the next."""
    after, before = ("", _BEHIND_ALL) if queue is None else (f"{queue}+", f"{queue},")
    if queue is not None:
        yield queue
    while (after := first(connection, "next_ready_line", after, before)) is not None:
        yield after


def groups(
    connection: apsw.Connection, *, suspects: bool, labels: Collection[str]
) -> Iterator[Group]:
    """The groups of lines that a worker with these labels may take from."""
    at = Group("", "")
    while found := rows(connection, "next_group", suspects, *at):
        group = Group(*found[0])
        if group.labels and not labels:
            return
        further = skip_labels(group.labels, labels)
        if further is None:
            yield group
            at = Group(group.labels, group.cohort + _BEHIND)
        else:
            at = Group(further, "")


class Search(NamedTuple):
    """Looks for the best jobs at one instant."""

    connection: apsw.Connection
    settings: Mapping[str, QueueSettings]
    now_ms: int
    suspects: bool

    def best_jobs(self, groups: Sequence[Group], limit: int) -> tuple[list[Row], list[str]]:
        """The next jobs of these groups, as `list_ready` gives them, and lines that are listed and
        have none."""
        if len(groups) == 1:
            lines = rows(self.connection, "list_lines", *self._from_first(groups[0]), 2)
            if len(lines) == 1:  # mostly so
                _, _, line = lines[0]
                jobs = rows(self.connection, "list_ready", line, self.suspects, limit)
                return jobs, [] if jobs else [line]
        found: list[Row] = []
        empty: list[str] = []
        # Rank, place, a number that decides between equals, what it is (a line, or a row of a job),
        # and what comes after it.
        heap: list[tuple[int, int, int, str | Row, Iterator[tuple[int, int, str | Row]]]] = []
        numbers = count()

        def push(source: Iterator[tuple[int, int, str | Row]]) -> bool:
            for rank, place, what in source:
                heapq.heappush(heap, (rank, place, next(numbers), what, source))
                return True
            return False

        for source in self._sources(groups, limit):
            push(source)
        while heap and len(found) < limit:
            _, _, _, what, source = heapq.heappop(heap)
            if isinstance(what, str):
                if not push(self._jobs(what, limit)):
                    empty.append(what)
            else:
                found.append(what)
            push(source)
        return found, empty

    def _from_first(self, group: Group) -> tuple[bool, str, str, int, int]:
        return (self.suspects, *group, _BEFORE_ALL, 0)

    def _sources(
        self, groups: Sequence[Group], limit: int
    ) -> Iterator[Iterator[tuple[int, int, str | Row]]]:
        """Where the clock was set back, queues do not grow younger, and how old a cohort is says
        nothing of its queues: then each line takes part for itself."""
        since_ms = max((own.since_ms for own in self.settings.values()), default=0)
        for group in groups:
            lines = self._lines(group, min(limit, _CHUNK))
            if group.cohort and self.now_ms < since_ms:
                yield from (self._jobs(str(line), limit) for _, _, line in lines)
            else:
                yield lines

    def _lines(self, group: Group, chunk: int) -> Iterator[tuple[int, int, str | Row]]:
        age = age_of_cohort(group.cohort, self.now_ms)
        rank, place, is_full = _BEFORE_ALL, 0, True
        while is_full:
            after = (self.suspects, *group, rank, place, chunk)
            found = rows(self.connection, "list_lines", *after)
            is_full = len(found) == chunk
            for rank, place, line in found:
                yield rank - age, place, line

    def _jobs(self, line: str, limit: int) -> Iterator[tuple[int, int, str | Row]]:
        age = self.settings.get(queue_of(line), USUAL).aged(self.now_ms).age
        chunk = min(limit, _CHUNK)
        rank, place, is_full = _BEFORE_ALL, 0, True
        while is_full:
            found = rows(
                self.connection, "list_ready_after", line, self.suspects, rank, place, chunk
            )
            is_full = len(found) == chunk
            for row in found:
                rank, place = row[:2]
                yield rank - age, place, row


def age_of_cohort(cohort: str, now_ms: int) -> int:
    """How old queues of a cohort are, but for what is in their ranks."""
    if not cohort:
        return 0
    period_ms, phase_ms = map(int, cohort.split())
    return (now_ms - phase_ms) // period_ms
