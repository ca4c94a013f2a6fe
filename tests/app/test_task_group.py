"""Tasks without an app: groups, tasks by name, aliases, and routes to queues."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.app.hand import Hand
from windlass import Every, InvalidSchedule, InvalidTask, TaskNotIncluded, Tasks, Windlass
from windlass.core.serialization.envelope import unpack
from windlass.testing import Sandbox


@pytest.fixture
def billing() -> Tasks:
    return Tasks(prefix="billing", queue="money")


@pytest.fixture
def routed(tmp_path: Path) -> Iterator[Windlass]:
    routes = {"billing.charge": "fast", "billing.*": "billing", "*.report": "slow"}
    url = f"sqlite:///{tmp_path}/routed.db?durability=normal"
    with Windlass(url, routes=routes) as app:
        yield app


# ------------------------------------------------------------------------------------------ groups


def test_tasks_of_a_group_are_tasks_of_its_app(app: Windlass, billing: Tasks, hand: Hand) -> None:
    @billing.task(name="charge", priority=5)
    def charge(cents: int) -> int:
        return cents

    @billing.task(name="refund")
    async def refund(cents: int) -> int:
        return -cents

    app.include(billing)
    assert list(app.tasks) == ["billing.charge", "billing.refund"]
    job = charge.enqueue(100)
    assert (job.info().task, job.info().queue, job.info().priority) == (
        "billing.charge",
        "money",
        5,
    )
    hand.succeed(100)
    assert job.result(timeout=5) == 100
    assert asyncio.run(refund.aenqueue(7)).info().queue == "money"


def test_names_in_a_group() -> None:
    plain, prefixed = Tasks(), Tasks(prefix="billing")

    def work() -> None: ...

    assert plain.task(work).name == f"{__name__}.test_names_in_a_group.work"
    assert plain.task(name="work")(work).name == "work"
    assert prefixed.task(name="work")(work).name == "billing.work"
    assert prefixed.task(work).name == "billing.test_names_in_a_group.work"


module_group = Tasks()
package = ModuleType("package")
vars(package)["parts"] = ModuleType("package.parts")
vars(package.parts)["group"] = Tasks(prefix="parts")


@pytest.mark.parametrize("prefix", [None, "billing"])
def test_a_function_that_no_worker_defines_is_refused(
    app: Windlass, prefix: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the group is made in the same function, when an app of the module includes it."""

    def work() -> None: ...

    module_app = Windlass("sqlite:///:memory:")
    monkeypatch.setitem(globals(), "module_app", module_app)
    refusal = "is defined inside test_a_function_that_no_worker_"
    for held in (module_group, package.parts.group):
        with pytest.raises(InvalidTask, match=refusal):
            held.task(work)
    before, after, named = (Tasks(prefix=prefix) for _ in range(3))
    before.task(work)
    with pytest.raises(InvalidTask, match=refusal):
        module_app.include(before)
    assert not module_app.tasks
    module_app.include(after)
    with pytest.raises(InvalidTask, match=refusal):
        after.task(work)
    named.task(name=f"named.{prefix}")(work)
    module_app.include(named)
    assert len(module_app.tasks) == 1
    app.include(before)  # an app that is made in a function as well


def test_a_task_of_a_group_without_an_app_says_what_to_do(billing: Tasks) -> None:
    @billing.task(name="charge")
    def charge(cents: int) -> int:
        return cents

    assert charge(5) == 5
    with pytest.raises(TaskNotIncluded, match=r"billing\.charge belongs to Tasks\(prefix='billing"):
        charge.enqueue(1)
    with pytest.raises(TaskNotIncluded, match=r"Call app\.include\(\.\.\.\)"):
        asyncio.run(charge.aenqueue(1))
    with pytest.raises(TaskNotIncluded):
        charge.enqueue_many([charge.bind(1)])


