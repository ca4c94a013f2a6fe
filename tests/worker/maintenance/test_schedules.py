"""The scheduler of workers, with a clock that tests move, on every engine."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from msgspec.structs import replace

from tests.worker.yard import until
from windlass import Cron, Every, Windlass
from windlass.core.schedules.declarations import ABANDONED_MS, REMOVABLE_MS, RENEWAL_MS, SILENT_MS
from windlass.core.schedules.occurrences import ON_TIME_MS, occurrence_id
from windlass.core.schedules.triggers import All, Overlap
from windlass.core.states import State
from windlass.engine.contract import (
    Engine,
    EngineOptions,
    Filter,
    Plan,
    ScheduleChange,
    Succeeded,
)
from windlass.engine.schedule_changes import RENEW_AFTER_MS
from windlass.engine.url import open_engine
from windlass.testing.contract.world import StandingStill, claim_jobs
from windlass.worker.ipc.channel import AppDeclaration
from windlass.worker.maintenance.schedules import (
    AGAIN_S,
    FLOOR_S,
    IDLE_S,
    ON_S,
    SPREAD_S,
    Scheduler,
    declarations,
)

HOUR_MS = 60 * 60 * 1000
START_MS = 500_000 * HOUR_MS + HOUR_MS // 2  # half past


def nothing() -> None: ...


class Clockwork:
    """An app, and a worker's look at the schedules in it."""

    def __init__(self, url: str) -> None:
        self.app = Windlass(url)
        self.task = self.app.task(name="task")(nothing)
        self.engine: Engine = self.app.engine
        self.keeper = Scheduler(self.engine)
        self.now_ms = START_MS
        self.pass_ms(0)

    def pass_ms(self, by_ms: int) -> None:
        self.now_ms += by_ms
        self.engine.clock_offset_ms = StandingStill(self.now_ms)

    def save(self, schedule: Cron | Every, name: str = "s") -> None:
        self.app.schedules.save(name, self.task.bind(), schedule)

    def jobs(self, state: State | None = None) -> list[str]:
        """Ids, the oldest first."""
        records = self.engine.find(Filter(state=state), limit=10_000).records
        return sorted(record.id for record in records)

    def ids(self, *hours: int, name: str = "s") -> list[str]:
        """Of the occurrences on the hour, the first being 1."""
        partition = self.engine.schedule_partition(name)
        first_ms = START_MS - HOUR_MS // 2
        return [occurrence_id(name, first_ms + hour * HOUR_MS, partition) for hour in hours]

    def run_next(self) -> str:
        """Claim a job and let it succeed."""
        (claim,) = claim_jobs(self.engine, "worker", f"{self.now_ms:020}", Plan(), 1).claims
        self.engine.finish([Succeeded(id=claim.id, token=claim.token)])
        return claim.id


@pytest.fixture
def work(url: str) -> Iterator[Clockwork]:
    work = Clockwork(url)
    yield work
    assert work.engine.check() == []
    work.app.close()


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "windlass.worker")
    return caplog


# ----------------------------------------------------------------------------------------- firing


