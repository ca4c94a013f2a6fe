"""The Redis engine: each operation of the contract is one script per affected partition.

`encode` makes the arguments of scripts, `decode` reads records, `reply_values` reads the replies of
scripts, `dispatch` calls scripts, `claim` claims over several partitions, `read` lists records and
counters. This class decides which partitions an operation asks, and combines their replies.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Final

from windlass.core.ids import moved_id, new_id, new_ids
from windlass.core.queues.settings import QueueSettings, paused_tasks, task_key
from windlass.core.states import Event
from windlass.engine.contract import (
    BITE,
    MAX_DEAD_TALLIES,
    MAX_DOCUMENT_KEY,
    MAX_HELD,
    MAX_KIND,
    AuditEntry,
    Batch,
    Beat,
    CancelCode,
    Capability,
    ChangeCode,
    Closed,
    CopyCode,
    DeadLabel,
    DeadTallies,
    Document,
    DocumentChange,
    DueSchedules,
    Emptied,
    EngineOptions,
    EngineSpace,
    Filter,
    Finding,
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
    Migrated,
    NewJob,
    NewStep,
    Outcome,
    Page,
    Placed,
    Plan,
    Pulse,
    QueueChange,
    QueueRecord,
    Repaired,
    Revival,
    ScheduleChange,
    ScheduleRecord,
    SessionCommand,
    SessionRecord,
    Stats,
    Step,
    StepCode,
    Tended,
    Turn,
    Verdict,
    Waiter,
    WakeUp,
    batches,
    check_audit_entries,
    check_copies,
    check_document_changes,
    check_fingerprint,
    check_held,
    check_report,
    check_steps,
    is_plain_name,
    list_records,
    too_many_documents,
)
from windlass.engine.redis import (
    check,
    copies,
    dead_groups,
    decode,
    encode,
    history,
    keys,
    migrate,
    read,
    reply_values,
    setup,
)
from windlass.engine.redis.claim import Claimer
from windlass.engine.redis.client import scripts
from windlass.engine.redis.client.server import Reply
from windlass.engine.redis.dispatch import CHUNK, Caller
from windlass.engine.redis.partitions import SHARED
from windlass.engine.redis.result_wakeup import RedisResultWakeup
from windlass.engine.redis.url import RedisAddress
from windlass.engine.redis.wakeup import RedisWakeup
from windlass.errors import EngineError, EngineUnavailable

#: Cursor that `purge` returns at the end of a partition.
_ALL_SEEN: Final = -2
#: One call adopts at most this many jobs in all partitions, and at least one in each.
_MOST_ADOPTED: Final = 4 * BITE
#: One call reads at most this many documents, which may be large.
_DOCUMENTS: Final = 100


class RedisEngine(Caller):
    """Jobs in one Redis server, under one namespace."""

    def __init__(self, address: RedisAddress, options: EngineOptions) -> None:
        super().__init__(address, options)
        self._of_id = self._partitions.of_id
        self._pack_jobs = partial(encode.of_jobs, idempotency_ms=options.idempotency_ms)
        self._claimer = Claimer(
            self._partitions, self._call, self._run, owns_sessions=options.owns_sessions
        )
        self._wakeup = RedisWakeup(self._server, address.partitions, self._register)
        self._result_wakeup = RedisResultWakeup(self._server)

    @property
    def location(self) -> str:
        return self._server.location

    @property
    def capabilities(self) -> frozenset[Capability]:
        everything = frozenset(Capability) - {Capability.TRANSACTIONAL}
        if self._partitions.number == 1:
            return everything
        return everything - {Capability.STRICT_ORDER, Capability.HANDOFF}

    def new_id(
        self, task: str, queue: str, idempotency_key: str | None, unique_key: str | None = None
    ) -> str:
        wall_ms = time.time_ns() // 1_000_000
        if self._partitions.number == 1:
            return new_id(wall_ms)
        key = idempotency_key if unique_key is None else unique_key
        if key is None:
            return new_id(wall_ms, self._partitions.next_free())
        return new_id(wall_ms, self._partitions.of_key(task, key))

    def new_ids(self, number: int, task: str, queue: str) -> list[str]:
        return new_ids(number, time.time_ns() // 1_000_000, self._partitions.next_free())

    def _of_job(self, job: NewJob | Revival | JobChange | DeadLabel | NewStep) -> int:
        return self._of_id(job.id)

    def elsewhere(self, job_id: str) -> list[str]:
        here = self._partitions.of_id(job_id)
        return [moved_id(job_id, number) for number in self._partitions.from_on(here)[1:]]

    # ----------------------------------------------------------------------------- hot paths

    def put(self, jobs: Sequence[NewJob]) -> list[Placed]:
        if self._partitions.number > 1:
            self._partitions.advance()
        if encode.are_plain(jobs):
            return self._put_plain(jobs)
        return self._put_any(jobs)

    def _put_any(self, jobs: Sequence[NewJob]) -> list[Placed]:
        for job in jobs:
            if job.idempotency_key is not None or job.unique is not None:
                self._partitions.check_key(job)
        pack = self._pack_jobs
        return self._spread(
            "put_any", jobs, self._of_job, pack, reply_values.to_placed, encode.size_of_job
        )

    def _put_plain(self, jobs: Sequence[NewJob]) -> list[Placed]:
        """Put plain jobs by a script that declares few keys. It leaves the jobs of a queue with
        settings to the other script."""
        pack = encode.of_plain_jobs
        placed = self._spread(
            "put", jobs, self._of_job, pack, reply_values.to_plainly_placed, encode.size_of_job
        )
        left = [job for job, one in zip(jobs, placed, strict=True) if one is None]
        try:
            others = iter(self._put_any(left) if left else ())
        except EngineUnavailable as error:
            error.unsent = error.unsent and len(left) == len(jobs)  # the others are stored
            raise
        return [one or next(others) for one in placed]

    def finish(self, outcomes: Sequence[Outcome]) -> list[Verdict]:
        verdicts: list[Verdict] = []
        for chunk in batches(outcomes, encode.size_of_outcome):
            verdicts += self._claimer.finish(chunk)
        return verdicts

    def turn(
        self,
        session: str,
        outcomes: Sequence[Outcome],
        nonce: str,
        plan: Plan,
        limit: int,
        *,
        is_last: bool = False,
    ) -> Turn:
        encode.check_name("session", session)
        encode.check_name("nonce", nonce)
        *early, last = [*batches(outcomes, encode.size_of_outcome)] or [()]
        verdicts = tuple(verdict for chunk in early for verdict in self._claimer.finish(chunk))
        turn = self._claimer.turn(session, last, nonce, plan, limit, is_last=is_last)
        return Turn(verdicts=verdicts + turn.verdicts, batch=turn.batch)

    # --------------------------------------------------------------------------------- steps

    def put_steps(self, steps: Sequence[NewStep]) -> list[StepCode]:
        check_steps([one.step for one in steps])
        pack, unpack = encode.of_steps, reply_values.each(StepCode)
        size_of = attrgetter("size")
        return self._spread("put_steps", steps, self._of_job, pack, unpack, size_of)

    def read_steps(self, id: str, token: str) -> tuple[Step, ...] | None:
        reply = self._ask(self._of_id(id), "read_steps", encode.of_texts((id, token)))
        return None if reply is None else reply_values.to_steps(reply)

    # ------------------------------------------------------------------------------ sessions

    def release(self, session: str, nonce: str) -> int:
        return sum(self._broadcast("release", encode.of_texts((session, nonce))))

    def beat(self, beats: Sequence[Beat]) -> list[Pulse]:
        check_held(beats)
        held = [self._partitions.split_ids(beat.held) for beat in beats]
        calls = []
        for number in range(self._partitions.number):
            here = [None if parts is None else parts.get(number, ()) for parts in held]
            packed = encode.of_beats(beats, self._partitions.home(number), here)
            calls.append(self._call(number, "beat", packed))
        replies = self._run(calls)
        by_beat = zip(*replies, strict=True) if beats else ()
        return [
            reply_values.to_pulse(beat, answers)
            for beat, answers in zip(beats, by_beat, strict=True)
        ]

    def close(self, session: str, suspects: Sequence[str], cause: str) -> Closed:
        """End a session: charge a single suspect, or mark several to run alone."""
        event = Event.CRASH if len(set(suspects)) == 1 else Event.SUSPECT
        blamed, released = self._end_session(session, event, cause, suspects)
        if event is Event.CRASH:
            return Closed(crashed=blamed, released=released)
        return Closed(suspected=blamed, released=released)

    def lose(self, session: str, cause: str) -> int:
        return self._end_session(session, Event.LOSE, cause)[1]

    def _end_session(
        self, session: str, event: Event, cause: str, suspects: Sequence[str] = ()
    ) -> tuple[int, int]:
        """End a session; return the number of its suspects and of its other jobs."""
        packed = encode.of_texts((session, event, cause, *suspects))
        blamed = others = 0
        more = True
        while more:
            for reply in (replies := self._broadcast("close", packed)):
                blamed += reply[0]
                others += reply[1]
            more = any(reply[2] for reply in replies)
        return blamed, others

    def sessions(self) -> list[SessionRecord]:
        return read.merge_sessions(self._broadcast("sessions", [b"%d" % MAX_HELD]))

    def infos(self, sessions: Sequence[str]) -> list[bytes | None]:
        """Ask the home of each session, which stores its `info`."""
        place = self._partitions.of_session
        return self._spread("infos", sessions, place, encode.of_texts, reply_values.as_they_are)

    def command(self, sessions: Sequence[str], command: SessionCommand) -> list[bool]:
        """Set the command in all partitions that know a session: its home is not always one."""
        names = [name for name in sessions if name and "\0" not in name]
        asked: dict[str, bool] = {}
        for at in range(0, len(names), CHUNK):
            some = names[at : at + CHUNK]
            replies = self._broadcast("command", encode.of_texts((command, *some)))
            by_name = zip(*replies, strict=True)
            asked |= {
                name: min(codes) >= 0 and max(codes) > 0
                for name, codes in zip(some, by_name, strict=True)
            }
        return [asked.get(name, False) for name in sessions]

    def introductions(self, prefix: str, cursor: str | None = None) -> Introductions:
        """Read the partitions in turn. Each stores the sessions that ask it first."""
        partition, last_ms, last = cursor.split(":", 2) if cursor else ("0", "0", "")
        packed = encode.of_texts((prefix, last_ms, last))
        next_ms, name, *found = self._ask(int(partition), "introductions", packed)
        infos = zip(map(bytes.decode, found[::2]), found[1::2], strict=True)
        if name:
            return Introductions(dict(infos), f"{partition}:{next_ms.decode()}:{name.decode()}")
        following = int(partition) + 1
        is_last = following == self._partitions.number
        return Introductions(dict(infos), None if is_last else f"{following}:0:")

    # ----------------------------------------------------------------------------- operators

    def cancel(self, ids: Sequence[str]) -> list[CancelCode]:
        return self._spread(
            "cancel", ids, self._of_id, encode.of_texts, reply_values.each(CancelCode)
        )

    def change_jobs(self, changes: Sequence[JobChange]) -> list[ChangeCode]:
        pack, unpack = encode.of_job_changes, reply_values.each(ChangeCode)
        return self._spread(
            "change", changes, self._of_job, pack, unpack, encode.size_of_job_change
        )

    def revive(self, revivals: Sequence[Revival]) -> list[ChangeCode]:
        pack, unpack = encode.of_revivals, reply_values.each(ChangeCode)
        return self._spread("revive", revivals, self._of_job, pack, unpack, encode.size_of_revival)

    def discard(
        self, ids: Sequence[str], seen: Mapping[str, int] | None = None
    ) -> list[ChangeCode]:
        def pack(ids: Sequence[str]) -> list[bytes]:
            pairs = ((job_id.encode(), b"%d" % (seen or {}).get(job_id, -1)) for job_id in ids)
            return [word for pair in pairs for word in pair]

        return self._spread("discard", ids, self._of_id, pack, reply_values.each(ChangeCode))

    def holders(self, keys: Sequence[tuple[str, str]]) -> list[str | None]:
        groups: dict[int, list[int]] = {}
        for position, key in enumerate(keys):
            groups.setdefault(self._partitions.of_key(*key), []).append(position)
        calls = [
            self._call(number, "holders", encode.of_texts([t for at in some for t in keys[at]]))
            for number, some in groups.items()
        ]
        found: dict[int, str | None] = {}
        for some, reply in zip(groups.values(), self._run(calls), strict=True):
            found.update(zip(some, (job_id.decode() or None for job_id in reply), strict=True))
        return [found[at] for at in range(len(keys))]

    def adopt(self, tasks: Sequence[str]) -> int:
        """Adopt jobs in all partitions, because the next claim may start with any partition."""
        most = max(1, min(BITE, _MOST_ADOPTED // self._partitions.number))
        return sum(self._broadcast("adopt", [b"%d" % most, *encode.of_texts(tasks)]))

    def queues(self) -> list[QueueRecord]:
        return list_records(self._read_settings())

    def _read_settings(self) -> dict[str, QueueSettings]:
        """Read the settings of all partitions. Each partition has a copy, and an interrupted change
        leaves copies that differ."""
        packed = encode.of_change("", QueueChange(), self._partitions.number)
        return read.merge_settings(self._broadcast("queue", packed))

    def change_queue(self, queue: str, change: QueueChange) -> None:
        encode.check_name("queue", queue)
        self._change_settings(queue, change)

    def _change_settings(self, queue: str, change: QueueChange) -> None:
        packed = encode.of_change(queue, change, self._partitions.number)
        for number in range(self._partitions.number):
            self._ask(number, "queue", packed)

    def pause_task(self, task: str) -> None:
        encode.check_name("task", task)
        self._change_settings(task_key(task), QueueChange(paused=True))

    def resume_task(self, task: str) -> int:
        encode.check_name("task", task)
        self._change_settings(task_key(task), QueueChange(paused=False))
        return self.adopt([task])

    def paused_tasks(self) -> list[str]:
        return paused_tasks(self._read_settings())

    def purge(self, queue: str, cursor: str | None = None) -> Emptied:
        """Purge the partitions in turn."""
        partition, begin = map(int, cursor.split(":")) if cursor else (0, -1)
        number, then = self._ask(partition, "purge", [queue.encode(), b"%d" % begin])
        if then != _ALL_SEEN:
            return Emptied(number, f"{partition}:{then}")
        is_last = partition + 1 == self._partitions.number
        return Emptied(number, None if is_last else f"{partition + 1}:-1")

    def tend(self, known: Sequence[str] | None = None) -> Tended:
        self._check_identity()
        named = known or ()
        groups = self._partitions.group(named, self._of_id)
        here = [[named[at] for at in groups.get(n, ())] for n in range(self._partitions.number)]
        calls = [
            self._call(number, "tend", encode.of_known(known, ids))
            for number, ids in enumerate(here)
        ]
        reaped, purged, more, doomed = zip(*self._run(calls), strict=True)
        found = [pair for part in doomed for pair in zip(part[::2], part[1::2], strict=True)]
        chosen = reply_values.within_budget(found)
        return Tended(
            reaped=sum(reaped),
            purged=sum(purged),
            doomed=tuple(sorted(chosen)),
            more=any(more) or len(chosen) < len(found),
            emptied=self._partition_ids.take_data_loss(),
        )

    # ------------------------------------------------------------------------- groups of dead

    def dead_tallies(
        self, fingerprints: Sequence[str] | None = None, limit: int = MAX_DEAD_TALLIES
    ) -> DeadTallies:
        packed = dead_groups.of_query(fingerprints, limit)
        return dead_groups.merge(self._broadcast("tallies", packed), limit)

    def label_dead(self, labels: Sequence[DeadLabel]) -> list[ChangeCode]:
        for label in labels:
            check_fingerprint(label.fingerprint)
        pack, unpack = dead_groups.of_labels, reply_values.each(ChangeCode)
        return self._spread("label", labels, self._of_job, pack, unpack)

    # ----------------------------------------------------------------------------- schedules

    def schedule_partition(self, name: str) -> int:
        return self._partitions.of_schedule(name)

    def change_schedules(self, changes: Sequence[ScheduleChange]) -> list[bool]:
        for change in changes:
            ids = (*change.watched, *change.cancelled, *(job.id for job in change.jobs))
            self._partitions.check_schedule(change.name, ids)
        pack, size_of = encode.of_changes, encode.size_of_change
        return self._spread("fire", changes, self._of_change, pack, reply_values.to_flags, size_of)

    def _of_change(self, change: ScheduleChange) -> int:
        return self.schedule_partition(change.name)

    def get_schedules(self, names: Sequence[str]) -> list[ScheduleRecord | None]:
        def pack(names: Sequence[str]) -> list[bytes]:
            return encode.of_texts(("named", "0", *names))

        return self._spread(
            "schedules", names, self.schedule_partition, pack, reply_values.to_schedules
        )

    def list_schedules(self, after: str = "", limit: int = 100) -> list[ScheduleRecord]:
        packed = encode.of_texts(("after", str(limit), after))
        return read.merge_schedules(self._broadcast("schedules", packed), limit)

    def due_schedules(self, skip: Sequence[str] = (), limit: int = 100) -> DueSchedules:
        packed = encode.of_texts(("due", str(limit), *skip))
        return read.merge_due(self._broadcast("schedules", packed))

    def remove_schedule(self, name: str) -> bool:
        return bool(self._ask(self.schedule_partition(name), "unschedule", [name.encode()]))

    # ------------------------------------------------------------------- documents and audit

    def get_documents(self, kind: str, keys: Sequence[str]) -> list[Document | None]:
        found: dict[str, Document] = {}
        is_kind = is_plain_name(kind, MAX_KIND)
        names = [key for key in keys if is_kind and is_plain_name(key, MAX_DOCUMENT_KEY)]
        for at in range(0, len(names), _DOCUMENTS):
            packed = encode.of_texts((kind, "named", *names[at : at + _DOCUMENTS]))
            members = self._ask(SHARED, "documents", packed)
            found |= {one.key: one for one in map(read.to_document, filter(None, members))}
        return [found.get(key) for key in keys]

    def list_documents(self, kind: str, after: str = "", limit: int = 100) -> list[Document]:
        found: list[Document] = []
        last = after.partition("\0")[0]  # no key has a zero byte
        while is_plain_name(kind, MAX_KIND) and (most := min(limit - len(found), _DOCUMENTS)) > 0:
            packed = encode.of_texts((kind, "after", str(most), last))
            page = list(map(read.to_document, self._ask(SHARED, "documents", packed)))
            found += page
            if len(page) < most:
                break
            last = page[-1].key
        return found

    def change_documents(self, changes: Sequence[DocumentChange]) -> list[bool]:
        check_document_changes(changes)
        if not changes:
            return []
        reply = self._ask(SHARED, "change_documents", encode.of_document_changes(changes))
        if isinstance(reply, bytes):
            raise too_many_documents(reply.decode())
        return list(map(bool, reply))

    def add_audit(self, entries: Sequence[AuditEntry]) -> None:
        check_audit_entries(entries)
        for some in batches(entries, encode.size_of_entry):
            self._ask(SHARED, "add_audit", encode.of_audit_entries(some))

    def list_audit(self, before: str = "", limit: int = 100) -> list[AuditEntry]:
        found: list[AuditEntry] = []
        last, zero, _ = before.partition("\0")  # no id has a zero byte
        last += "\1" if zero else ""
        while (most := min(limit - len(found), CHUNK)) > 0:
            packed = encode.of_texts((str(most), last))
            page = list(map(read.to_audit_entry, self._ask(SHARED, "audit", packed)))
            found += page
            if len(page) < most:
                break
            last = page[-1].id
        return found

    # -------------------------------------------------------------------------------- history

    def record(self, reporter: str, number: int, measures: Sequence[Measure]) -> None:
        check_report(number, measures)
        partition = self._partitions.of_reporter(reporter)
        self._ask(partition, "record", history.of_report(reporter, number, measures))

    def history(
        self, begin_ago_ms: int, *, by_hour: bool = False, cursor: str | None = None
    ) -> HistoryPage:
        number = self._partitions.number
        return history.read_page(self._broadcast, number, begin_ago_ms, by_hour, cursor)

    # --------------------------------------------------------------------------------- copies

    def copied_id(
        self, job_id: str, task: str, unique_key: str | None, schedule: str | None = None
    ) -> str:
        return self._partitions.copied_id(job_id, task, unique_key, schedule)

    def read_copies(self, ids: Sequence[str]) -> list[JobCopy | None]:
        unpack = partial(reply_values.to_found, copies.to_copy)
        return self._spread("copies", ids, self._of_id, encode.of_texts, unpack)

    def put_copies(self, copied: Sequence[JobCopy]) -> list[CopyCode]:
        check_copies(copied)
        for copy in copied:
            self._partitions.check_copy(copy)
        pack, unpack = copies.of_copies, reply_values.each(CopyCode)
        return self._spread("put_copies", copied, self._of_copy, pack, unpack, copies.size_of)

    def _of_copy(self, copy: JobCopy) -> int:
        return self._of_id(copy.record.id)

    def list_keys(self, cursor: str | None = None) -> KeyPage:
        return copies.list_keys(self._ask, self._partitions.number, cursor)

    def put_keys(self, keys: Sequence[KeyCopy]) -> list[CopyCode]:
        pack, unpack = copies.of_keys, reply_values.each(CopyCode)
        return self._spread("put_keys", keys, self._of_stored_key, pack, unpack)

    def _of_stored_key(self, key: KeyCopy) -> int:
        return self._partitions.of_stored_key(key.task, key.key)

    def list_holders(self, cursor: str | None = None) -> HolderPage:
        return copies.list_holders(self._ask, self._partitions.number, cursor)

    def open_transactions(self) -> frozenset[str]:
        return frozenset()

    # -------------------------------------------------------------------------------- reading

    def get(self, ids: Sequence[str]) -> list[JobRecord | None]:
        unpack = partial(reply_values.to_found, decode.to_whole_record)
        return self._spread("get", ids, self._of_id, encode.of_texts, unpack)

    def ends(self, ids: Sequence[str]) -> list[JobEnd | None]:
        return self._ends("", ids)

    def watch(self, ids: Sequence[str], on_end: Callable[[str], None]) -> list[JobEnd | None]:
        return self._ends(self._result_wakeup.listen(on_end), ids)

    def _ends(self, channel: str, ids: Sequence[str]) -> list[JobEnd | None]:
        pack = partial(encode.of_watch, channel)
        unpack = partial(reply_values.to_found, decode.to_end)
        return self._spread("ends", ids, self._of_id, pack, unpack)

    def find(self, filter: Filter, cursor: str | None = None, limit: int = 100) -> Page:
        return read.find(self._broadcast, self._partitions.number, filter, cursor, limit)

    def stats(self) -> Stats:
        """Read batches. In a partition, all counters of a line are of one instant."""
        bites: list[tuple[int, Sequence[Reply]]] = []
        far = dict.fromkeys(range(self._partitions.number), b"0")
        while far:
            calls = [self._call(number, "stats", [cursor]) for number, cursor in far.items()]
            replies = dict(zip(far, self._run(calls), strict=True))
            bites += replies.items()
            far = {number: reply[0] for number, reply in replies.items() if reply[0] != b"0"}
        return read.merge_stats(bites)

    def check(self) -> list[str]:
        return check.check(self._ask, self._partitions.number)

    def repair(self, cursor: str | None = None, *, change: bool = False) -> Repaired:
        return check.repair(self._ask, self._partitions.number, cursor, change)

    def is_used(self) -> bool:
        """Check for stored ids, or for the format before, without `_run`, which would set up a new
        server."""
        return any(self._read_partition_ids()) or self._has_old_format()

    def _has_old_format(self) -> bool:
        old = f"{migrate.old_prefix(self._address.namespace, 0)}meta".encode()
        try:
            (found,) = self._server.ask(
                [scripts.pack(b"HGET", old, b"format")], self._server.deadline()
            )
        except EngineUnavailable:
            raise
        except EngineError:
            return False  # this user has no right to that name
        return found is not None

    def examine(self) -> list[Finding]:
        from windlass.engine.redis import doctor  # slow to import, and seldom needed

        channel = keys.channel(self._address.namespace, "doctor").encode()

        def ask(commands: Sequence[bytes]) -> list[Reply]:
            return self._server.ask(commands, self._server.deadline())

        def look(commands: Sequence[bytes]) -> list[Reply]:
            """Run `examine.lua` without `_run`, which would set up a new server."""
            numbers = range(self._partitions.number)
            packed = [channel, *commands]
            calls = [self._bare_call(number, "examine", packed) for number in numbers]
            return self._server.run(calls, self._server.deadline())

        return list(doctor.examine(ask, look, self._address, self.clock_offset_ms))

    def space(self) -> EngineSpace:
        (reply,) = self._server.ask([scripts.pack(b"INFO", b"memory")], self._server.deadline())
        info = setup.read_info(reply)
        limit = int(info.get("maxmemory", 0)) or int(info.get("total_system_memory", 0))
        return EngineSpace(int(info.get("used_memory", 0)), limit)

    # ------------------------------------------------------------------------------- waiting

    def wait(self, waiters: Sequence[Waiter], timeout_ms: int) -> list[WakeUp]:
        return self._wakeup.wait(waiters, timeout_ms)

    def _register(
        self, channel: str, lasts_ms: int, plans: Sequence[bytes]
    ) -> Sequence[tuple[int, int, Sequence[bytes]]]:
        head = [channel.encode(), b"%d" % lasts_ms]
        return self._run(
            [self._call(number, "wait", [*head, here]) for number, here in enumerate(plans)]
        )

    def read_handoff(self, handed: bytes, nonce: str) -> Batch | None:
        return decode.to_handed(handed, nonce)

    def nudge(self) -> None:
        self._wakeup.nudge()

    # ---------------------------------------------------------------------- format and shutdown

    def migrate(self) -> int:
        return self._open(self._server.deadline())

    def migrate_jobs(self, cursor: str | None = None) -> Migrated:
        if cursor is None:
            self._open(self._server.deadline(), migrates=True)
        namespace, partitions = self._address.namespace, self._partitions.number
        return migrate.migrate(self._ask, namespace, partitions, cursor)

    def shutdown(self) -> None:
        self._wakeup.close()
        self._result_wakeup.close()
        self._server.close()
        self._is_fit = False