def test_what_was_made_before_the_group_was_included_works(app: Windlass, billing: Tasks) -> None:
    @billing.task(name="charge")
    def charge(cents: int) -> None: ...

    urgent, call = charge.using(priority=9), charge.bind(1)
    app.include(billing)
    assert urgent.enqueue(1).info().priority == 9
    assert app.enqueue_many([call])[0].info().queue == "money"


def test_a_call_made_before_is_stored_by_the_codec_of_the_app(
    billing: Tasks, tmp_path: Path
) -> None:
    @billing.task(name="charge")
    def charge(cents: int) -> int:
        return cents

    call = charge.bind(7)
    with Windlass(f"sqlite:///{tmp_path / 'packed.db'}", codec="msgpack") as packed:
        packed.include(billing)
        job = charge.using(queue="own").enqueue_many([call])[0]
        with Sandbox(packed) as box:
            [again] = packed.enqueue_many([call])
            box.drain()
            assert again.result() == 7
        [record] = packed.engine.get([job.id])
        assert record is not None
        assert unpack(record.payload, record.task).codec == "msgpack"


def test_a_task_declared_later_is_included_at_once(app: Windlass, billing: Tasks) -> None:
    app.include(billing)

    @billing.task(name="late", schedule=Every("1h"))
    def late() -> None: ...

    assert late.enqueue().created
    assert [name for name, _ in app.declared_schedules()] == ["billing.late"]


def test_including_twice_is_including_once(app: Windlass, billing: Tasks) -> None:
    @billing.task(name="charge")
    def charge() -> None: ...

    app.include(billing, billing)
    app.include(billing)
    assert list(app.tasks) == ["billing.charge"]


def test_a_group_belongs_to_one_app(app: Windlass, billing: Tasks) -> None:
    app.include(billing)
    with Windlass("sqlite:///:memory:") as other:
        with pytest.raises(InvalidTask, match=r"is included in <Windlass at .* belongs to one app"):
            other.include(billing)
        assert not other.tasks


def test_a_group_is_included_as_a_whole_or_not_at_all(app: Windlass, billing: Tasks) -> None:
    @app.task(name="billing.refund")
    def refund() -> None: ...

    @billing.task(name="charge")
    def charge() -> None: ...

    @billing.task(name="refund")
    def other_refund() -> None: ...

    with pytest.raises(InvalidTask, match=r"task name billing\.refund"):
        app.include(billing)
    assert list(app.tasks) == ["billing.refund"]
    with pytest.raises(TaskNotIncluded):
        charge.enqueue()


def test_a_module_is_no_group(app: Windlass) -> None:
    with pytest.raises(TypeError, match=r"Modules are named by Windlass\(include=\[\.\.\.\]\)"):
        app.include("shop.tasks")  # type: ignore[arg-type]  # the subject


def test_a_wrong_schedule_is_refused_where_it_is_declared(billing: Tasks) -> None:
    def needs(cents: int) -> None: ...

    with pytest.raises(InvalidSchedule, match=r"must not require arguments"):
        billing.task(name="needs", schedule=Every("1h"))(needs)
    billing.task(name="needs")(needs)  # it was not kept


# ----------------------------------------------------------------------------------------- by name


def test_a_task_is_enqueued_by_its_name_alone(app: Windlass, tmp_path: Path) -> None:
    charge = app.task_named("billing.charge", queue="billing")
    job = charge.enqueue(1, currency="EUR")
    assert (job.task, job.info().queue) == ("billing.charge", "billing")
    assert asyncio.run(charge.aenqueue(2)).created
    assert charge.using(priority=3).enqueue(3).info().priority == 3
    assert len(charge.enqueue_many([charge.bind(4), (5,)])) == 2
    with Windlass(app.settings.url) as other:

        @other.task(name="billing.charge")
        def charge_here(cents: int, currency: str = "USD") -> str:
            return f"{cents} {currency}"

        with other.worker():
            assert job.result(timeout=20) == "1 EUR"


