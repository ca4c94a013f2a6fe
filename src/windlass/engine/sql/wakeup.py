"""What a commit tells idle workers: the lines and tasks of jobs that became ready.

1. `deal` chooses the workers to notify, and how many jobs each of them gets. Workers for some tasks
   only come first, because the others can take any job.
2. `assign` chooses the waiting sessions of a worker that got news, one for each job. The worker
   forwards the rest: another commit may have been faster, or the worker has fewer idle sessions
   than its share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

import msgspec

from windlass.engine.contract import Plan, Waiter

#: The name of a worker, or of one of its plans.
Name = TypeVar("Name")

#: Forward a wake-up at most this often; then polling has to find the job.
MOST_HOPS: Final = 4


class ReadyLine(msgspec.Struct, frozen=True, array_like=True):
    """A line in which jobs became ready, and whether these jobs must run alone."""

    line: str
    suspects: bool = False


class News(msgspec.Struct, frozen=True, array_like=True):
    """A wake-up for jobs in one line. `number` is 0 if the worker should only look for jobs again.
    `tasks` counts the jobs by task; it may not know some of them."""

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


# ------------------------------------------------------------------------------------- the waker


def deal(
    news: Sequence[News],
    ready_tasks: Sequence[ReadyTask],
    plans: Mapping[Name, Plan | None],
    send: Callable[[Name, News], bool],
) -> None:
    """Send each idle worker its share of the jobs that it can take. A worker whose plan is not
    known may take any job. `send` returns whether the worker still waits."""
    some = {name: plan for name, plan in plans.items() if plan is not None and plan.tasks}
    if some and ready_tasks:
        news = with_tasks(news, ready_tasks)
    for one in news if plans else ():
        if some:
            one = _deal_by_task(some, one, send)
        able = [
            name
            for name, plan in plans.items()
            if name not in some and (plan is None or one.is_for(plan))
        ]
        left = one.number
        for position, name in enumerate(able):
            share = -(-left // (len(able) - position))
            if share and send(name, News(one.ready, share, one.hops)):
                left -= share


def _deal_by_task(
    plans: Mapping[Name, Plan], news: News, send: Callable[[Name, News], bool]
) -> News:
    """Send workers for some tasks their share; return the news of the other jobs."""
    able = {name: plan for name, plan in plans.items() if news.is_for(plan)}
    if not news.knows_tasks:
        for name in able:
            send(name, News(news.ready, 0, news.hops))
        return news
    shares: dict[Name, dict[str, int]] = {name: {} for name in able}
    for task, left in news.tasks.items():
        names = [name for name, plan in able.items() if plan.runs(task)]
        for position, name in enumerate(names):
            share = -(-left // (len(names) - position))
            if share:
                shares[name][task] = share
                left -= share
    taken: Counter[str] = Counter()
    for name, tasks in shares.items():
        its_news = News(news.ready, sum(tasks.values()), news.hops, tasks)
        if tasks and send(name, its_news):
            taken.update(tasks)
    return news.without(taken)


# ------------------------------------------------------------------------------------ the waiter


class Assigned(NamedTuple):
    """What becomes of news in the process of a worker."""

    woken: list[Waiter]
    left: list[News]  # for other workers
    must_look: bool  # waiters for some tasks may find jobs whose tasks are not known


def assign(news: Iterable[News], waiters: Sequence[Waiter]) -> Assigned:
    """Choose a waiter for each job, those for some tasks first."""
    woken: list[Waiter] = []
    left: list[News] = []
    must_look = False
    for_all = [waiter for waiter in waiters if not waiter.plan.tasks]
    for one in news:
        if len(for_all) < len(waiters):
            able = [w for w in waiters if w.plan.tasks and w not in woken and one.is_for(w.plan)]
            if one.knows_tasks:
                one = _assign_by_task(one, able, woken)
            else:
                must_look = must_look or bool(able)
        able = [w for w in for_all if w not in woken and one.is_for(w.plan)][: one.number]
        woken += able
        if len(able) < one.number:
            left.append(News(one.ready, one.number - len(able), one.hops + 1, one.tasks))
    return Assigned(woken, [one for one in left if one.hops <= MOST_HOPS], must_look)


def _assign_by_task(news: News, able: Sequence[Waiter], woken: list[Waiter]) -> News:
    """Wake waiters for some tasks, one for each job; return the news of the other jobs."""
    taken: Counter[str] = Counter()
    for waiter in able:
        left = (task for task, number in news.tasks.items() if number > taken[task])
        task = next(filter(waiter.plan.runs, left), None)
        if task is not None:
            taken[task] += 1
            woken.append(waiter)
    return news.without(taken)
