"""The reference model of several partitions: one model for each, and the merged result of
operations over all of them.

The engine decides which partitions a claim asks, and in which order: `follow` records this, and the
models of these partitions are asked in the same order. `model` defines the behaviour of each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from windlass.core.history import add_counts
from windlass.core.states import State
from windlass.engine.contract import (
    MAX_DEAD_TALLIES,
    MAX_HELD,
    Batch,
    Beat,
    CancelCode,
    ChangeCode,
    Closed,
    CopyCode,
    DeadLabel,
    DeadTallies,
    Emptied,
    EngineOptions,
    Filter,
    HistoryPage,
    HolderPage,
    Introductions,
    JobChange,
    JobCopy,
    JobEnd,
    JobRecord,
    KeyCopy,
    KeyPage,
    Measure,
    MeasureRow,
    NewJob,
    NewStep,
    Outcome,
    Placed,
    Plan,
    Pulse,
    QueueChange,
    QueueRecord,
    QueueSample,
    Revival,
    SessionCommand,
    SessionRecord,
    Share,
    Stats,
    Step,
    StepCode,
    Tended,
    Turn,
    Verdict,
    make_history_page,
)
from windlass.engine.redis.engine import RedisEngine
from windlass.engine.redis.partitions import Partitions
from windlass.testing.contract.model import Listed, Model
from windlass.testing.contract.model_dead_groups import count_groups
from windlass.testing.contract.model_documents import DocumentModel
from windlass.testing.contract.model_job import ModelJob
from windlass.testing.contract.model_schedules import ScheduleModel
from windlass.testing.contract.model_state import in_turn

T = TypeVar("T")
R = TypeVar("R")


class PartitionVisit(NamedTuple):
    """One call of `turn` in one partition, or of `prepare` before it."""

    partition: int
    session: str  # empty: it only ends claims
    limit: int | None  # negative: only jobs that are held already; None: only prepared
    plan: Plan


class PartitionedModel(ScheduleModel, DocumentModel):
    def __init__(self, options: EngineOptions, now_ms: int, number: int) -> None:
        self._partitions: Final = Partitions(number)
        self._models: Final = [Model(options, now_ms) for _ in range(number)]
        self._visits: list[PartitionVisit] = []
        self._has_asked_all = False  # whether a session is dead, or its nonce was used
        self._bounds: dict[str, int] = {}

    def follow(self, engine: RedisEngine) -> None:
        """Record which partitions this engine asks for claims."""
        make_call = engine._claimer._make_call

        def note(partition: int, name: str, packed: Sequence[bytes]) -> Any:
            session, _, *rest = packed
            if name == "nonce":
                self._has_asked_all = True
            else:
                packed_limit = rest.pop(0)
                limit, most_bytes = (None, 0) if name == "prepare" else _to_limit(packed_limit)
                plan = replace(_to_plan(rest), most_bytes=most_bytes)
                self._visits.append(PartitionVisit(partition, session.decode(), limit, plan))
            return make_call(partition, name, packed)

        engine._claimer._make_call = note

    @property
    def now_ms(self) -> int:
        return self._models[0].now_ms

    @now_ms.setter
    def now_ms(self, now_ms: int) -> None:
        for model in self._models:
            model.now_ms = now_ms

    @property
    def options(self) -> EngineOptions:
        return self._models[0].options

    @options.setter
    def options(self, options: EngineOptions) -> None:
        for model in self._models:
            model.options = options

    @property
    def jobs(self) -> dict[str, ModelJob]:
        return {id: job for model in self._models for id, job in model.jobs.items()}

    def clock_ms(self) -> int:
        return self.now_ms

    def known_jobs(self) -> dict[str, ModelJob]:
        return self.jobs

    # ------------------------------------------------------------------- by the partition of an id

    def put(self, jobs: Sequence[NewJob]) -> list[Placed]:
        return self._each(jobs, lambda job: job.id, lambda model, job: model.put([job])[0])

    def put_anyway(self, jobs: Sequence[NewJob]) -> None:
        self._each(jobs, lambda job: job.id, lambda model, job: model.put_anyway([job]))

    def put_steps(self, steps: Sequence[NewStep]) -> list[StepCode]:
        return self._each(steps, lambda new: new.id, lambda model, new: model.put_steps([new])[0])

    def read_steps(self, id: str, token: str) -> tuple[Step, ...] | None:
        return self._models[self._partitions.of_id(id)].read_steps(id, token)

    def cancel(self, ids: Sequence[str]) -> list[CancelCode]:
        return self._each(ids, str, lambda model, id: model.cancel([id])[0])

    def change_jobs(self, changes: Sequence[JobChange]) -> list[ChangeCode]:
        return self._each(
            changes, lambda one: one.id, lambda model, one: model.change_jobs([one])[0]
        )

    def revive(self, revivals: Sequence[Revival]) -> list[ChangeCode]:
        return self._each(revivals, lambda one: one.id, lambda model, one: model.revive([one])[0])

    def discard(
        self, ids: Sequence[str], seen: Mapping[str, int] | None = None
    ) -> list[ChangeCode]:
        return self._each(ids, str, lambda model, id: model.discard([id], seen)[0])

    def dead_tallies(
        self, fingerprints: Sequence[str] | None = None, limit: int = MAX_DEAD_TALLIES
    ) -> DeadTallies:
        return count_groups(self.jobs.values(), fingerprints, limit)

    def label_dead(self, labels: Sequence[DeadLabel]) -> list[ChangeCode]:
        return self._each(labels, lambda one: one.id, lambda model, one: model.label_dead([one])[0])

    def holders(self, keys: Sequence[tuple[str, str]]) -> list[str | None]:
        found = [(self._models[self._partitions.of_key(*key)], key) for key in keys]
        return [model.holders([key])[0] for model, key in found]

    def get(self, ids: Sequence[str]) -> list[JobRecord | None]:
        return self._each(ids, str, lambda model, id: model.get([id])[0])

    def ends(self, ids: Sequence[str]) -> list[JobEnd | None]:
        return self._each(ids, str, lambda model, id: model.ends([id])[0])

    def _each(
        self, items: Iterable[T], id_of: Callable[[T], str], do: Callable[[Model, T], R]
    ) -> list[R]:
        return [do(self._models[self._partitions.of_id(id_of(item))], item) for item in items]

    # ---------------------------------------------------------------------------------- claims

    def finish(self, outcomes: Sequence[Outcome]) -> list[Verdict]:
        self._visits.clear()
        return self._each(outcomes, lambda one: one.id, lambda model, one: model.finish([one])[0])

    def turn(
        self, session: str, outcomes: Sequence[Outcome], nonce: str, plan: Plan, limit: int
    ) -> Turn:
        """A session that is dead in one partition is dead. All partitions are asked until there are
        enough claims, or whether they know the nonce, and then for the jobs that are held."""
        visits = [visit for visit in self._visits if visit.session]
        has_asked_all, self._has_asked_all = self._has_asked_all, False
        verdicts = tuple(self.finish(outcomes))
        if has_asked_all and any(session in model.gone for model in self._models):
            return Turn(verdicts=verdicts, batch=Batch(gone=True))
        batches = [self._visit(visit, nonce) for visit in visits]
        claims = [claim for batch in batches for claim in batch.claims]
        if any(batch.gone for batch in batches):
            return Turn(verdicts=verdicts, batch=Batch(gone=True))
        is_enough = bool(limit) and len(claims) >= limit
        is_used_up = sum(len(claim.payload) for claim in claims) >= plan.most_bytes
        are_all = {visit.partition for visit in visits} == set(range(len(self._models)))
        assert are_all or is_enough or is_used_up
        jobs = self.jobs
        dues = [batch.next_in_ms for batch in batches if batch.next_in_ms is not None]
        dues += [] if are_all or is_enough else [0]
        batch = Batch(
            claims=tuple(
                job.as_claim() for job in in_turn(plan, [jobs[c.id] for c in claims], self._rank)
            ),
            next_in_ms=min(dues, default=None),
            suspects=any(batch.suspects for batch in batches),
        )
        return Turn(verdicts=verdicts, batch=batch)

    def _rank(self, job: ModelJob) -> tuple[int, int]:
        return self._models[self._partitions.of_id(job.record.id)].rank(job)

    def _visit(self, visit: PartitionVisit, nonce: str) -> Batch:
        model = self._models[visit.partition]
        if visit.limit is None:
            return model.prepare(visit.session, visit.plan)
        if visit.limit < 0:
            model.use_up(visit.session, nonce)
        return model.turn(visit.session, (), nonce, visit.plan, visit.limit).batch

    # ------------------------------------------------------------------------ in all partitions

    def release(self, session: str, nonce: str) -> int:
        return sum(model.release(session, nonce) for model in self._models)

    def beat(self, beats: Sequence[Beat]) -> list[Pulse]:
        """The info of a session is stored in the partition that it asks first."""
        replies = [
            model.beat([self._in_partition(number, beat) for beat in beats])
            for number, model in enumerate(self._models)
        ]
        by_beat = zip(*replies, strict=True)
        return [_one_pulse(beat, pulses) for beat, pulses in zip(beats, by_beat, strict=True)]

    def _in_partition(self, number: int, beat: Beat) -> Beat:
        is_home = self._partitions.of_session(beat.session) == number
        held = beat.held
        if held is not None:
            held = tuple(id for id in held if self._partitions.of_id(id) == number)
        return replace(beat, info=beat.info if is_home else b"", held=held)

    def infos(self, sessions: Sequence[str]) -> list[bytes | None]:
        homes = [self._models[self._partitions.of_session(name)] for name in sessions]
        return [home.infos([name])[0] for home, name in zip(homes, sessions, strict=True)]

    def command(self, sessions: Sequence[str], command: SessionCommand) -> list[bool]:
        """A session lives in the partitions that it claimed from, and in its home."""
        done = [model.command(sessions, command) for model in self._models]
        return [
            any(flags) and not any(name in model.gone for model in self._models)
            for name, flags in zip(sessions, zip(*done, strict=True), strict=True)
        ]

    def close(self, session: str, suspects: Sequence[str], cause: str) -> Closed:
        closed = [model.close(session, suspects, cause) for model in self._models]
        return Closed(
            crashed=sum(one.crashed for one in closed),
            suspected=sum(one.suspected for one in closed),
            released=sum(one.released for one in closed),
        )

    def lose(self, session: str, cause: str) -> int:
        return sum(model.lose(session, cause) for model in self._models)

    def introductions(self, prefix: str, cursor: str | None = None) -> Introductions:
        infos = [model.introductions(prefix).infos for model in self._models]
        return Introductions({name: info for part in infos for name, info in part.items()}, None)

    def adopt(self, tasks: Sequence[str]) -> int:
        return sum(model.adopt(tasks) for model in self._models)

    def queues(self) -> list[QueueRecord]:
        return [
            replace(record, max_waiting=self._bounds.get(record.queue, 0))
            for record in self._models[0].queues()
        ]

    def change_queue(self, queue: str, change: QueueChange) -> None:
        """Each partition has its part of a limit."""
        if change.max_waiting is not None:
            self._bounds[queue] = change.max_waiting
            part = -(-change.max_waiting // len(self._models))
            change = replace(change, max_waiting=part)
        for model in self._models:
            model.change_queue(queue, change)

    def pause_task(self, task: str) -> None:
        for model in self._models:
            model.pause_task(task)

    def resume_task(self, task: str) -> int:
        return sum(model.resume_task(task) for model in self._models)

    def paused_tasks(self) -> list[str]:
        return self._models[0].paused_tasks()

    def purge(self, queue: str, cursor: str | None = None) -> Emptied:
        return Emptied(sum(model.purge(queue).number for model in self._models), None)

    def tend(self, known: Sequence[str] | None = None) -> Tended:
        tended = [model.tend(known) for model in self._models]
        return Tended(
            reaped=sum(one.reaped for one in tended),
            purged=sum(one.purged for one in tended),
            doomed=tuple(sorted(id for one in tended for id in one.doomed)),
            more=any(one.more for one in tended),
        )

    # ----------------------------------------------------------------------------------- history

    def record(self, reporter: str, number: int, measures: Sequence[Measure]) -> None:
        self._models[self._partitions.of_reporter(reporter)].record(reporter, number, measures)

    def history(
        self, begin_ago_ms: int, *, by_hour: bool = False, cursor: str | None = None
    ) -> HistoryPage:
        pages = [model.history(begin_ago_ms, by_hour=by_hour) for model in self._models]
        measures: dict[tuple[int, str, str], MeasureRow] = {}
        for row in (row for page in pages for row in page.measures):
            known = measures.setdefault((row.at_ms, row.queue, row.task), row)
            if known is not row:
                counts = add_counts([known.counts, row.counts])
                measures[row.at_ms, row.queue, row.task] = replace(row, counts=counts)
        samples: dict[tuple[int, str], QueueSample] = {}
        for one in (one for page in pages for one in page.samples):
            other = samples.setdefault((one.at_ms, one.queue), one)
            if other is not one:
                samples[one.at_ms, one.queue] = replace(
                    one,
                    ready=one.ready + other.ready,
                    scheduled=one.scheduled + other.scheduled,
                    running=one.running + other.running,
                    dead=one.dead + other.dead,
                    oldest_ready_ms=max(one.oldest_ready_ms, other.oldest_ready_ms),
                )
        return make_history_page(measures.values(), samples.values(), None)

    # ------------------------------------------------------------------------------------ copies

    def read_copies(self, ids: Sequence[str]) -> list[JobCopy | None]:
        return self._each(ids, str, lambda model, id: model.read_copies([id])[0])

    def put_copies(self, copied: Sequence[JobCopy]) -> list[CopyCode]:
        return self._each(
            copied, lambda copy: copy.record.id, lambda model, copy: model.put_copies([copy])[0]
        )

    def list_keys(self, cursor: str | None = None) -> KeyPage:
        return KeyPage(tuple(key for model in self._models for key in model.list_keys().keys), None)

    def put_keys(self, keys: Sequence[KeyCopy]) -> list[CopyCode]:
        """The unique key of a job decides the partition; it is the first part of a stored key."""
        places = (self._partitions.of_key(key.task, key.key.partition("\0")[0]) for key in keys)
        return [
            self._models[place].put_keys([key])[0] for place, key in zip(places, keys, strict=True)
        ]

    def list_holders(self, cursor: str | None = None) -> HolderPage:
        return HolderPage(
            tuple(id for model in self._models for id in model.list_holders().ids), None
        )

    # ----------------------------------------------------------------------------------- reading

    def listing(self, filter: Filter) -> list[Listed]:
        found = [listed for model in self._models for listed in model.listing(filter)]
        return sorted(found, key=itemgetter(0))

    def stats(self) -> Stats:
        queues: dict[str, Counter[State]] = {}
        totals: Counter[str] = Counter()
        enqueued: Counter[tuple[str, str]] = Counter()
        for stats in (model.stats() for model in self._models):
            totals.update(stats.totals)
            enqueued.update(stats.enqueued)
            for queue, states in stats.queues.items():
                queues.setdefault(queue, Counter()).update(states)
        return Stats(
            queues=queues,
            oldest_ready_ms=self._oldest_ready_ms(),
            totals=totals,
            enqueued=enqueued,
        )

    def _oldest_ready_ms(self) -> dict[str, int]:
        """The most urgent of the next jobs of all partitions; of equals, the oldest."""
        heads: dict[str, tuple[int, int]] = {}
        for model in self._models:
            first_only: dict[str, ModelJob] = {}
            for job in model.in_line():
                first_only.setdefault(job.record.queue, job)
            for queue, job in first_only.items():
                standing = (job.age - job.record.priority, min(0, job.ready_ms - self.now_ms))
                heads[queue] = min(heads.get(queue, standing), standing)
        return {queue: -age_ms for queue, (_, age_ms) in heads.items()}

    def sessions(self) -> list[SessionRecord]:
        found: dict[str, SessionRecord] = {}
        for record in (record for model in self._models for record in model.sessions()):
            known = found.get(record.session, replace(record, jobs=0, held=()))
            found[record.session] = SessionRecord(
                session=record.session,
                expires_in_ms=max(record.expires_in_ms, known.expires_in_ms),
                jobs=known.jobs + record.jobs,
                held=tuple(sorted({*known.held, *record.held})[:MAX_HELD]),
                info=known.info or record.info,
                command=_strongest([known.command, record.command]),
            )
        return [found[name] for name in sorted(found)]


def _to_limit(packed: bytes) -> tuple[int, int]:
    """The number of jobs and bytes of a claim; zeros when only claims are ended."""
    limit, most_bytes = packed.split() or (b"0", b"0")
    return int(limit), int(most_bytes)


def _to_plan(packed: Sequence[bytes]) -> Plan:
    (suspects, *tasks), queues, shares, labels, *rest = packed
    names, turns = rest[: int(queues)], rest[int(queues) :]
    given = turns[3 * int(shares) : 3 * int(shares) + int(labels)]
    return Plan(
        queues=tuple(name.decode() for name in names),
        suspects=suspects == ord("1"),
        shares=tuple(
            Share(int(turns[at]), int(turns[at + 1]), turns[at + 2])
            for at in range(0, 3 * int(shares), 3)
        ),
        labels=tuple(label.decode() for label in given),
        tasks=tuple(msgspec.msgpack.decode(bytes(tasks), type=list[str])) if tasks else (),
    )


def _one_pulse(beat: Beat, pulses: Sequence[Pulse]) -> Pulse:
    session = beat.session
    if not all(pulse.alive for pulse in pulses):
        return Pulse(session=session, alive=False)
    lost = {id for pulse in pulses for id in pulse.lost}
    return Pulse(
        session=session,
        alive=True,
        cancel=tuple(sorted(id for pulse in pulses for id in pulse.cancel)),
        lost=tuple(id for id in beat.held or () if id in lost),
        command=_strongest([pulse.command for pulse in pulses]),
    )


def _strongest(commands: Sequence[SessionCommand]) -> SessionCommand:
    return max(commands, key=list(SessionCommand).index)
