"""Compare an engine with the reference model, driven by hypothesis through every verb.

Every reply must equal the model's, and after every step the visible state must be equal. Claims are
kept: stale tokens are used again with every outcome. If a place can be opened twice, the calls
alternate between two engine objects.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Any, ClassVar, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)
from msgspec.structs import replace

from windlass.core.history import KEEP_HOURS_MS, WIDTH
from windlass.core.ids import partition_of
from windlass.core.states import Hold, State
from windlass.core.unique import Until
from windlass.engine.contract import (
    UNKNOWN_NONCE_MS,
    AuditEntry,
    Batch,
    Beat,
    Capability,
    Claim,
    DeadLabel,
    DeadTallies,
    DeadTally,
    DocumentChange,
    Engine,
    Filter,
    HistoryPage,
    JobChange,
    JobCopy,
    JobRecord,
    KeyCopy,
    Measure,
    NewJob,
    NewStep,
    Outcome,
    Plan,
    QueueChange,
    Revival,
    ScheduleChange,
    SessionCommand,
    Stats,
    Step,
    UniqueKey,
)
from windlass.testing.contract.model import Model
from windlass.testing.contract.place import OPTIONS
from windlass.testing.contract.strategies import (
    DAY_MS,
    endings,
    fields,
    fingerprints,
    jumps,
    limits,
    plans,
    queues,
    slots,
    tasks,
    uniques,
)
from windlass.testing.contract.world import LEASE_MS, START_MS, STEP_MS, World

T = TypeVar("T")

#: The lease of the second engine object.
SHORT_LEASE_MS = LEASE_MS // 5

TOTALS = (
    "enqueued",
    "succeeded",
    "dead",
    "cancelled",
    "retried",
    "lost",
    "crashed",
    "sessions_lost",
    "stale",
    "expired",
    "replaced",
)


class QueueMachine(RuleBasedStateMachine):
    new_world: ClassVar[Callable[[], World]]
    has_one_partition: ClassVar[bool] = True

    ids: Bundle[str] = Bundle("ids")
    claims: Bundle[Claim] = Bundle("claims")  # current and stale
    unique_jobs: Bundle[NewJob] = Bundle("unique_jobs")
    repeatable: Bundle[tuple[str, str, Plan, int]] = Bundle("repeatable")

    def __init__(self) -> None:
        super().__init__()
        self.world = type(self).new_world()
        self.model = self.make_model()
        self.sessions = ["session-0", "session-1@v1", "session-2@v2"]
        self.known: dict[str, None] = {}
        self.started = len(self.sessions)
        self.open_engines()

    def make_model(self) -> Model:
        return Model(OPTIONS, START_MS)

    def open_engines(self) -> None:
        """Open two engine objects if possible, the second with a short lease."""
        leases_ms = [LEASE_MS, LEASE_MS]
        if Capability.MANY_PROCESSES in self.world.variant.capabilities:
            leases_ms = [LEASE_MS, SHORT_LEASE_MS]
        engines = [self.world.engine, self.world.open(leases_ms[1])]
        for engine in engines:
            self.follow(engine)
        self.engines = cycle(zip(engines, leases_ms, strict=True))

    def follow(self, engine: Engine) -> None:
        """Hook for a model that must follow changes that the engine makes by itself."""

    def same(self, verb: Callable[[Engine | Model], T]) -> T:
        """Call the engine and the model, and compare their replies."""
        engine, lease_ms = next(self.engines)
        self.model.options = replace(OPTIONS, lease_ms=lease_ms)
        said = verb(engine)
        assert said == verb(self.model)
        return said

    def claimed(self, batch: Batch) -> Any:
        return multiple(*batch.claims)

    # -------------------------------------------------------------------------------- going in

    def new_job(self, fields: dict[str, Any], id: str | None = None) -> NewJob:
        new = self.world.new(**fields, **({} if id is None else {"id": id}))
        self.known[new.id] = None
        return new

    @initialize(target=ids)
    def put_something(self) -> Any:
        jobs = [self.world.new(queue=queue) for queue in ("a", "b", "a")]
        self.known |= dict.fromkeys(job.id for job in jobs)
        self.same(lambda it: it.put(jobs))
        return multiple(*self.known)

    @rule(target=ids, batch=st.lists(fields, min_size=1, max_size=4))
    def put(self, batch: list[dict[str, Any]]) -> Any:
        jobs = [self.new_job(fields) for fields in batch]
        self.same(lambda it: it.put(jobs))
        return multiple(*(job.id for job in jobs))

    @rule(target=ids, number=st.integers(1, 3), queue=queues)
    def put_plain(self, number: int, queue: str) -> Any:
        jobs = [self.new_job({"queue": queue}) for _ in range(number)]
        self.same(lambda it: it.put(jobs))
        return multiple(*(job.id for job in jobs))

    @rule(target=unique_jobs, batch=st.lists(uniques, min_size=1, max_size=3), queue=queues)
    def put_unique(self, batch: list[UniqueKey], queue: str) -> Any:
        jobs = [self.new_job({"task": "t", "queue": queue, "unique": unique}) for unique in batch]
        self.same(lambda it: it.put([*jobs, jobs[-1]]))
        return multiple(*jobs)

    @rule(job=unique_jobs)
    def put_unique_again(self, job: NewJob) -> None:
        """Repeat a put, as after a lost reply."""
        self.same(lambda it: it.put([job]))

    @rule(target=ids, job=unique_jobs)
    def name_unique(self, job: NewJob) -> str:
        return job.id

    @rule(id=ids, fields=fields)
    def put_again(self, id: str, fields: dict[str, Any]) -> None:
        if not self.has_one_partition:  # key and id may be in different partitions
            fields = {**fields, "idempotency_key": None, "unique": None}
        job = self.new_job(fields, id)
        self.same(lambda it: it.put([job, job]))

    # -------------------------------------------------------------------------------- claiming

    @rule(target=claims, slot=slots, plan=plans, limit=limits)
    def claim(self, slot: int, plan: Plan, limit: int) -> Any:
        session, nonce = self.sessions[slot], self.world.nonce()
        turn = self.same(lambda it: it.turn(session, (), nonce, plan, limit))
        return self.claimed(turn.batch)

    @rule(target=repeatable, slot=slots, plan=plans, limit=st.integers(1, 3))
    def claim_with_lost_reply(self, slot: int, plan: Plan, limit: int) -> Any:
        session, nonce = self.sessions[slot], self.world.nonce()
        self.same(lambda it: it.turn(session, (), nonce, plan, limit))
        return session, nonce, plan, limit

    @rule(target=claims, slot=slots, plan=plans, limit=st.integers(1, 3))
    def claim_twice(self, slot: int, plan: Plan, limit: int) -> Any:
        """Claim, and repeat the claim at once, through another engine object if there is one."""
        session, nonce = self.sessions[slot], self.world.nonce()
        turns = [self.same(lambda it: it.turn(session, (), nonce, plan, limit)) for _ in range(2)]
        first, again = ({claim.id for claim in turn.batch.claims} for turn in turns)
        assert again == first or not first
        return self.claimed(turns[1].batch)

    @rule(target=claims, call=repeatable)
    def repeat_claim(self, call: tuple[str, str, Plan, int]) -> Any:
        session, nonce, plan, limit = call
        turn = self.same(lambda it: it.turn(session, (), nonce, plan, limit))
        return self.claimed(turn.batch)

    @rule(call=consumes(repeatable))
    def release(self, call: tuple[str, str, Plan, int]) -> None:
        session, nonce, _, _ = call
        self.same(lambda it: it.release(session, nonce))

    # --------------------------------------------------------------------------- ending claims

    @rule(picked=st.lists(st.tuples(claims, endings), min_size=1, max_size=3))
    def finish(self, picked: list[tuple[Claim, Callable[[Claim], Outcome]]]) -> None:
        """Finish claims, mostly with stale tokens."""
        outcomes = [ending(claim) for claim, ending in picked]
        self.same(lambda it: it.finish(outcomes))

    @precondition(lambda self: self.running())
    @rule(data=st.data(), ending=endings, again=st.booleans())
    def finish_running(
        self, data: st.DataObject, ending: Callable[[Claim], Outcome], again: bool
    ) -> None:
        outcome = ending(data.draw(st.sampled_from(self.running())))
        self.same(lambda it: it.finish([outcome, outcome] if again else [outcome]))

    @precondition(lambda self: self.running())
    @rule(
        target=claims,
        data=st.data(),
        ending=endings,
        again=st.booleans(),
        slot=slots,
        plan=plans,
        limit=limits,
    )
    def turn(
        self,
        data: st.DataObject,
        ending: Callable[[Claim], Outcome],
        again: bool,
        slot: int,
        plan: Plan,
        limit: int,
    ) -> Any:
        outcome = ending(data.draw(st.sampled_from(self.running())))
        outcomes = [outcome, outcome] if again else [outcome]
        session, nonce = self.sessions[slot], self.world.nonce()
        turn = self.same(lambda it: it.turn(session, outcomes, nonce, plan, limit))
        return self.claimed(turn.batch)

    def running(self) -> list[Claim]:
        jobs = self.model.jobs.values()
        return [job.as_claim() for job in jobs if job.record.state is State.RUNNING]

    # -------------------------------------------------------------------------------- liveness

    @rule(beating=st.sets(slots), info=st.sampled_from([b"", b"info", b"other"]))
    def beat(self, beating: set[int], info: bytes) -> None:
        beats = [Beat(session=self.sessions[slot], info=info) for slot in sorted(beating)]
        self.same(lambda it: it.beat(beats))

    @rule(slot=slots, known=st.lists(repeatable, max_size=2))
    def beat_with_nonces(self, slot: int, known: list[tuple[str, str, Plan, int]]) -> None:
        nonces = tuple(nonce for _, nonce, _, _ in known)
        beat = Beat(session=self.sessions[slot], nonces=nonces, newest=max(nonces, default=""))
        self.same(lambda it: it.beat([beat]))

    @rule(slot=slots)
    def forget_nonces(self, slot: int) -> None:
        """Send the heartbeat of a child that knows no nonces, long enough after its claims."""
        self.jump(UNKNOWN_NONCE_MS)
        beat = Beat(session=self.sessions[slot], nonces=(), newest=self.world.nonce())
        self.same(lambda it: it.beat([beat]))

    @rule(
        slot=slots, known=st.lists(ids, max_size=3), is_late=st.booleans(), halves=st.integers(0, 2)
    )
    def beat_with_jobs(self, slot: int, known: list[str], is_late: bool, halves: int) -> None:
        """Send the heartbeat of a worker that has some of its jobs, and jobs that it lost. The
        worker has the answers to all of its claims, to half of them or to none."""
        if is_late:
            self.jump(UNKNOWN_NONCE_MS)
        session = self.sessions[slot]
        own = {id: job for id, job in self.model.jobs.items() if job.is_held_by(session)}
        nonces = ["", *sorted(job.token or "" for job in own.values())]
        newest = nonces[(len(nonces) - 1) * halves // 2]
        beat = Beat(session=session, held=(*known, *list(own)[::2]), newest=newest)
        self.same(lambda it: it.beat([beat]))

    @rule(picked=st.lists(slots, max_size=3), command=st.sampled_from(SessionCommand))
    def command(self, picked: list[int], command: SessionCommand) -> None:
        names = [*(self.sessions[slot] for slot in picked), "session-unknown"]
        self.same(lambda it: it.command(names, command))
        self.same(lambda it: it.infos(names))

    @rule(slot=slots, suspects=st.lists(ids, max_size=3), all_of_them=st.booleans())
    def close(self, slot: int, suspects: list[str], all_of_them: bool) -> None:
        session = self.sessions[slot]
        if all_of_them:
            suspects = [claim.id for claim in self.running()]
        self.same(lambda it: it.close(session, suspects, "killed"))

    @rule(slot=slots)
    def lose(self, slot: int) -> None:
        session = self.sessions[slot]
        self.same(lambda it: it.lose(session, "its worker died"))

    @rule(slot=slots)
    def start_session(self, slot: int) -> None:
        self.sessions[slot] = f"session-{self.started}@v{self.started % 3}"
        self.started += 1

    # ------------------------------------------------------------------------------- operators

    @rule(ids=st.lists(ids, min_size=1, max_size=3))
    def cancel(self, ids: list[str]) -> None:
        self.same(lambda it: it.cancel(ids))

    @precondition(lambda self: self.running())
    @rule(data=st.data())
    def cancel_running(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(self.running())).id
        self.same(lambda it: it.cancel([id]))

    @rule(ids=st.lists(ids, min_size=1, max_size=5))
    def retry(self, ids: list[str]) -> None:
        self.same(lambda it: it.revive([Revival(id=id) for id in ids]))

    @rule(
        ids=st.lists(ids, min_size=1, max_size=3, unique=True),
        payload=st.sampled_from([None, b"other"]),
        is_seen=st.booleans(),
        late_ms=st.sampled_from([0, 0, 1]),
    )
    def revive(self, ids: list[str], payload: bytes | None, is_seen: bool, late_ms: int) -> None:
        jobs = self.model.jobs
        ended = [jobs[id].record.finished_ms if id in jobs and is_seen else None for id in ids]
        revivals = [
            Revival(id=id, finished_ms=None if at is None else at + late_ms, payload=payload)
            for id, at in zip(ids, ended, strict=True)
        ]
        self.same(lambda it: it.revive(revivals))

    @rule(
        ids=st.lists(ids, min_size=1, max_size=3),
        queue=st.sampled_from([None, "a", "b", "a+gpu", "c"]),
        run_in_ms=st.sampled_from([None, 0, 1, 1_000, DAY_MS]),
        payload=st.sampled_from([None, b"edited"]),
        is_seen=st.booleans(),
        again=st.booleans(),
    )
    def change_jobs(
        self,
        ids: list[str],
        queue: str | None,
        run_in_ms: int | None,
        payload: bytes | None,
        is_seen: bool,
        again: bool,
    ) -> None:
        """Change jobs of any state, some twice in one call, and some as they were seen."""
        jobs = self.model.jobs
        changes = [
            JobChange(
                id=id,
                seen=jobs[id].record.revision if is_seen and id in jobs else None,
                seen_payload=jobs[id].record.payload if is_seen and id in jobs else None,
                queue=queue,
                run_in_ms=run_in_ms,
                payload=payload,
            )
            for id in ids
        ]
        self.same(lambda it: it.change_jobs(changes * 2 if again else changes))

    @rule(ids=st.lists(ids, min_size=1, max_size=2))
    def discard(self, ids: list[str]) -> None:
        self.same(lambda it: it.discard(ids))

    @rule(ids=st.lists(ids, min_size=1, max_size=2), fingerprint=fingerprints, ms=st.integers(0, 1))
    def label(self, ids: list[str], fingerprint: str, ms: int) -> None:
        """Give jobs another fingerprint: those that are dead, as they were seen or not."""
        ended = {id: job.record.finished_ms or 0 for id, job in self.model.jobs.items()}
        labels = [
            DeadLabel(id=id, finished_ms=ended.get(id, 0) + ms, fingerprint=fingerprint)
            for id in ids
        ]
        self.same(lambda it: it.label_dead(labels))

    @rule(
        fingerprint=fingerprints,
        release=st.sampled_from([None, None, "", "v1"]),
        queue=st.sampled_from([None, None, "a"]),
        task=st.sampled_from([None, None, "t"]),
        limit=st.integers(1, 3),
    )
    def find_grouped(
        self, fingerprint: str, release: str | None, queue: str | None, task: str | None, limit: int
    ) -> None:
        filter = Filter(fingerprint=fingerprint, release=release, queue=queue, task=task)
        self.compare_pages(filter, limit)
        self.same(lambda it: _without_examples(it.dead_tallies([fingerprint, "none"])))

    @rule(queue=queues, paused=st.sampled_from([True, False, False]))
    def pause_or_resume(self, queue: str, paused: bool) -> None:
        self.same(lambda it: it.change_queue(queue, QueueChange(paused=paused)))

    @rule(task=tasks)
    def pause_task(self, task: str) -> None:
        self.same(lambda it: it.pause_task(task))

    @rule(task=tasks)
    def resume_task(self, task: str) -> None:
        self.same(lambda it: it.resume_task(task))

    @rule(queue=queues, ageing_ms=st.sampled_from([0, 1_000, LEASE_MS]))
    def age(self, queue: str, ageing_ms: int) -> None:
        self.same(lambda it: it.change_queue(queue, QueueChange(ageing_ms=ageing_ms)))

    @rule(queue=queues, most=st.sampled_from([0, 0, 1, 3, 9]))
    def bound(self, queue: str, most: int) -> None:
        self.same(lambda it: it.change_queue(queue, QueueChange(max_waiting=most)))

    @rule(queue=queues)
    def purge(self, queue: str) -> None:
        self.same(lambda it: purge_all(it, queue))

    @rule(tasks=st.lists(tasks, max_size=2))
    def adopt(self, tasks: list[str]) -> None:
        self.same(lambda it: it.adopt(tasks))

    @rule()
    def tend(self) -> None:
        self.same(lambda it: it.tend())
        self.same(all_history)

    @rule(known=st.lists(ids, max_size=3))
    def tend_with_care(self, known: list[str]) -> None:
        self.same(lambda it: it.tend(known))

    # ------------------------------------------------------------------------------- schedules

    @rule(
        target=ids,
        name=st.sampled_from(["x", "y", "z"]),
        is_current=st.sampled_from([True, True, False]),
        due_in_ms=st.sampled_from([None, -1_000, 0, 1_000]),
        number=st.integers(0, 2),
        body=st.sampled_from([None, b"body"]),
        again=st.booleans(),
        cancels=st.booleans(),
    )
    def change_schedule(
        self,
        name: str,
        is_current: bool,
        due_in_ms: int | None,
        number: int,
        body: bytes | None,
        again: bool,
        cancels: bool,
    ) -> Any:
        known = self.model.schedules.get(name)
        watched = () if known is None else known.watched
        partition = self.world.engine.schedule_partition(name)
        jobs = [
            self.new_job({"run_in_ms": 1_000 * at}, self.world.later_id(partition))
            for at in range(number)
        ]
        change = ScheduleChange(
            name=name,
            expected=known.revision if known and is_current else "",
            revision=self.world.nonce(),
            due_ms=None if due_in_ms is None else self.world.now_ms + due_in_ms,
            note=b"note",
            body=body if known else b"first",
            watched=(*watched, *(job.id for job in jobs))[-3:],
            cancelled=watched if cancels else (),
            jobs=tuple(jobs),
        )
        self.same(lambda it: it.change_schedules([change, change] if again else [change]))
        return multiple(*(job.id for job in jobs))

    @rule(name=st.sampled_from(["x", "y", "unknown"]))
    def remove_schedule(self, name: str) -> None:
        self.same(lambda it: it.remove_schedule(name))

    # --------------------------------------------------------------------- documents and audit

    @rule(
        keys=st.lists(st.sampled_from(["x", "y", "z"]), min_size=1, max_size=3),
        is_current=st.sampled_from([True, True, False]),
        body=st.sampled_from([None, b"", b"body", b"\0"]),
        again=st.booleans(),
    )
    def change_documents(
        self, keys: list[str], is_current: bool, body: bytes | None, again: bool
    ) -> None:
        known = [self.model.documents.get(("kind", key)) for key in keys]
        changes = [
            DocumentChange(
                kind="kind",
                key=key,
                expected=one.revision if one and is_current else "",
                revision=self.world.nonce(),
                body=body,
            )
            for key, one in zip(keys, known, strict=True)
        ]
        self.same(lambda it: it.change_documents([*changes, *changes] if again else changes))
        self.same(lambda it: it.list_documents("kind"))

    @rule(numbers=st.lists(st.integers(0, 20), max_size=3))
    def add_audit(self, numbers: list[int]) -> None:
        entries = [AuditEntry(id=f"{number:02}", body=b"entry") for number in numbers]
        self.same(lambda it: it.add_audit(entries))
        self.same(lambda it: it.list_audit())

    # --------------------------------------------------------------------------------- history

    @rule(
        reporter=st.sampled_from(["one", "other"]),
        number=st.integers(1, 3),
        names=st.lists(st.tuples(queues, tasks), max_size=3),
    )
    def record(self, reporter: str, number: int, names: list[tuple[str, str]]) -> None:
        """Send a report, which is often a repeat, and may name a task twice."""
        counts = tuple(number * at for at in range(WIDTH))
        measures = [Measure(queue=queue, task=task, counts=counts) for queue, task in names]
        self.same(lambda it: it.record(reporter, number, measures))
        self.same(all_history)

    # ----------------------------------------------------------------------------------- steps

    @rule(
        claim=claims,
        names=st.lists(st.sampled_from(["a", "b", "ä"]), min_size=1, max_size=2),
        value=st.sampled_from([b"", b"value", b"\0\xff"]),
    )
    def put_steps(self, claim: Claim, names: list[str], value: bytes) -> None:
        new = [NewStep(id=claim.id, token=claim.token, step=Step(name, value)) for name in names]
        self.same(lambda it: it.put_steps(new))
        self.same(lambda it: it.read_steps(claim.id, claim.token))

    # ---------------------------------------------------------------------------------- copies

    @rule(target=ids, picked=st.lists(ids, min_size=1, max_size=3), is_new=st.booleans())
    def put_copies(self, picked: list[str], is_new: bool) -> Any:
        """Put copies of jobs next to the jobs, or in their place."""
        copies = [
            copy
            for copy in self.model.read_copies(picked)
            if copy is not None and copy.record.state is not State.RUNNING
        ]
        known = [copy.record.id for copy in copies]
        if is_new:
            known = [self.world.later_id(partition_of(id)) for id in known]
            self.known |= dict.fromkeys(known)
        else:
            self.same(lambda it: it.cancel(known))
            self.same(lambda it: it.discard(known))
        copies = [
            replace(copy, record=replace(copy.record, id=id))
            for copy, id in zip(copies, known, strict=True)
        ]
        self.same(lambda it: it.put_copies(copies))
        return multiple(*known)

    @rule(
        id=ids,
        task=tasks,
        name=st.sampled_from(["k", "m", "n"]),
        expires_in_ms=st.sampled_from([1, 1_000, DAY_MS]),
    )
    def put_key(self, id: str, task: str, name: str, expires_in_ms: int) -> None:
        """Put a key of a job that has none."""
        if id in self.model.jobs and all(key.id != id for key in all_keys(self.model)):
            expires_ms = self.world.now_ms + expires_in_ms
            key = KeyCopy(task=task, key=name, id=id, fingerprint="f", expires_ms=expires_ms)
            self.same(lambda it: it.put_keys([key, key]))

    @rule(queue=queues, least_age=st.sampled_from([0, 1, 5]))
    def age_at_least(self, queue: str, least_age: int) -> None:
        self.same(lambda it: it.change_queue(queue, QueueChange(least_age=least_age)))

    # ---------------------------------------------------------------------------- time and place

    @rule(by_ms=jumps)
    def jump(self, by_ms: int) -> None:
        self.world.advance(by_ms)
        self.model.now_ms = self.world.now_ms

    @rule(beating=st.sets(slots))
    def pass_a_lease(self, beating: set[int]) -> None:
        """Let a lease pass. Some sessions send heartbeats; the others are lost."""
        beats = [Beat(session=self.sessions[slot]) for slot in sorted(beating)]
        for _ in range(4):
            self.jump(STEP_MS)
            self.same(lambda it: it.beat(beats))

    @rule(slot=slots)
    def lose_a_session(self, slot: int) -> None:
        """Let the lease of one session expire while all others send heartbeats."""
        self.pass_a_lease({0, 1, 2} - {slot})
        self.tend()
        self.beat({slot}, b"")

    @rule()
    def keep_for_long_enough(self) -> None:
        """Let the retention of all ended jobs pass."""
        self.jump(OPTIONS.dead_ttl_ms)
        self.tend()

    @precondition(lambda self: Capability.DURABLE in self.world.variant.capabilities)
    @rule()
    def reopen(self) -> None:
        self.world.reopen()
        self.open_engines()

    # --------------------------------------------------------------------------- what is seen

    @rule(
        state=st.sampled_from([None, *State]),
        hold=st.sampled_from([None, None, None, Hold.UNROUTABLE, Hold.PAUSED]),
        suspects=st.sampled_from([False, False, True]),
        queue=st.sampled_from([None, "a"]),
        task=st.sampled_from([None, "t"]),
        since_ms=st.sampled_from([None, None, START_MS, START_MS + 1_000]),
        until_ms=st.sampled_from([None, None, START_MS + 1, START_MS + DAY_MS]),
        limit=st.integers(1, 4),
    )
    def find(
        self,
        state: State | None,
        hold: Hold | None,
        suspects: bool,
        queue: str | None,
        task: str | None,
        since_ms: int | None,
        until_ms: int | None,
        limit: int,
    ) -> None:
        filter = Filter(
            state=state,
            hold=hold,
            suspects=suspects,
            queue=queue,
            task=task,
            since_ms=since_ms,
            until_ms=until_ms,
        )
        self.compare_pages(filter, limit)

    def compare_pages(self, filter: Filter, limit: int) -> None:
        """Compare all pages with the model. Jobs of one place may be in any order."""
        engine, _ = next(self.engines)
        found, listed = all_pages(engine, filter, limit), self.model.listing(filter)
        order = {record.id: place for place, record in listed}
        assert sorted(found, key=_id) == sorted((record for _, record in listed), key=_id)
        assert [order[record.id] for record in found] == [place for place, _ in listed]

    @invariant()
    def everything_is_the_same(self) -> None:
        known = list(self.known)
        self.same(lambda it: it.get(known))
        self.same(lambda it: it.ends(known))
        self.compare_pages(Filter(), 1_000)
        self.same(lambda it: _without_examples(it.dead_tallies()))
        self.same(lambda it: _known_totals(it.stats()))
        self.same(lambda it: it.sessions())
        self.same(lambda it: all_introductions(it, "session-"))
        self.same(lambda it: it.queues())
        self.same(lambda it: it.paused_tasks())
        self.same(lambda it: it.list_schedules())
        self.same(lambda it: it.due_schedules(skip=["x"]))
        self.same(lambda it: it.holders([(task, key) for task in "tu" for key in "vw"]))
        self.same(lambda it: _without_visits(it.read_copies(known)))
        self.same(all_keys)
        self.same(all_holders)

    @invariant()
    def at_most_one_job_of_a_key_lives(self) -> None:
        """Check that at most one live job holds a key, for keys held beyond the start of a job."""
        live = [
            (job.record.task, job.record.unique_key)
            for job in self.model.jobs.values()
            if job.record.unique_key is not None
            and job.unique_until is not Until.START
            and not job.record.state.is_final
        ]
        assert len(live) == len(set(live))

    def teardown(self) -> None:
        try:
            assert self.world.engine.check() == []
        finally:
            self.world.variant.remove()


def _without_examples(found: DeadTallies) -> list[DeadTally]:
    """The groups of dead jobs. Of several jobs that died last, each may be the example."""
    return [replace(tally, example="") for tally in found.tallies]


def purge_all(it: Engine | Model, queue: str) -> int:
    emptied = it.purge(queue)
    number = emptied.number
    while emptied.cursor is not None:
        emptied = it.purge(queue, emptied.cursor)
        number += emptied.number
    return number


def all_pages(engine: Engine, filter: Filter, limit: int) -> list[JobRecord]:
    page = engine.find(filter, None, limit)
    found = [*page.records]
    while page.cursor is not None:
        page = engine.find(filter, page.cursor, limit)
        assert len(page.records) <= limit
        found += page.records
    return found


def _id(record: JobRecord) -> str:
    return record.id


def all_introductions(it: Engine | Model, prefix: str) -> dict[str, bytes]:
    bite = it.introductions(prefix)
    infos = dict(bite.infos)
    while bite.cursor is not None:
        bite = it.introductions(prefix, bite.cursor)
        infos |= bite.infos
    return infos


def all_keys(it: Engine | Model) -> list[KeyCopy]:
    page = it.list_keys()
    found = [*page.keys]
    while page.cursor is not None:
        page = it.list_keys(page.cursor)
        found += page.keys
    return sorted(found, key=lambda key: (key.task, key.key))


def all_holders(it: Engine | Model) -> list[str]:
    page = it.list_holders()
    found = [*page.ids]
    while page.cursor is not None:
        page = it.list_holders(page.cursor)
        found += page.ids
    return sorted(found)


def all_history(it: Engine | Model) -> tuple[HistoryPage, HistoryPage]:
    return it.history(KEEP_HOURS_MS), it.history(KEEP_HOURS_MS, by_hour=True)


def _known_totals(stats: Stats) -> tuple[object, ...]:
    """Return the stats without totals that only some engines count."""
    totals = {name: stats.totals.get(name, 0) for name in TOTALS}
    return stats.queues, stats.oldest_ready_ms, totals, stats.enqueued


def run_machine(
    new_world: Callable[[], World],
    *,
    examples: int = 100,
    machine: type[QueueMachine] = QueueMachine,
) -> None:
    """Run the configured number of examples, each with a new engine."""
    kind = type("Machine", (machine,), {"new_world": staticmethod(new_world)})
    options = settings(max_examples=examples, stateful_step_count=50, deadline=None)
    run_state_machine_as_test(kind, settings=options)


def _without_visits(copies: Sequence[JobCopy | None]) -> list[JobCopy | None]:
    """Leave out when the purge visits succeeded jobs: an engine may visit results on their own."""
    return [
        replace(one, keep_until_ms=None)
        if one is not None and one.record.state is State.SUCCEEDED
        else one
        for one in copies
    ]