def test_an_occurrence_becomes_one_job_at_its_time(work: Clockwork) -> None:
    work.save(Every("1h"))
    work.pass_ms(HOUR_MS // 2 - 1)
    work.keeper.look()
    assert work.jobs() == []
    work.pass_ms(1)
    for _ in range(3):
        work.keeper.look()
    assert work.jobs() == work.ids(1)
    work.pass_ms(HOUR_MS)
    Scheduler(work.engine).look()
    assert work.jobs() == work.ids(1, 2)
    assert work.app.schedules.get("s").skipped == 0


def test_the_lateness_of_the_last_run_is_shown(work: Clockwork) -> None:
    """Workers were away for ten minutes. A run by hand is no occurrence."""
    work.save(Every("1h"))
    assert work.app.schedules.get("s").last_late_s is None
    work.pass_ms(HOUR_MS // 2 + 10 * 60 * 1000)
    work.keeper.look()
    work.app.schedules.run_now("s")
    (info,) = work.app.schedules.list()
    assert info.last_late_s == 10 * 60
    work.pass_ms(HOUR_MS - 10 * 60 * 1000 + 250)
    work.keeper.look()
    assert work.app.schedules.get("s").last_late_s == 0.25


def test_many_workers_make_one_job_of_an_occurrence(work: Clockwork) -> None:
    names = [f"s{number}" for number in range(30)]
    for name in names:
        work.save(Every("1h"), name)
    with ThreadPoolExecutor(8) as pool:
        keepers = [Scheduler(work.engine) for _ in range(8)]
        for _ in range(3):
            work.pass_ms(HOUR_MS)
            list(pool.map(Scheduler.look, keepers))
    expected = [id for name in names for id in work.ids(1, 2, 3, name=name)]
    assert sorted(work.jobs()) == sorted(expected)
    assert work.engine.stats().totals["enqueued"] == 90


def test_a_job_starts_later_by_its_jitter(work: Clockwork) -> None:
    work.save(Every("1h", jitter="30m"))
    work.pass_ms(HOUR_MS // 2)
    work.keeper.look()
    (record,) = work.engine.get(work.ids(1))
    assert record is not None
    assert record.due_ms is not None
    assert 0 < record.due_ms - work.now_ms <= HOUR_MS // 2


def test_more_than_one_look_can_take_is_looked_at_again(work: Clockwork) -> None:
    for number in range(420):
        work.save(Every("1h"), f"s{number:03}")
    work.pass_ms(HOUR_MS)
    looks = 1
    while work.keeper.look() == ON_S:
        looks += 1
    assert looks > 1
    assert len(work.jobs()) == 420


@pytest.mark.parametrize(
    ("missed", "hours"),
    [
        ("skip", ()),
        ("once", (6,)),
        (All(3), (4, 5, 6)),
        (All(100), (1, 2, 3, 4, 5, 6)),
    ],
)
def test_after_six_hours_each_policy_has_its_exact_count(
    work: Clockwork, lines: pytest.LogCaptureFixture, missed: Any, hours: tuple[int, ...]
) -> None:
    work.save(Cron("0 * * * *", missed=missed))
    work.pass_ms(6 * HOUR_MS)
    work.keeper.look()
    assert work.jobs() == work.ids(*hours)
    left_out = 6 - len(hours)
    assert work.app.schedules.get("s").skipped == left_out
    told = [line for line in lines.messages if f"skipped {left_out} runs" in line]
    assert len(told) == (1 if left_out else 0)
    assert work.app.schedules.get("s").next_at is not None


def test_what_is_noticed_a_little_late_was_not_missed(work: Clockwork) -> None:
    work.save(Every("1s", missed="skip"))
    work.pass_ms(ON_TIME_MS)
    work.keeper.look()
    assert len(work.jobs()) == ON_TIME_MS // 1000


# ------------------------------------------------------------------------------------ overlapping


def test_skip_leaves_out_what_overlaps_and_tells_so(
    work: Clockwork, lines: pytest.LogCaptureFixture
) -> None:
    work.save(Every("1h", overlap="skip"))
    for _ in range(3):
        work.pass_ms(HOUR_MS)
        work.keeper.look()
    assert work.jobs() == work.ids(1)
    assert work.app.schedules.get("s").skipped == 2
    assert work.app.schedules.get("s").unfinished == tuple(work.ids(1))
    assert len([line for line in lines.messages if "an earlier run had not ended" in line]) == 2
    work.run_next()
    work.pass_ms(HOUR_MS)
    work.keeper.look()
    assert work.jobs(State.READY) == work.ids(4)


def test_cancel_previous_cancels_what_has_not_ended(work: Clockwork) -> None:
    work.save(Every("1h", overlap="cancel_previous"))
    work.pass_ms(HOUR_MS)
    work.keeper.look()
    work.pass_ms(HOUR_MS)
    work.keeper.look()
    assert work.jobs(State.CANCELLED) == work.ids(1)
    claim_jobs(work.engine, "worker", "1", Plan(), 1)
    work.pass_ms(HOUR_MS)
    work.keeper.look()
    (running,) = work.engine.get(work.ids(2))
    assert running is not None
    assert running.cancel_requested
    assert work.jobs(State.READY) == work.ids(3)
    assert work.app.schedules.get("s").skipped == 0


def test_queue_one_lets_one_wait_until_the_earlier_run_has_ended(work: Clockwork) -> None:
    work.save(Every("1h", overlap="queue_one"))
    for _ in range(4):
        work.pass_ms(HOUR_MS)
        work.keeper.look()
    assert work.jobs() == work.ids(1), "the second one waits, and is no job yet"
    assert work.app.schedules.get("s").skipped == 2
    assert work.run_next() == work.ids(1)[0]
    work.pass_ms(1_000)
    work.keeper.look()
    assert work.jobs(State.READY) == work.ids(2)


@pytest.mark.parametrize("overlap", ["skip", "queue_one", "cancel_previous"])
def test_many_workers_agree_about_what_overlaps(work: Clockwork, overlap: Overlap) -> None:
    """One run at a time for all workers, and each occurrence is run or skipped."""
    work.save(Every("1h", overlap=overlap))
    with ThreadPoolExecutor(6) as pool:
        keepers = [Scheduler(work.engine) for _ in range(6)]
        for hour in range(1, 9):
            work.pass_ms(HOUR_MS)
            list(pool.map(Scheduler.look, keepers))
            live = work.jobs(State.READY)
            assert len(live) <= 1
            if hour % 3 == 0 and live:
                assert work.run_next() == live[0]
    info = work.app.schedules.get("s")
    waiting = 1 if overlap == "queue_one" else 0
    assert len(work.jobs()) + info.skipped + waiting in (8, 8 + waiting)


# ------------------------------------------------------------------------------------- unreadable


def test_what_cannot_be_read_is_told_once_and_harms_no_other(
    work: Clockwork, lines: pytest.LogCaptureFixture
) -> None:
    work.save(Every("1h"), "sound")
    for number in range(110):
        work.save(Every("30m"), f"broken{number}")
        (record,) = work.engine.get_schedules([f"broken{number}"])
        assert record is not None
        body = record.body.replace(b'"every_ms":1800000', b'"cron":"0 3 * * *","tz":"Not/There"')
        assert body != record.body
        if number > 1:  # the zone is looked for among all others, which takes long
            body = b'{"version":9}'
        spoil(work.engine, record.name, body)
    work.pass_ms(2 * HOUR_MS)
    for _ in range(5):
        work.keeper.look()
    assert work.jobs() == work.ids(2, name="sound")
    told = [line for line in lines.messages if "cannot read schedule" in line]
    assert len(told) == 110
    assert len(set(told)) == 110
    assert any("Not/There" in line for line in told)
    assert any("newer windlass" in line for line in told)
    before = work.engine.get_schedules(["broken0", "broken2"])
    work.keeper.look()
    assert work.engine.get_schedules(["broken0", "broken2"]) == before, "it is left as it is"


def spoil(engine: Engine, name: str, body: bytes) -> None:
    (record,) = engine.get_schedules([name])
    assert record is not None
    change = ScheduleChange(
        name=name,
        expected=record.revision,
        revision="spoilt",
        due_ms=record.due_ms,
        note=record.note,
        body=body,
    )
    assert engine.change_schedules([change]) == [True]


# -------------------------------------------------------------------------------------- declaring


def declared(work: Clockwork, schedule: Cron | Every, version: int = 0) -> Scheduler:
    """A worker of some version of the code."""
    app = Windlass("sqlite:///:memory:")
    app.task(name="nightly", schedule=schedule)(nothing)
    (declaration,) = declarations(app)
    return Scheduler(work.engine, [replace(declaration, version=version)])


def test_a_declared_schedule_is_stored_and_renewed_now_and_then(work: Clockwork) -> None:
    keeper = declared(work, Every("1h"))
    assert 0.9 * RENEWAL_MS <= keeper.declare() * 1000 <= RENEWAL_MS
    info = work.app.schedules.get("nightly")
    assert (info.is_declared, info.task, info.state) == (True, "nightly", "active")
    before = work.engine.list_schedules()
    work.pass_ms(RENEW_AFTER_MS - 1)
    keeper.declare()
    assert work.engine.list_schedules() == before, "others have said so just now"
    work.pass_ms(1)
    keeper.declare()
    assert work.engine.list_schedules() != before
    assert work.app.schedules.get("nightly") == info


def test_of_two_versions_of_the_code_the_newer_one_counts(
    work: Clockwork, lines: pytest.LogCaptureFixture
) -> None:
    old, new = declared(work, Every("1h")), declared(work, Every("2h"))
    for keeper in (old, new, old, new, old):
        keeper.declare()
    assert work.app.schedules.get("nightly").schedule == Every("2h")
    told = [line for line in lines.messages if "differs from this worker's declaration" in line]
    assert len(told) == 1
    last, counts, removable = (
        datetime.fromtimestamp((START_MS + after_ms) / 1000, UTC).isoformat().replace("+00:00", "Z")
        for after_ms in (0, SILENT_MS, REMOVABLE_MS)
    )
    assert told[0].endswith(
        f"stored one: it was declared at {last} by a worker with other code. This worker's "
        f"declaration counts when no worker has declared the other one for 5m, from {counts} on if "
        f"none does again; or after windlass schedule remove nightly, which is refused until "
        f"{removable}"
    )
    work.pass_ms(SILENT_MS)
    old.declare()
    assert work.app.schedules.get("nightly").schedule == Every("1h"), "it was rolled back"


def test_a_declaration_counts_when_what_was_saved_by_its_name_is_removed(
    work: Clockwork, lines: pytest.LogCaptureFixture
) -> None:
    work.app.schedules.save("nightly", work.task.bind(), Every("2h"))
    keeper = declared(work, Every("1h"))
    keeper.declare()
    assert "saved at run time. Remove it with windlass schedule remove nightly" in lines.text
    work.app.schedules.remove("nightly")
    keeper.declare()
    assert work.app.schedules.get("nightly").schedule == Every("1h")


def test_a_declaration_that_met_a_run_is_made_again_soon(work: Clockwork) -> None:
    keeper = declared(work, Every("1h"))
    keeper._engine = cast(Engine, Rushed(work.engine))
    assert keeper.declare() == AGAIN_S
    keeper._engine = work.engine
    assert keeper.declare() > AGAIN_S
    assert work.app.schedules.get("nightly").is_declared


class Rushed:
    """An engine in which others are always faster."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def change_schedules(self, changes: list[ScheduleChange]) -> list[bool]:
        return [False] * len(changes)


def test_a_higher_number_counts_whoever_comes_first(work: Clockwork) -> None:
    first, second = declared(work, Every("1h"), version=2), declared(work, Every("2h"), version=1)
    for keeper in (first, second, first, second):
        keeper.declare()
    assert work.app.schedules.get("nightly").schedule == Every("1h")


def test_a_start_of_other_code_removes_nothing(work: Clockwork) -> None:
    declared(work, Every("1h")).declare()
    Scheduler(work.engine).declare()
    assert [info.name for info in work.app.schedules.list()] == ["nightly"]


def test_what_nobody_declares_for_a_day_is_paused_and_comes_back(
    work: Clockwork, lines: pytest.LogCaptureFixture
) -> None:
    keeper = declared(work, Every("1h"))
    keeper.declare()
    work.pass_ms(ABANDONED_MS)
    work.keeper.look()
    assert work.jobs() == []
    assert work.app.schedules.get("nightly").state == "abandoned"
    assert "no worker has declared it for a day" in lines.text
    keeper.declare()
    assert work.app.schedules.get("nightly").state == "active"
    work.keeper.look()
    assert work.jobs() == work.ids(24, name="nightly")


def test_one_that_was_saved_at_run_time_is_not_taken_over(work: Clockwork) -> None:
    work.save(Every("3h"), "nightly")
    declared(work, Every("1h")).declare()
    info = work.app.schedules.get("nightly")
    assert (info.schedule, info.is_declared) == (Every("3h"), False)


def test_a_declaration_that_cannot_be_compared_is_told_and_the_others_are_made(
    work: Clockwork, lines: pytest.LogCaptureFixture
) -> None:
    keeper = declared(work, Every("1h"))
    (body,) = [one.body for one in keeper._declarations.values()]
    both = Scheduler(
        work.engine, [AppDeclaration("a", b'{"version":9}'), AppDeclaration("b", body)]
    )
    both.declare()
    assert [info.name for info in work.app.schedules.list()] == ["b"]
    assert "cannot read schedule a," in lines.text


# ----------------------------------------------------------------------------------------- waiting


def test_it_looks_again_when_the_next_one_is_due(work: Clockwork) -> None:
    assert work.keeper.look() == IDLE_S
    work.save(Every("1h"))
    assert FLOOR_S <= work.keeper.look() <= FLOOR_S + SPREAD_S
    work.pass_ms(HOUR_MS // 2 - 100)
    assert 0.1 <= work.keeper.look() <= 0.1 + SPREAD_S
    work.pass_ms(100)
    assert FLOOR_S <= work.keeper.look() <= FLOOR_S + SPREAD_S
    assert work.jobs() == work.ids(1)


def test_a_worker_without_declarations_never_asks_again() -> None:
    engine = open_engine("sqlite:///:memory:", EngineOptions())
    assert Scheduler(engine).declare() == float("inf")


# --------------------------------------------------------------------------------- in real workers


def test_a_worker_inside_a_program_keeps_schedules(url: str) -> None:
    ran: list[str] = []
    app = Windlass(url)
    app.task(name="tick", schedule=Every("1s"))(noting(ran, "tick"))
    saved = app.task(name="saved")(noting(ran, "saved"))
    with app.worker():
        app.schedules.save("mine", saved.bind(), Every("1s"))
        until(lambda: {"tick", "saved"} <= set(ran), "both to run")
    assert {info.name for info in app.schedules.list()} == {"mine", "tick"}
    assert app.engine.check() == []
    app.close()


def noting(ran: list[str], word: str) -> Any:
    def note() -> None:
        ran.append(word)

    return note
