"""The index of lines, for workers that serve every queue.

A line is a queue, or the sub-queue of its jobs that require the same labels. The table `lines` has
a row for each line with ready jobs: the rank and the place of its first job. So a claim finds the
best job without reading every line.

1. `refresh` updates the rows of one line. A transaction calls it for each line that it changed.
2. `groups` lists the groups of lines that a worker may claim from. The lines of a group require the
   same labels and age at the same rate, so their ranks can be compared in the table: the first row
   of a group is its best line.
3. `best_jobs` merges the groups. It takes the first job of the best line, then compares the next
   job of that line with the other lines, until it has enough jobs. `best_jobs_of` merges given
   lines in the same way. With a `TaskFilter`, both pass over jobs of other tasks.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import count
from typing import Final, NamedTuple

import apsw

from windlass.core.queues.labels import queue_of, required_text, skip_labels
from windlass.core.queues.settings import USUAL, QueueSettings
from windlass.engine.sql.lease import TaskFilter
from windlass.engine.sql.statements import Row
from windlass.engine.sqlite.statements import rows

#: A rank that sorts before every other rank.
_BEFORE_ALL: Final = -(2**62)
_BEHIND: Final = "\x01"
#: Read at most this many jobs of a line, or lines of a group, at a time.
_CHUNK: Final = 32
#: Read this many jobs of a line first, then twice as many each time: of many lines, a claim takes
#: few jobs each.
_FIRST_CHUNK: Final = 2


class Group(NamedTuple):
    """Lines that require the same labels, in queues that age at the same rate and phase."""

    labels: str
    cohort: str


class LineEntry(NamedTuple):
    """The index row of a line."""

    cohort: str
    rank: int
    place: int


def compare(
    connection: apsw.Connection, line: str, settings: Mapping[str, QueueSettings]
) -> tuple[dict[int, LineEntry], dict[int, LineEntry]]:
    """Return the stored and the correct index rows of a line, each by suspect mark."""
    kept: dict[int, LineEntry] = {}
    right: dict[int, LineEntry] = {}
    own = settings.get(queue_of(line), USUAL)
    cohort, age = own.cohort
    for is_kept, suspect, found, rank, place in rows(connection, "line_heads", line):
        if is_kept:
            kept[suspect] = LineEntry(found, rank, place)
        elif not own.paused:
            right[suspect] = LineEntry(cohort, rank - age, place)
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
    """Update the index after a job came into a line, because it may be the first job now."""
    own = settings.get(queue_of(line), USUAL)
    if not own.paused:
        cohort, age = own.cohort
        rows(connection, "better_line", line, required_text(line), cohort, rank - age, place)


def groups(
    connection: apsw.Connection, *, suspects: bool, labels: Collection[str]
) -> Iterator[Group]:
    """Iterate over the groups of lines that a worker with these labels may claim from."""
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
    """A search for the best jobs at one instant."""

    connection: apsw.Connection
    settings: Mapping[str, QueueSettings]
    now_ms: int
    suspects: bool

    def best_jobs(
        self, groups: Sequence[Group], limit: int, tasks: TaskFilter | None = None
    ) -> tuple[list[Row], list[str]]:
        """Find the next jobs of these groups, as rows of `list_ready`. Also return the lines that
        the index lists but that have no jobs."""
        if len(groups) == 1 and tasks is None:
            lines = rows(self.connection, "list_lines", *self._from_first(groups[0]), 2)
            if len(lines) == 1:  # the usual case: one line
                _, _, line = lines[0]
                jobs = rows(self.connection, "list_ready", line, self.suspects, limit)
                return jobs, [] if jobs else [line]
        return self._merge(self._sources(groups, _chunk_for(limit, tasks)), limit, tasks)

    def best_jobs_of(self, lines: Sequence[str], limit: int, tasks: TaskFilter) -> list[Row]:
        """Find the next jobs of some lines."""
        sources = (self._jobs(line, _chunk_for(limit, tasks)) for line in lines)
        return self._merge(sources, limit, tasks)[0]

    def _merge(
        self,
        sources: Iterator[Iterator[tuple[int, int, str | Row]]],
        limit: int,
        tasks: TaskFilter | None,
    ) -> tuple[list[Row], list[str]]:
        """Merge sources of lines and jobs; return the best jobs, and lines without jobs."""
        found: list[Row] = []
        empty: list[str] = []
        # Rank, place, a tie-breaker, the item (a line, or the row of a job), and the source of the
        # next item.
        heap: list[tuple[int, int, int, str | Row, Iterator[tuple[int, int, str | Row]]]] = []
        numbers = count()

        def push(source: Iterator[tuple[int, int, str | Row]]) -> bool:
            for rank, place, what in source:
                heapq.heappush(heap, (rank, place, next(numbers), what, source))
                return True
            return False

        for source in sources:
            push(source)
        while heap and len(found) < limit:
            _, _, _, what, source = heapq.heappop(heap)
            if isinstance(what, str):
                if not push(self._jobs(what, _chunk_for(limit, tasks))):
                    empty.append(what)
            elif tasks is None or tasks.accepts(what):
                found.append(what)
            elif not tasks.pass_over():
                break
            push(source)
        return found, empty

    def _from_first(self, group: Group) -> tuple[bool, str, str, int, int]:
        return (self.suspects, *group, _BEFORE_ALL, 0)

    def _sources(
        self, groups: Sequence[Group], limit: int
    ) -> Iterator[Iterator[tuple[int, int, str | Row]]]:
        """Make one source per group. After the clock was set back, queues do not become younger,
        and the age of a cohort does not match its queues: then each line is its own source."""
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
        chunk = min(limit, _FIRST_CHUNK)
        rank, place, is_full = _BEFORE_ALL, 0, True
        while is_full:
            found = rows(
                self.connection, "list_ready_after", line, self.suspects, rank, place, chunk
            )
            is_full = len(found) == chunk
            for row in found:
                rank, place = row[:2]
                yield rank - age, place, row
            chunk = min(limit, 2 * chunk, _CHUNK)


def _chunk_for(limit: int, tasks: TaskFilter | None) -> int:
    """Return how many jobs a search may take: with a filter, more than it returns."""
    return limit if tasks is None else max(limit, _CHUNK)


def age_of_cohort(cohort: str, now_ms: int) -> int:
    """Return the age of the queues of a cohort, apart from the part that their ranks include."""
    if not cohort:
        return 0
    period_ms, phase_ms = map(int, cohort.split())
    return (now_ms - phase_ms) // period_ms
