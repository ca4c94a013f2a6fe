"""What a commit tells idle workers: in which lines jobs became ready, and of which tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from windlass.engine.contract import Plan


class ReadyLine(msgspec.Struct, frozen=True, array_like=True):
    """A line in which jobs became ready, and whether these jobs must run alone."""

    line: str
    suspects: bool = False


class News(msgspec.Struct, frozen=True, array_like=True):
    """Content of a datagram: a wake-up for jobs in one line. `number` is 0 if the worker should
    only look for jobs again. `tasks` counts the jobs by task; it may not know some of them."""

    ready: ReadyLine
    number: int
    hops: int = 0
    tasks: Mapping[str, int] = {}

    @property
    def knows_tasks(self) -> bool:
        return 0 < self.number <= sum(self.tasks.values())

    def is_for(self, plan: Plan) -> bool:
        """Return whether sessions with a plan may claim from the line of these jobs."""
        return plan.suspects == self.ready.suspects and plan.serves(self.ready.line)

    def without(self, taken: Mapping[str, int]) -> News:
        """Return the news of the other jobs, after these were announced. If `tasks` counts more
        jobs than there are, some were claimed, and these may be among them."""
        left = {task: number - taken.get(task, 0) for task, number in self.tasks.items()}
        is_exact = sum(self.tasks.values()) == self.number
        number = self.number - sum(taken.values()) if is_exact else self.number
        return News(self.ready, number, self.hops, {task: n for task, n in left.items() if n})


class Found(msgspec.Struct, frozen=True):
    """Result of a look for work in the database."""

    ready: frozenset[Plan]  # plans with something to claim
    due_in_ms: int | None  # time until the next due job


Look = Callable[[Iterable[Plan]], Found]

#: Jobs that became ready: a line, whether they must run alone, their task and their number.
ReadyTask = tuple[str, bool, str, int]


def with_tasks(news: Sequence[News], ready_tasks: Sequence[ReadyTask]) -> list[News]:
    """Add the tasks of the jobs to their news."""
    tasks: dict[ReadyLine, Counter[str]] = {one.ready: Counter() for one in news}
    for line, suspects, task, number in ready_tasks:
        ready = ReadyLine(line, suspects)
        if ready in tasks:
            tasks[ready][task] += number
    return [News(one.ready, one.number, one.hops, tasks[one.ready]) for one in news]
