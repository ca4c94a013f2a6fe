"""`@app.task(schedule=...)` and `app.schedules`: what is accepted, and what is stored."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import windlass
from windlass import (
    All,
    Context,
    Cron,
    Every,
    InvalidSchedule,
    ScheduleNotFound,
    Unique,
    Windlass,
)
from windlass.core.states import State
from windlass.engine.contract import Beat, Engine, ScheduleChange
from windlass.testing.contract.world import StandingStill
from windlass.worker.maintenance.schedules import Scheduler, declarations

NOW = datetime(2027, 1, 15, 8, 30, tzinfo=UTC)
NOW_MS = int(NOW.timestamp()) * 1000


def nothing() -> None: ...


def needs(path: str, width: int = 3) -> None: ...


def with_context(ctx: Context, *paths: str, width: int = 3) -> None: ...


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Windlass]:
    app = Windlass(f"sqlite:///{tmp_path / 'jobs.db'}")
    app.engine.clock_offset_ms = StandingStill(NOW_MS)
    yield app
    assert app.engine.check() == []
    app.close()


# -------------------------------------------------------------------------------------- declaring


def names_of(app: Windlass) -> list[str]:
    return [name for name, _ in app.declared_schedules()]


def test_a_declared_schedule_has_the_name_of_its_task(app: Windlass) -> None:
    app.task(name="one", schedule=Every("1h"))(nothing)
    app.task(name="several", schedule=[Every("1h"), Cron("@daily")])(nothing)
    app.task(name="single", schedule=[Every("1h")])(nothing)
    app.task(name="none")(nothing)
    assert names_of(app) == ["one", "several:1", "several:2", "single:1"]


def test_it_carries_the_options_of_the_task(app: Windlass) -> None:
    app.task(name="one", queue="q", priority=7, expires="5m", schedule=Every("1h"))(nothing)
    ((_, entry),) = app.declared_schedules()
    assert (entry.task, entry.queue, entry.priority, entry.expires_in_ms) == (
        "one",
        "q",
        7,
        300_000,
    )
    assert entry.envelope == b"{}"


def test_a_cron_without_a_zone_has_that_of_the_app(tmp_path: Path) -> None:
    app = Windlass(f"sqlite:///{tmp_path / 'jobs.db'}", timezone="Europe/Paris")
    schedules: list[Cron | Every] = [Cron("0 3 * * *"), Cron("0 3 * * *", tz="UTC"), Every("1h")]
    app.task(name="one", schedule=schedules)(nothing)
    found = [entry.schedule for _, entry in app.declared_schedules()]
    assert found == [Cron("0 3 * * *", tz="Europe/Paris"), Cron("0 3 * * *", tz="UTC"), Every("1h")]


def test_a_task_that_needs_arguments_has_no_schedule(app: Windlass) -> None:
    with pytest.raises(InvalidSchedule, match=r"must not require arguments, and t requires path"):
        app.task(name="t", schedule=Every("1h"))(needs)
    assert "t" not in app.tasks
    assert names_of(app) == []
    app.task(name="t", takes_context=True, schedule=Every("1h"))(with_context)
    assert names_of(app) == ["t"]


@pytest.mark.parametrize("schedule", ["0 3 * * *", 5, [], ["x"], [Every("1h"), 5], {Every("1h")}])
def test_other_things_are_no_schedule(app: Windlass, schedule: Any) -> None:
    with pytest.raises(TypeError, match="schedule must be a Cron"):
        app.task(name="t", schedule=schedule)(nothing)
    assert names_of(app) == []


def test_an_option_for_one_call_is_refused(app: Windlass) -> None:
    with pytest.raises(InvalidSchedule, match=r"single call\. Give expires as a duration\."):
        app.task(name="t", expires=NOW, schedule=Every("1h"))(nothing)


def test_a_unique_task_has_no_schedule(app: Windlass) -> None:
    with pytest.raises(InvalidSchedule, match=r"Leave out unique=.*overlap=\"skip\""):
        app.task(name="t", unique=Unique(), schedule=Every("1h"))(nothing)
    task = app.task(name="t", unique=Unique())(nothing)
    with pytest.raises(InvalidSchedule, match=r"Leave out unique=.*overlap=\"skip\""):
        app.schedules.save("s", task.bind(), Every("1h"))
    assert app.schedules.list() == []


def test_a_schedule_belongs_to_the_task(app: Windlass) -> None:
    task = app.task(name="t")(nothing)
    with pytest.raises(TypeError, match=r"write @app.task\(schedule=...\)"):
        task.using(schedule=Every("1h"))  # type: ignore[call-arg]  # this is what is tested


def test_an_unknown_time_zone_is_no_setting() -> None:
    with pytest.raises(
        windlass.SettingError, match=r"timezone must be .* Did you mean 'Europe/Paris'"
    ):
        Windlass(timezone="Europe/Pariss")
    with pytest.raises(windlass.SettingError, match="timezone must be the name"):
        Windlass(timezone=5)  # type: ignore[arg-type]  # this is what is tested


# ------------------------------------------------------------------------------------------ saving


def test_a_saved_schedule_is_seen(app: Windlass) -> None:
    task = app.task(name="t", queue="q")(needs)
    app.schedules.save("digest-42", task.bind("a", width=4), Cron("0 * * * *"))
    info = app.schedules.get("digest-42")
    assert info == windlass.ScheduleInfo(
        name="digest-42",
        schedule=Cron("0 * * * *", tz="UTC"),
        task="t",
        queue="q",
        state="active",
        is_declared=False,
        next_at=NOW + timedelta(minutes=30),
        last_at=None,
        last_late_s=None,
        skipped=0,
        unfinished=(),
    )
    assert info.upcoming(3) == [NOW + timedelta(minutes=30 + 60 * number) for number in range(3)]
    assert app.schedules.list() == [info]


def test_schedules_are_listed_in_pages(app: Windlass) -> None:
    task = app.task(name="t")(nothing)
    names = [f"s-{number:03}" for number in range(120)]
    for name in names:
        app.schedules.save(name, task.bind(), Every("1h"))
    assert [one.name for one in app.schedules.list(limit=3)] == names[:3]
    assert [one.name for one in app.schedules.list(after=names[2], limit=110)] == names[3:113]
    assert [one.name for one in app.schedules.list(after=names[-1])] == []
    assert [one.name for one in app.schedules.list()] == names


def test_what_it_enqueues_is_the_call(app: Windlass) -> None:
    task = app.task(name="t", queue="q")(needs)
    call = task.using(priority=9, queue="other", timeout="5s").bind("a", width=4)
    app.schedules.save("s", call, Every("1h"))
    job = app.schedules.run_now("s")
    (mine,) = app.engine.get([job.id])
    (plain,) = app.engine.get(
        [task.using(priority=9, queue="other", timeout="5s").enqueue("a", width=4).id]
    )
    assert mine is not None
    assert plain is not None
    assert mine.payload == plain.payload
    assert (mine.queue, mine.priority) == (plain.queue, plain.priority) == ("other", 9)


def revision(app: Windlass, name: str = "s") -> str:
    (record,) = app.engine.get_schedules([name])
    assert record is not None
    return record.revision


def test_saving_the_same_again_changes_nothing_and_another_replaces_it(app: Windlass) -> None:
    task = app.task(name="t")(needs)
    app.schedules.save("s", task.bind("a"), Every("1h"))
    first = revision(app)
    app.schedules.save("s", task.bind("a"), Every("1h"))
    assert revision(app) == first
    app.schedules.save("s", task.bind("b"), Every("1h"))
    assert revision(app) != first
    app.schedules.save("s", task.bind("b"), Every("10m", missed=All(3)))
    assert app.schedules.get("s").schedule == Every("10m", missed=All(3))
    assert app.schedules.get("s").next_at == NOW + timedelta(minutes=10)


@pytest.mark.parametrize("name", ["", "a b", "a\n", "x" * 201, 5])
def test_a_name_that_makes_no_sense_is_refused(app: Windlass, name: Any) -> None:
    task = app.task(name="t")(nothing)
    with pytest.raises(InvalidSchedule, match="name of a schedule"):
        app.schedules.save(name, task.bind(), Every("1h"))


def test_what_is_no_call_is_refused(app: Windlass) -> None:
    task: Any = app.task(name="t")(nothing)
    other = Windlass("sqlite:///:memory:").task(name="t")(nothing)
    calls: list[Any] = [task, nothing, other.bind()]
    for call in calls:
        with pytest.raises(InvalidSchedule, match=r"task\.bind"):
            app.schedules.save("s", call, Every("1h"))
    with pytest.raises(TypeError, match="must be a Cron or an Every"):
        app.schedules.save("s", task.bind(), "1h")  # type: ignore[arg-type]  # tested
    assert app.schedules.list() == []


@pytest.mark.parametrize("options", [{"run_after": "1h"}, {"idempotency_key": "k"}])
def test_a_call_with_options_for_one_call_is_refused(app: Windlass, options: Any) -> None:
    task = app.task(name="t")(nothing)
    [name] = options
    with pytest.raises(InvalidSchedule, match=f"single call. Leave out {name}"):
        app.schedules.save("s", task.using(**options).bind(), Every("1h"))


def test_one_that_is_declared_in_code_is_not_changed_here(app: Windlass) -> None:
    task = app.task(name="t", schedule=Every("1h"))(nothing)
    Scheduler(app.engine, declarations(app)).declare()
    with pytest.raises(InvalidSchedule, match="declared in code"):
        app.schedules.save("t", task.bind(), Every("2h"))
    app.schedules.pause("t")
    Scheduler(app.engine, declarations(app)).declare()
    assert app.schedules.get("t").state == "paused"


def test_one_that_a_worker_may_declare_again_is_not_removed(app: Windlass) -> None:
    app.task(name="t", schedule=Every("1h"))(nothing)
    keeper = Scheduler(app.engine, declarations(app))
    keeper.declare()
    declared_at = datetime.fromtimestamp(NOW_MS / 1000, UTC)
    app.engine.clock_offset_ms = StandingStill(NOW_MS + 90_000)
    app.engine.beat([Beat(session="host.1.x", info=b"here")])
    free_at = declared_at + timedelta(minutes=2)
    with pytest.raises(
        InvalidSchedule,
        match=rf"declared by a worker 90 s ago\. .* schedule after {free_at:%H:%M:%S} UTC, or at "
        "once when no worker runs",
    ):
        app.schedules.remove("t")
    app.engine.clock_offset_ms = StandingStill(NOW_MS + 120_000)
    app.engine.beat([Beat(session="host.1.x", info=b"here")])
    app.schedules.remove("t")
    assert app.schedules.list() == []


def test_one_that_no_worker_is_left_to_declare_is_removed_at_once(app: Windlass) -> None:
    """As when a user reverts a change, and then starts a worker with the old code."""
    app.task(name="t", schedule=Every("1h"))(nothing)
    keeper = Scheduler(app.engine, declarations(app))
    other = Windlass("sqlite:///:memory:")
    other.task(name="t", schedule=Every("2h"))(nothing)
    keeper.declare()
    Scheduler(app.engine, declarations(other)).declare()
    app.engine.beat([Beat(session="host.1.x", info=b"here")])
    app.engine.clock_offset_ms = StandingStill(NOW_MS + 40_000)
    assert app.engine.sessions(), "that worker was killed, and its session is still known"
    keeper.declare()
    assert app.schedules.get("t").schedule == Every("2h")
    app.schedules.remove("t")
    keeper.declare()
    assert app.schedules.get("t").schedule == Every("1h")


# ---------------------------------------------------------------------------------------- changing


def test_pause_resume_and_remove(app: Windlass) -> None:
    task = app.task(name="t")(nothing)
    app.schedules.save("s", task.bind(), Every("1h"))
    for _ in range(2):
        app.schedules.pause("s")
    assert app.schedules.get("s").state == "paused"
    app.engine.clock_offset_ms = StandingStill(NOW_MS + 2 * 3_600_000)
    Scheduler(app.engine).look()
    app.schedules.save("s", task.bind(), Every("2h"))
    assert app.schedules.get("s").state == "paused"
    for _ in range(2):
        app.schedules.resume("s")
    assert app.schedules.get("s").state == "active"
    Scheduler(app.engine).look()
    assert app.engine.stats().totals.get("enqueued", 0) == 0, "what came meanwhile is left out"
    app.schedules.remove("s")
    for change in (app.schedules.remove, app.schedules.pause, app.schedules.get):
        with pytest.raises(ScheduleNotFound):
            change("s")


def test_an_unknown_name_is_told_the_nearest(app: Windlass) -> None:
    task = app.task(name="t")(nothing)
    app.schedules.save("nightly-report", task.bind(), Every("1h"))
    for act in (app.schedules.get, app.schedules.pause, app.schedules.run_now):
        with pytest.raises(ScheduleNotFound, match=r"Did you mean nightly-report\?"):
            act("nightly-reprot")


def test_a_run_at_once_is_an_earlier_run_to_those_that_come(app: Windlass) -> None:
    task = app.task(name="t")(nothing)
    app.schedules.save("s", task.bind(), Every("1h", overlap="skip"))
    before = app.schedules.get("s").next_at
    job = app.schedules.run_now("s")
    assert job.created
    assert job.info().state is State.READY
    assert app.schedules.get("s").next_at == before
    assert app.schedules.get("s").unfinished == (job.id,)
    app.engine.clock_offset_ms = StandingStill(NOW_MS + 3_600_000)
    Scheduler(app.engine).look()
    assert app.engine.stats().totals["enqueued"] == 1


def test_a_paused_schedule_can_be_run_at_once(app: Windlass) -> None:
    task = app.task(name="t")(nothing)
    app.schedules.save("s", task.bind(), Every("1h"))
    app.schedules.pause("s")
    app.schedules.run_now("s")
    assert app.schedules.get("s").state == "paused"


def test_one_that_is_over_is_seen_as_such(app: Windlass) -> None:
    task = app.task(name="t")(nothing)
    end = NOW + timedelta(hours=1)
    app.schedules.save("s", task.bind(), Every("1h", end=end))
    app.engine.clock_offset_ms = StandingStill(NOW_MS + 3_600_000)
    Scheduler(app.engine).look()
    info = app.schedules.get("s")
    assert (info.state, info.next_at, info.upcoming(3)) == ("over", None, [])
    assert info.last_at == NOW + timedelta(minutes=30)


class Rushed:
    """An engine in which others are faster, a number of times."""

    def __init__(self, engine: Engine, times: int) -> None:
        self._engine = engine
        self._times = times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def change_schedules(self, changes: list[ScheduleChange]) -> list[bool]:
        self._times -= 1
        return (
            [False] * len(changes) if self._times >= 0 else self._engine.change_schedules(changes)
        )


def test_a_change_that_others_were_faster_with_is_tried_again(app: Windlass) -> None:
    task = app.task(name="t")(nothing)
    app.schedules.save("s", task.bind(), Every("1h"))
    app.wrap_engine(lambda engine: Rushed(engine, 3))  # type: ignore[arg-type,return-value]  # enough of one
    app.schedules.pause("s")
    assert app.schedules.get("s").state == "paused"


def test_every_method_has_a_twin_for_coroutines(app: Windlass) -> None:
    task = app.task(name="t")(nothing)

    async def live() -> None:
        schedules = app.schedules
        await schedules.asave("s", task.bind(), Every("1h"))
        assert await schedules.alist() == schedules.list()
        await schedules.apause("s")
        assert (await schedules.aget("s")).state == "paused"
        await schedules.aresume("s")
        job = await schedules.arun_now("s")
        assert (await job.ainfo()).state is State.READY
        # Of several at once, one that fails repeats none of the others.
        found = await asyncio.gather(
            *(schedules.arun_now(name) for name in ("s", "unknown", "s")), return_exceptions=True
        )
        assert isinstance(found[1], ScheduleNotFound)
        await schedules.aremove("s")
        assert await schedules.alist() == []

    asyncio.run(live())
    assert app.engine.stats().totals["enqueued"] == 3
    names = {name for name in vars(type(app.schedules)) if not name.startswith("_")}
    assert {f"a{name}" for name in names if f"a{name}" in names} | {
        name for name in names if f"a{name}" in names
    } == names


def test_a_run_stands_in_the_line_of_the_labels_that_its_task_requires(app: Windlass) -> None:
    draw = app.task(name="draw", requires="gpu")(nothing)
    app.schedules.save("s", draw.bind(), Every("1h"))
    job = app.schedules.run_now("s")
    [record] = app.engine.get([job.id])
    assert record is not None
    assert record.queue == "default+gpu"
