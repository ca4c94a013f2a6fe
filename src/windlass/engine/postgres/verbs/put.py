"""Put new jobs, each at most once, in a number of statements that does not grow with the jobs.

1. `ask` locks the keys of all jobs in one order, and reads what decides about the jobs: the ids
   that are known, and the jobs that have the keys. Then it reads the clock: a job that waited for
   a lock was not created while the holder before it lived.
2. `put_all` decides about one job after the other, as if the jobs before it were stored. Then it
   stores the new ones together.
3. A job that changes the holder of its unique key (it replaces the call, or cancels an expired
   holder) takes statements of its own, after the jobs before it are stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from windlass.core.queues.settings import USUAL, QueueSettings
from windlass.core.states import State
from windlass.core.unique import OnConflict
from windlass.engine.contract import NewJob, Placed, PutCode, UniqueKey, check_times
from windlass.engine.postgres.statements import PostgresStatements, escape, pack_numbers
from windlass.engine.postgres.transaction import Transaction, lock_names
from windlass.engine.sql.statements import Row
from windlass.engine.sql.transaction import unpack_settings
from windlass.engine.sql.verbs import unique
from windlass.engine.sql.verbs.put import count_moved, most_waiting, reply_for_key
from windlass.engine.sql.wakeup import ReadyLine, ReadyTask
from windlass.engine.wakeup import POLL_FLOOR_MS

#: A task, with an idempotency key as it is stored, or with a unique key.
Key = tuple[str, str]
#: Waits for the rows of a statement that was sent.
Rows = Callable[[], list[Row]]

#: A chunk has at most this many jobs with unique keys: in a transaction of the caller, each
#: statement of a unique job runs the verb for its chunk once more.
_MOST_UNIQUE: Final = 50
#: An array of numbers that no job needs.
_NONE: Final = "{}"


def chunks(jobs: Sequence[NewJob]) -> Iterator[Sequence[NewJob]]:
    """Split jobs for a transaction of the caller. A job that may replace a call is a chunk of its
    own."""
    start = uniques = 0
    for at, job in enumerate(jobs):
        if job.unique is None:
            continue
        is_alone = job.unique.on_conflict is OnConflict.REPLACE
        if at > start and (is_alone or uniques == _MOST_UNIQUE):
            yield jobs[start:at]
            start, uniques = at, 0
        uniques = _MOST_UNIQUE if is_alone else uniques + 1
    if start < len(jobs):
        yield jobs[start:]


def shapes_jobs(settings: QueueSettings) -> bool:
    """Whether the settings of a queue affect new jobs: a bound, or an age."""
    return settings.max_waiting != 0 or settings.cohort != USUAL.cohort


def values_of(jobs: Sequence[NewJob], ages: Iterable[int] | None = None) -> tuple[Any, ...]:
    """The arrays of the statement `put_jobs`."""
    return (
        [job.id for job in jobs],
        [job.task for job in jobs],
        [job.queue for job in jobs],
        pack_numbers(-job.priority for job in jobs),
        [job.payload for job in jobs],
        *_times(jobs),
        _NONE if ages is None else pack_numbers(ages),
        *_unique_keys(jobs),
    )


def _times(jobs: Sequence[NewJob]) -> tuple[str, str, str, str]:
    if not any(job.has_times for job in jobs):
        return (_NONE, _NONE, _NONE, _NONE)
    return (
        pack_numbers(job.run_after_ms for job in jobs),
        pack_numbers(job.run_in_ms for job in jobs),
        pack_numbers(job.expires_ms for job in jobs),
        pack_numbers(job.expires_in_ms for job in jobs),
    )


def _unique_keys(jobs: Sequence[NewJob]) -> tuple[Any, ...]:
    keys = [job.unique for job in jobs]
    if not any(keys):
        return ([], [], _NONE)
    return (
        [None if key is None else key.key for key in keys],
        [None if key is None else str(key.until) for key in keys],
        pack_numbers(None if key is None else key.period_ms for key in keys),
    )


# ------------------------------------------------------------------------------------ the question


class Known(NamedTuple):
    """The rows that decide about new jobs. Each decision adds the job that will be stored."""

    ids: set[str]
    keys: dict[Key, tuple[str, str, int]]  # id, fingerprint, and when the key expires
    holders: dict[Key, unique.Holder]
    replaced: dict[str, str]  # the job that has the call of a put
    waiting: Mapping[str, int]  # line with a bound -> number of waiting jobs


class Inquiry(NamedTuple):
    """Statements about new jobs that were sent."""

    ids: Rows
    keys: Rows
    holders: Rows
    replaced: Rows
    waiting: dict[str, Rows]
    clock: Rows

    def now_ms(self, before_ms: int) -> int:
        """The time at which the locks were there, given that of the beginning."""
        found: list[int] = [now_ms for (now_ms,) in self.clock()]
        return max([before_ms, *found])

    def read(self, now_ms: int) -> Known:
        replaced: dict[str, str] = {}
        for put, job, expires_ms in self.replaced():
            if expires_ms is None or expires_ms > now_ms:
                replaced.setdefault(put, job)
        return Known(
            ids={job_id for (job_id,) in self.ids()},
            keys={(task, key): (*found,) for task, key, *found in self.keys()},
            holders={(task, key): unique.Holder(*found) for task, key, *found in self.holders()},
            replaced=replaced,
            waiting={line: int(rows()[0][0]) for line, rows in self.waiting.items()},
        )


def ask(
    db: PostgresStatements,
    jobs: Sequence[NewJob],
    queues: str,
    clock: str,
    *,
    is_callers: bool = False,
) -> Inquiry:
    """Lock the keys of jobs, and send the statements whose rows decide about the jobs. In a
    transaction of the caller, neither bounded lines nor running holders are locked: others would
    wait for it. Its jobs have the time at which its statements begin."""
    for job in jobs:
        if job.has_times:
            check_times(job)
    bounded = _bounded_lines(jobs, queues)
    keyed = [job for job in jobs if job.idempotency_key is not None or job.unique is not None]
    locked: Sequence[str] = () if is_callers else bounded
    _lock(db, keyed, locked, "lock_waiting_holders" if is_callers else "lock_holders")
    keys = dict.fromkeys(_key_of(job) for job in keyed if job.idempotency_key is not None)
    uniques = dict.fromkeys((job.task, job.unique.key) for job in keyed if job.unique is not None)
    ids = [job.id for job in (jobs if bounded else keyed)]
    replacing = [job.id for job in keyed if _may_replace(job)]
    return Inquiry(
        ids=_later(db, "find_known", ids),
        keys=_later(db, "find_keys", *_columns(keys)),
        holders=_later(db, "find_holders", *_columns(uniques)),
        replaced=_later(db, "find_replaced_puts", replacing),
        waiting={line: db.later("count_waiting", line) for line in bounded},
        clock=db.later("read_clock", clock) if (keyed or bounded) and not is_callers else list,
    )


def _bounded_lines(jobs: Sequence[NewJob], queues: str) -> list[str]:
    settings = unpack_settings(queues)
    if not settings:
        return []
    lines = dict.fromkeys(job.queue for job in jobs)
    return [line for line in lines if most_waiting(settings, line)]


def _lock(
    db: PostgresStatements, keyed: Sequence[NewJob], lines: Sequence[str], holders: str
) -> None:
    """Lock keys and lines in the order of their numbers, as all transactions do; then the jobs to
    which unique keys lead."""
    uniques = dict.fromkeys((job.task, job.unique.key) for job in keyed if job.unique is not None)
    scoped = [(job.task, job.scoped_key) for job in keyed if job.scoped_key is not None]
    keys = (("key", *key) for key in [*uniques, *scoped])
    lock_names(db, [*(("line", line) for line in lines), *keys])
    if uniques:
        db.run(holders, *_columns(uniques))


def lock_keys_of(tx: Transaction, ids: Sequence[str]) -> None:
    """Lock the unique keys of jobs before the jobs themselves, as puts do."""
    tx.lock_all(("key", *key) for key in tx.rows("keys_of_jobs", list(ids)))


def _key_of(job: NewJob) -> Key:
    return job.task, escape(job.scoped_key or "")


def _may_replace(job: NewJob) -> bool:
    return job.unique is not None and job.unique.on_conflict is OnConflict.REPLACE


def _columns(keys: Iterable[Key]) -> tuple[list[str], list[str]]:
    found = list(keys)
    return [task for task, _ in found], [key for _, key in found]


def _later(db: PostgresStatements, name: str, first: list[str], *others: list[str]) -> Rows:
    """Send a statement for arrays; none if they are empty."""
    return db.later(name, first, *others) if first else list


# ------------------------------------------------------------------------------------ the decision


def put_all(tx: Transaction, jobs: Sequence[NewJob], asked: Inquiry | None = None) -> list[Placed]:
    """Store jobs in their order. `asked` is about all of them."""
    if asked is None:
        asked = ask(tx, jobs, tx.queues, tx.clock, is_callers=tx.is_callers)
    tx.now_ms = asked.now_ms(tx.now_ms)
    batch = _PutBatch(tx, asked.read(tx.now_ms))
    placed = [batch.put(job) for job in jobs]
    batch.store()
    return placed


class _PutBatch:
    """Decides about one job after the other, and stores the new ones together."""

    def __init__(self, tx: Transaction, known: Known) -> None:
        self._tx = tx
        self._known = known
        self._settings = unpack_settings(tx.queues)
        self._new: list[NewJob] = []
        self._ages: list[int] = []  # of the queues of new jobs
        self._added: Counter[str] = Counter()  # jobs of each line that will be stored

    def put(self, job: NewJob) -> Placed:
        if job.id not in self._known.ids:
            placed = self._find_key(job) or self._meet_holder(job) or self._refuse(job)
            if placed is not None:
                return placed
            self._add(job)
        return Placed(job.id, PutCode.CREATED)

    def _find_key(self, job: NewJob) -> Placed | None:
        """Return the reply for a job with a known idempotency key."""
        known = None if job.scoped_key is None else self._known.keys.get(_key_of(job))
        if known is None:
            return None
        job_id, fingerprint, expires_ms = known
        if expires_ms <= self._tx.now_ms:
            return None
        return reply_for_key(job, job_id, fingerprint)

    def _meet_holder(self, job: NewJob) -> Placed | None:
        """Return the reply for a job whose unique key is held."""
        if job.unique is None:
            return None
        if _may_replace(job) and job.id in self._known.replaced:
            return Placed(self._known.replaced[job.id], PutCode.REPLACED)
        holder = self._known.holders.get((job.task, job.unique.key))
        if holder is None or not holder.holds(self._tx.now_ms):
            return None
        placed = holder.answer(job.unique.on_conflict)
        if placed is None or holder.is_over(self._tx.now_ms):
            return self._change_holder(job, job.unique)
        return placed

    def _change_holder(self, job: NewJob, key: UniqueKey) -> Placed | None:
        """Replace the call of the holder, or cancel it if it has expired."""
        self.store()
        placed = unique.meet(self._tx, job)
        if placed is not None and placed.code is PutCode.REPLACED:
            self._known.replaced[job.id] = placed.id
        holder = unique.find_latest(self._tx, job.task, key.key)
        if holder is not None:
            self._known.holders[job.task, key.key] = holder
        return placed

    def _refuse(self, job: NewJob) -> Placed | None:
        """Return the reply for a job that a full queue refuses."""
        most = most_waiting(self._settings, job.queue)
        if not most:
            return None
        moved = count_moved(self._tx, job.queue)
        waiting = self._known.waiting[job.queue] + self._added[job.queue] + moved
        return Placed(job.id, PutCode.FULL) if waiting >= most else None

    def _add(self, job: NewJob) -> None:
        now_ms = self._tx.now_ms
        is_ready = not job.has_times or job.due_ms(now_ms) <= now_ms
        self._known.ids.add(job.id)
        if job.scoped_key is not None:
            until_ms = now_ms + self._tx.options.idempotency_ms
            self._known.keys[_key_of(job)] = job.id, job.fingerprint, until_ms
        if job.unique is not None:
            key = job.unique
            state = State.READY if is_ready else State.SCHEDULED
            self._known.holders[job.task, key.key] = unique.Holder(
                job.id, state, key.until, now_ms + key.period_ms, job.expiry_ms(now_ms)
            )
        self._new.append(job)
        self._ages.append(self._tx.grow_age(job.queue) if is_ready else 0)
        self._added[job.queue] += 1

    def store(self) -> None:
        """Store the jobs that were decided upon."""
        new, self._new = self._new, []
        ages, self._ages = self._ages, []
        if not new:
            return
        tx = self._tx
        tx.run("put_jobs", f"={tx.now_ms}", None, *values_of(new, ages if any(ages) else None))
        tx.run("drop_repeated", [job.id for job in new])
        self._keep_keys(new)
        ready, tasks = news_of(new, tx.now_ms)
        for line, number in ready.items():
            tx.made_ready[line] += number
        tx.ready_tasks += tasks

    def _keep_keys(self, new: Sequence[NewJob]) -> None:
        tx = self._tx
        keys = {_key_of(job): job for job in new if job.scoped_key is not None}
        if keys:
            names, jobs = _columns(keys), keys.values()
            prints = [job.fingerprint for job in jobs]
            until_ms = tx.now_ms + tx.options.idempotency_ms
            tx.run("keep_keys", *names, [job.id for job in jobs], prints, until_ms)
        uniques = {(job.task, job.unique.key): job.id for job in new if job.unique is not None}
        if uniques:
            tx.run("keep_unique_keys", *_columns(uniques), [*uniques.values()])


# ---------------------------------------------------------------------------------------- the news


def news_of(jobs: Sequence[NewJob], now_ms: int) -> tuple[dict[ReadyLine, int], list[ReadyTask]]:
    """The news of new jobs for idle workers. A job that falls due before the next poll is news too:
    workers look for it, and learn when it is due."""
    ready: Counter[ReadyLine] = Counter()
    tasks: Counter[tuple[str, str]] = Counter()
    for job in jobs:
        wait_ms = job.due_ms(now_ms) - now_ms if job.has_times else 0
        if wait_ms <= POLL_FLOOR_MS:
            ready[ReadyLine(job.queue)] += 1
        if wait_ms <= 0:
            tasks[job.queue, job.task] += 1
    return ready, [(line, False, task, number) for (line, task), number in tasks.items()]
