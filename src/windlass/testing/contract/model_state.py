"""The state of the reference model, and the one transition function for all its jobs.

Transitions and charges come from `windlass.core.states`; `model_job` applies a transition to a job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from windlass.core.longest_lease import LongestLease
from windlass.core.queues.labels import queue_of
from windlass.core.queues.settings import QueueSettings, task_key
from windlass.core.states import Event, next_state
from windlass.engine.contract import MIN_RECORD_MS, EngineOptions, Plan, SessionCommand
from windlass.testing.contract import model_unique
from windlass.testing.contract.model_documents import DocumentModel
from windlass.testing.contract.model_history import HistoryModel
from windlass.testing.contract.model_job import ModelJob
from windlass.testing.contract.model_schedules import ScheduleModel

#: Events after which a job goes to the end of its queue, not to its old place.
QUEUEING: Final = frozenset({Event.DUE, Event.REVIVE})
#: The counters in `Stats.totals`, in addition to `enqueued`, `stale` and the final states.
COUNTED: Final = {
    Event.RETRY: "retried",
    Event.LOSE: "lost",
    Event.CRASH: "crashed",
    Event.EXPIRE: "expired",
}


class ModelKey(NamedTuple):
    id: str
    fingerprint: str
    until_ms: int


class ModelState(ScheduleModel, DocumentModel, HistoryModel):
    def __init__(self, options: EngineOptions, now_ms: int) -> None:
        super().__init__()
        self.options = options
        self.now_ms = now_ms
        self.sequence = 0
        self.jobs: dict[str, ModelJob] = {}
        self.keys: dict[tuple[str, str], ModelKey] = {}
        self.last_stored: dict[tuple[str, str], str] = {}  # (task, unique key) -> job id
        self.replaced_puts: dict[str, model_unique.ReplacedPut] = {}  # id -> an earlier put
        self.expiries: dict[str, int] = {}  # leases of live sessions
        self.said: dict[str, bytes] = {}  # session -> its info, of live sessions
        self.commands: dict[str, SessionCommand] = {}  # of live sessions
        self.last_nonces: dict[str, str] = {}  # session -> the latest nonce that got a job
        self.gone: dict[str, int] = {}  # dead session -> until when it is stored
        self.totals: Counter[str] = Counter()
        self.settings: dict[str, QueueSettings] = {}  # only those other than the default
        self.last_seen_ms: int | None = None
        self.reap_after_ms = 0
        self.longest = LongestLease()

    def clock_ms(self) -> int:
        return self.now_ms

    def known_jobs(self) -> dict[str, ModelJob]:
        return self.jobs

    def move(self, job: ModelJob, event: Event, **details: Any) -> None:
        was = job.record
        state = next_state(was.state, event, cancel_requested=was.cancel_requested)
        if state is None:
            del self.jobs[was.id]
            self.last_stored = {name: id for name, id in self.last_stored.items() if id != was.id}
            return
        job.move(event, state, self.now_ms, **details)
        if event in QUEUEING:
            self.sequence += 1
            due_ms = was.due_ms if event is Event.DUE else None
            job.place, job.ready_ms = self.sequence, self.now_ms if due_ms is None else due_ms
            job.age = self.age_of(job.record.queue)
        if state.is_final:
            job.keep_until_ms = self.now_ms + max(self.options.dead_ttl_ms, MIN_RECORD_MS)
            job.visit_ms = job.keep_until_ms
            self.totals[state.value] += 1
        if event in COUNTED:
            self.totals[COUNTED[event]] += 1

    def _held(self, session: str) -> list[ModelJob]:
        return [job for job in self.jobs.values() if job.is_held_by(session)]

    def _free_key(self, id: str) -> None:
        self.keys = {name: key for name, key in self.keys.items() if key.id != id}

    def _settings_of(self, line: str) -> QueueSettings:
        return self.settings.get(queue_of(line), QueueSettings())

    def _is_paused(self, task: str) -> bool:
        return self._settings_of(task_key(task)).paused

    def age_of(self, line: str) -> int:
        """Return the current age of a queue, which never decreases."""
        own = self._settings_of(line).aged(self.now_ms)
        if own.age:
            self.settings[queue_of(line)] = own
        return own.age

    def rank(self, job: ModelJob) -> tuple[int, int]:
        """Return the order of a job among all queues: a level of priority is worth one period of
        waiting in its queue."""
        age = self._settings_of(job.record.queue).aged(self.now_ms).age
        return job.age - job.record.priority - age, job.place


def in_turn(
    plan: Plan, jobs: Iterable[ModelJob], rank: Callable[[ModelJob], tuple[int, int]]
) -> list[ModelJob]:
    """Sort jobs by the order of queues in the plan, then by priority, then by place."""
    turns = {queue: -number for number, queue in enumerate(reversed(plan.queues))}
    return sorted(jobs, key=lambda job: (turns.get(queue_of(job.record.queue), 1), rank(job)))
