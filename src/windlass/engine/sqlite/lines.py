"""The lines that a plan serves.

A queue has a line of its own name, and more lines for jobs that require labels: see
`core/queues/labels.py`. An index lists the lines with jobs, so a claim skips the other lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import apsw

from windlass.core.queues.labels import queue_of
from windlass.core.queues.settings import QueueSettings
from windlass.engine.contract import Plan
from windlass.engine.sqlite import line_index
from windlass.engine.sqlite.line_index import Group
from windlass.engine.sqlite.statements import first


class Lines:
    """Lines that a plan serves."""

    def __init__(
        self, connection: apsw.Connection, settings: Mapping[str, QueueSettings], plan: Plan
    ) -> None:
        self._connection = connection
        self._settings = settings
        self._plan = plan

    def serves(self, line: str) -> bool:
        return self._plan.serves(line) and not self._is_paused(queue_of(line))

    def of_queue(self, queue: str, *, suspects: bool) -> list[str]:
        """List the queue's own line, and its lines with labels that have jobs for this worker."""
        if self._is_paused(queue):
            return []
        if not self._plan.labels:
            return [queue]
        return [queue, *self._between(f"{queue}+", f"{queue},", suspects)]

    def groups(self, *, suspects: bool) -> Iterator[Group]:
        """Iterate over the groups of lines to claim from, for a plan that serves every queue."""
        return line_index.groups(self._connection, suspects=suspects, labels=self._plan.labels)

    def have_some(self, *, suspects: bool) -> bool:
        """Return whether there is anything to claim."""
        if not self._plan.queues:
            return next(self.groups(suspects=suspects), None) is not None
        statement = "any_suspect_in" if suspects else "any_ready_in"
        return any(
            first(self._connection, statement, line)
            for queue in self._plan.queues
            for line in self.of_queue(queue, suspects=suspects)
        )

    def _between(self, after: str, before: str, suspects: bool) -> Iterator[str]:
        statement = "next_suspect_line" if suspects else "next_line"
        while (after := first(self._connection, statement, after, before)) is not None:
            if self.serves(after):
                yield after

    def _is_paused(self, queue: str) -> bool:
        return queue in self._settings and self._settings[queue].paused