def test_without_the_code_nothing_runs_here(app: Windlass) -> None:
    with pytest.raises(InvalidTask, match=r"billing\.charge cannot be called here"):
        app.task_named("billing.charge")(1)
    with pytest.raises(InvalidTask, match="text of 1 to 200 characters"):
        app.task_named("billing charge")


def test_a_name_that_is_known_is_that_task(app: Windlass) -> None:
    """So that its parameters are checked, and its unique key is kept."""

    @app.task(name="billing.charge", aliases=["pay"], queue="money")
    def charge(cents: int) -> None: ...

    assert app.task_named("billing.charge") is charge
    assert app.task_named("pay", queue="other").enqueue(1).info().queue == "other"
    with pytest.raises(TypeError, match="missing a required argument: 'cents'"):
        app.task_named("billing.charge").enqueue()


# ----------------------------------------------------------------------------------------- aliases


def test_jobs_stored_under_a_former_name_are_run(app: Windlass) -> None:
    old = app.task_named("shop.pay").enqueue(5)

    @app.task(name="shop.charge", aliases=["shop.pay", "pay"])
    def charge(cents: int) -> int:
        return cents * 2

    with app.worker():
        assert old.result(timeout=20) == 10
        assert charge.enqueue(1).result(timeout=20) == 2
    assert charge.job(old.id).info().task == "shop.pay"
    assert list(app.tasks) == ["shop.charge"]


@pytest.mark.parametrize("first", [True, False])
def test_a_name_belongs_to_one_task(app: Windlass, first: bool) -> None:
    def work() -> None: ...

    def other() -> None: ...

    renamed, namesake = app.task(name="charge", aliases=["pay"]), app.task(name="pay")
    declare, declare_after = (renamed, namesake) if first else (namesake, renamed)
    declare(work)
    with pytest.raises(InvalidTask, match=r"Jobs stored as pay could belong to two tasks: .*work"):
        declare_after(other)
    assert len(app.tasks) == 1


def test_aliases_are_a_list_of_other_names(app: Windlass) -> None:
    def work() -> None: ...

    with pytest.raises(TypeError, match=r"aliases must be a list of names .* found 'pay'"):
        app.task(aliases="pay")(work)
    with pytest.raises(InvalidTask, match="work is the name of the task, not an alias"):
        app.task(name="work", aliases=["work"])(work)
    with pytest.raises(InvalidTask, match="text of 1 to 200 characters"):
        app.task(aliases=["no name"])(work)
    with pytest.raises(TypeError, match=r"aliases belongs to the task"):
        app.task(name="other")(work).using(aliases=["pay"])  # type: ignore[call-arg]  # the subject


# ------------------------------------------------------------------------------------------ routes


def test_what_decides_on_the_queue(routed: Windlass) -> None:
    """The caller, else the decorator, else the first route that fits, else the group, else the
    default."""
    group = Tasks(prefix="billing", queue="group")
    others = Tasks(prefix="mail", queue="group")

    @group.task(name="charge")
    def charge() -> None: ...

    @group.task(name="refund")
    def refund() -> None: ...

    @group.task(name="audit", queue="decorator")
    def audit() -> None: ...

    @others.task(name="send")
    def send() -> None: ...

    @routed.task(name="stock.report")
    def report() -> None: ...

    @routed.task(name="stock.count")
    def count() -> None: ...

    early = refund.using(priority=1)
    routed.include(group, others)
    assert charge.using(queue="caller").enqueue().info().queue == "caller"
    assert audit.enqueue().info().queue == "decorator"
    assert charge.enqueue().info().queue == "fast"
    assert early.enqueue().info().queue == "billing"
    assert report.enqueue().info().queue == "slow"
    assert send.enqueue().info().queue == "group"
    assert count.enqueue().info().queue == "default"
    assert routed.task_named("billing.other").enqueue().info().queue == "billing"
    assert routed.task_named("billing.other", queue="q").enqueue().info().queue == "q"
