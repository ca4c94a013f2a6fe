# mypy: ignore-errors
# pyright: basic, reportGeneralTypeIssues=false
"""What type checkers must refuse: each line says with which of mypy's codes.

The test reads this file without its first two lines, which keep it quiet elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator

from windlass import Context, Job, JobEvent, Task, Tasks, Unique, Windlass
from windlass.testing import Sandbox

app = Windlass("sqlite:///jobs.db")


@app.task
def resize(path: str, widths: list[int]) -> list[str]:
    return [path] * len(widths)


@app.task(takes_context=True)
def import_csv(ctx: Context, path: str) -> int:
    return len(path)


@app.task(queue="mail")
async def fetch(url: str) -> bytes:
    return url.encode()


def wrong_arguments() -> None:
    resize.enqueue("cat.jpg", 100)  # expect: arg-type
    resize.enqueue(1, [100])  # expect: arg-type
    resize.enqueue("cat.jpg")  # expect: call-arg
    resize.enqueue("cat.jpg", [100], "more")  # expect: call-arg
    resize.enqueue("cat.jpg", width=[100])  # expect: call-arg
    resize.enqueue("cat.jpg", [100], queue="mail")  # expect: call-arg
    resize.bind("cat.jpg")  # expect: call-arg
    resize("cat.jpg", 100)  # expect: arg-type
    fetch.enqueue(1)  # expect: arg-type


async def wrong_arguments_in_a_coroutine() -> None:
    await resize.aenqueue("cat.jpg")  # expect: call-arg
    await fetch.aenqueue(1)  # expect: arg-type
    fetch("http://here")  # expect: unused-coroutine
    fetch.aenqueue("http://here")  # expect: unused-coroutine


def the_context_is_not_for_callers(ctx: Context) -> None:
    import_csv.enqueue(ctx, "a.csv")  # expect: arg-type, call-arg
    import_csv.enqueue()  # expect: call-arg
    import_csv(ctx)  # expect: arg-type


@app.task(takes_context=True)  # expect: arg-type
def no_place_for_the_context(path: str) -> int:
    return len(path)


def wrong_results() -> None:
    number: int = resize.enqueue("cat.jpg", [1]).result()  # expect: assignment
    job: Job[int] = resize.enqueue("cat.jpg", [1])  # expect: assignment
    data: bytes = fetch("http://here")  # expect: assignment
    print(number, job, data)


def wrong_options() -> None:
    resize.using(prioritty=1)  # expect: call-arg
    resize.using(priority="high")  # expect: arg-type
    resize.using(takes_context=True)  # expect: call-arg
    resize.using(run_after="1h").enqueue(1, [1])  # expect: arg-type
    app.task(run_after="1h")  # expect: call-overload
    app.task(run_in="thread")  # expect: call-overload
    app.task(schedule="0 3 * * *")  # expect: arg-type
    resize.using(schedule=1)  # expect: call-arg
    app.schedules.save("name", resize, 1)  # expect: arg-type
    app.task(unique="end")  # expect: call-overload
    Unique("never")  # expect: arg-type
    Windlass(leese="30s")  # expect: call-arg
    Windlass(max_crashes="three")  # expect: arg-type


def wrong_bulk() -> None:
    resize.enqueue_many([import_csv.bind("a.csv")])  # expect: list-item
    resize.enqueue_many(["cat.jpg"])  # expect: list-item
    resize.enqueue_many({"path": "cat.jpg"})  # expect: dict-item
    resize.enqueue_many("cat.jpg")  # expect: arg-type
    resize.enqueue_many([(1, "x")])  # expect: list-item
    resize.enqueue_many([("cat.jpg",)])  # expect: list-item
    resize.enqueue_many([("cat.jpg", [1], 2)])  # expect: list-item
    resize.enqueue_many((1, [1]) for _ in "ab")  # expect: misc
    import_csv.enqueue_many([(1,)])  # expect: list-item
    import_csv.enqueue_many([()])  # expect: list-item
    fetch.enqueue_many([("http://here",), (7,)])  # expect: list-item

    app.enqueue_many([("cat.jpg", [1])])  # expect: arg-type
    app.enqueue_many("cat.jpg")  # expect: arg-type
    app.enqueue_many(resize.bind("cat.jpg", [1]))  # expect: arg-type


billing = Tasks(prefix="billing", queues="billing")  # expect: call-arg


@billing.task(queue="mail")
def charge(cents: int) -> str:
    return f"{cents}"


@app.around_enqueue  # expect: type-var
def adds_nothing(context: Context) -> Iterator[None]:
    yield


@app.on_dead  # expect: type-var
def takes_a_number(number: int) -> None:
    print(number)


def wrong_hooks(event: JobEvent) -> None:
    app.task(on_dead=takes_a_number)  # expect: arg-type
    app.task(on_failure=wrong_hooks)  # expect: call-overload
    charge.using(on_dead=wrong_hooks)  # expect: call-arg
    event.result = 5  # expect: misc


def wrong_groups() -> None:
    charge.enqueue("5")  # expect: arg-type
    charge.delay(5)  # expect: attr-defined
    charge.using(aliases=["pay"])  # expect: call-arg
    charge.using(headers={"user": 5})  # expect: dict-item
    app.include("shop.tasks")  # expect: arg-type
    app.task(aliases="pay", headers=["user"])  # expect: call-overload
    Windlass(include=7)  # expect: arg-type
    Windlass(routes=["billing.*"])  # expect: arg-type
    app.task_named(7)  # expect: call-overload


def build(month: str, pages: list[int]) -> bytes:
    raise NotImplementedError


reports = app.task_named("reports.build", build, queue="node")


def wrong_remote_tasks() -> None:
    reports.enqueue(7, [1])  # expect: arg-type
    reports.enqueue("2030-01")  # expect: call-arg
    reports.enqueue("2030-01", [1], draft=True)  # expect: call-arg
    text: str = reports.enqueue("2030-01", [1]).result()  # expect: assignment
    app.task_named("reports.build", "build")  # expect: call-overload
    app.task_named("reports.build", build, schema={})  # expect: call-overload
    app.task_named("reports.build", schema="{}")  # expect: call-overload
    app.task_named("reports.build", build, unique=True)  # expect: call-overload
    print(text)


def wrong_command() -> None:
    app.command_workers(["web-1:4711"], "pause")  # expect: arg-type
    app.command_workers([4711], "stop")  # expect: list-item


def wrong_test(box: Sandbox) -> None:
    box.jobs("resize")  # expect: call-overload
    results: list[int] = [job.result for job in box.jobs(resize)]  # expect: misc
    box.drain(False)  # expect: call-arg
    print(results)


def wrong_task(task: Task[[int], str]) -> None:
    wrong_task(import_csv)  # expect: arg-type


@app.task(takes_context=True)
async def wrong_steps(ctx: Context) -> None:
    ctx.once("resize", resize, 1, [1])  # expect: arg-type
    ctx.once("resize", resize)  # expect: call-arg
    ctx.once(resize, "a", [1])  # expect: arg-type
    ctx.aonce("fetch", fetch, "a")  # expect: unused-coroutine
    await ctx.aonce("resize", resize, "a", [1])  # expect: arg-type
    receipt: int = ctx.once("resize", resize, "a", [1])  # expect: assignment
    print(receipt)
