"""What type checkers must accept, and the types that they must find.

Checked like all other code; nothing here is run.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

import psycopg

from windlass import (
    All,
    AppHistory,
    AppStats,
    Call,
    Context,
    Cron,
    EnqueueCall,
    Every,
    FailureText,
    Job,
    JobEvent,
    JobInfo,
    LogLine,
    Progress,
    QueueInfo,
    Reason,
    Reject,
    Retry,
    ScheduleInfo,
    State,
    Task,
    Tasks,
    Unique,
    Windlass,
    WorkerInfo,
    WorkerState,
)
from windlass.testing import Drained, Sandbox, SandboxJob

app = Windlass("sqlite:///jobs.db", lease="30s", retry=Retry(3), dead_ttl=timedelta(days=1))


@app.task
def resize(path: str, widths: list[int], *, sharpen: bool = False) -> list[str]:
    return [f"{path}-{width}-{sharpen}" for width in widths]


@app.task(queue="mail", priority=5, retry=Retry(max_attempts=5, base=10), result_ttl="1h")
async def welcome(user_id: int) -> None:
    raise Reject(f"no such user: {user_id}")


@app.task(takes_context=True)
def import_csv(ctx: Context, path: str) -> int:
    ctx.progress(0.5, "half way")
    return len(path)


@app.task(takes_context=True, name="fetch", expires="1h", unique=Unique("start", by="url"))
async def fetch(ctx: Context, url: str, tries: int = 3) -> bytes:
    return ctx.job_id.encode() + url.encode() * tries


@app.task(name="clean_up")
def clean_up() -> None: ...


@app.task(name="add_up")
def add_up(*numbers: float) -> float:
    return sum(numbers)


@app.task(name="wide")
def wide(a: int, b: int, c: int, d: str, e: int, f: int, g: int) -> str:
    return d * (a + b + c + e + f + g)


def enqueue() -> None:
    assert_type(resize.enqueue("cat.jpg", [100, 200]), Job[list[str]])
    assert_type(resize.enqueue("cat.jpg", widths=[1], sharpen=True).result(), list[str])
    assert_type(welcome.enqueue(42), Job[None])
    assert_type(import_csv.enqueue("a.csv").result(timeout=5), int)
    assert_type(fetch.enqueue("http://here").result("1m"), bytes)
    assert_type(fetch.enqueue("http://here", tries=1).result(timedelta(seconds=1)), bytes)
    assert_type(clean_up.enqueue(), Job[None])


async def enqueue_in_a_coroutine() -> None:
    assert_type(await resize.aenqueue("cat.jpg", [100]), Job[list[str]])
    job = await fetch.aenqueue("http://here")
    assert_type(await job.aresult(timeout=5), bytes)
    assert_type(await job.ainfo(), JobInfo)
    assert_type(await job.acancel(), bool)
    assert_type(await job.aretry(), bool)
    assert_type(await job.aedit("http://there", tries=1), bool)
    assert_type(await job.arun_now(), bool)
    assert_type(await job.amove("bulk"), bool)


async def call_plainly() -> None:
    assert_type(resize("cat.jpg", [100]), list[str])
    assert_type(import_csv("a.csv"), int)
    coroutine: Coroutine[Any, Any, bytes] = fetch("http://here")
    assert_type(await coroutine, bytes)
    assert_type(await fetch("http://here", 2), bytes)


def choose_options() -> None:
    assert_type(welcome.using(run_after="2h", priority=10).enqueue(42), Job[None])
    welcome.using(idempotency_key="signup-42", expires=datetime.now(UTC)).enqueue(42)
    chosen = resize.using(queue="bulk", result_ttl=60).using(retry=Retry(delays=[1, "1h"]))
    assert_type(chosen.enqueue("cat.jpg", [1]).result(), list[str])
    assert_type(chosen("cat.jpg", [1]), list[str])


async def enqueue_many(paths: list[str]) -> None:
    assert_type(resize.bind("cat.jpg", [1]), Call[list[str]])
    assert_type(resize.enqueue_many(resize.bind(path, [1]) for path in paths), list[Job[list[str]]])
    assert_type(import_csv.enqueue_many([("a.csv",), ("b.csv",)]), list[Job[int]])
    assert_type(await import_csv.aenqueue_many([import_csv.bind("a.csv")]), list[Job[int]])
    assert_type(resize.enqueue_many([("cat.jpg", [1]), ("dog.jpg", [2])]), list[Job[list[str]]])
    assert_type(await fetch.aenqueue_many((path,) for path in paths), list[Job[bytes]])
    assert_type(fetch.enqueue_many((path, 3) for path in paths), list[Job[bytes]])
    assert_type(
        fetch.enqueue_many([fetch.bind("http://here"), ("http://there",)]), list[Job[bytes]]
    )
    assert_type(clean_up.enqueue_many([(), ()]), list[Job[None]])
    assert_type(add_up.enqueue_many([(1, 2.0), (3, 4.0)]), list[Job[float]])
    assert_type(add_up.enqueue_many([(1, 2, 3, 4, 5)]), list[Job[float]])
    assert_type(wide.enqueue_many([(1, 2, 3, "d", 5, 6, 7)]), list[Job[str]])
    rows: list[tuple[str, list[int]]] = [(path, [1]) for path in paths]
    assert_type(await resize.aenqueue_many(rows), list[Job[list[str]]])
    unknown: list[tuple[Any, ...]] = []
    assert_type(resize.enqueue_many(unknown), list[Job[list[str]]])
    assert_type(shop.task_named("elsewhere").enqueue_many([(1, "a"), (2, "b")]), list[Job[Any]])


def find_again(job_id: str) -> None:
    assert_type(resize.job(job_id).result(), list[str])
    assert_type(app.job(job_id), Job[Any])
    info = resize.job(job_id).info()
    assert_type(info.progress, Progress | None)
    assert_type(info.enqueued_at, datetime)
    assert_type(resize.job(job_id).cancel(), bool)
    resize.pause()
    resize.resume()


async def look_around(job_id: str) -> None:
    found = app.jobs.list(state=State.DEAD, task="fetch", queue="mail", since="1h", limit=10)
    assert_type(found, Iterator[JobInfo])
    app.jobs.list(state="dead", until=datetime.now(UTC), headers={"user": "ann"})
    async for info in app.jobs.alist(since=timedelta(hours=1)):
        assert_type(info, JobInfo)
    app.jobs.list(task=resize)
    app.dead.list(task=resize)
    assert_type(app.jobs.get_many([job_id]), list[JobInfo | None])
    app.jobs.get_many([resize.job(job_id), job_id])
    assert_type(await app.jobs.aget_many(iter([job_id])), list[JobInfo | None])
    stats = app.stats()
    assert_type(stats, AppStats)
    assert_type(stats.jobs, Mapping[State, int])
    assert_type((await app.astats()).queues["mail"].oldest_ready, timedelta | None)
    assert_type(app.history("1d", queue="mail", task=resize), AppHistory)
    assert_type((await app.ahistory(step="hour")).queues["mail"].run_p99_s, float | None)
    assert_type(app.workers(), list[WorkerInfo])
    assert_type((await app.aworkers())[0].children[0].running[0].started_at, datetime | None)
    assert_type(app.workers()[0].state, WorkerState)
    assert_type(app.command_workers([app.workers()[0].name], "quiet"), list[WorkerInfo])
    assert_type(await app.acommand_workers(iter([job_id]), "stop"), list[WorkerInfo])


@app.task(schedule=Cron("0 3 * * *", tz="Europe/Paris"))
def nightly() -> int:
    return 1


@app.task(takes_context=True, schedule=[Every("10m", missed=All(3)), Cron("@daily")])
async def tidy(ctx: Context) -> None: ...


async def schedule_calls() -> None:
    assert_type(nightly.enqueue(), Job[int])
    assert_type(await tidy.aenqueue(), Job[None])
    app.schedules.save("thumbnails", resize.bind("cat.jpg", [1]), Every("1h", overlap="skip"))
    assert_type(app.schedules.list(), list[ScheduleInfo])
    assert_type((await app.schedules.aget("thumbnails")).next_at, datetime | None)
    assert_type(app.schedules.run_now("thumbnails"), Job[Any])


async def manage_queues_and_dead_letters() -> None:
    assert_type(app.queue("mail").info(), QueueInfo)
    assert_type(await app.queue("mail").ainfo(), QueueInfo)
    await app.queue("mail").aset(ageing="1m", max_waiting=10)
    assert_type(await app.queue("mail").apurge(), int)
    assert_type(app.dead.count(task="resize"), int)
    assert_type(await app.dead.acount(), int)


async def test_in_a_sandbox() -> None:
    with Sandbox(app, now=datetime.now(UTC)) as box:
        assert_type(box.jobs(resize), list[SandboxJob[list[str]]])
        assert_type(box.jobs(welcome)[0].arguments["user_id"], Any)
        assert_type(box.jobs(import_csv)[0].result, int | None)
        assert_type(box.jobs(), list[SandboxJob[Any]])
        assert_type(box.drain(raise_errors=False).dead, tuple[SandboxJob[Any], ...])
        assert_type(await box.adrain(), Drained)
        assert_type(box.advance(timedelta(hours=1)), datetime)
        box.faults.lose_reply("put", times=2)


billing = Tasks(prefix="billing", queue="billing")


@billing.task
def charge(cents: int) -> str:
    return f"{cents}"


@billing.task(takes_context=True, aliases=["pay"], headers={"team": "shop"}, retry=Retry(2))
async def refund(ctx: Context, cents: int) -> bytes:
    ctx.log(f"for {ctx.headers['user']}")
    return bytes(cents)


shop = Windlass(include=["shop.tasks", "billing.*"], routes={"billing.*": "billing"})
shop.include(billing)


@shop.around_enqueue
def add_trace(call: EnqueueCall) -> Iterator[None]:
    call.headers["trace"] = f"{call.task} {call.queue}"
    yield
    assert_type(call.job, Job[Any] | None)


@shop.on_retry
@shop.on_dead
async def report(event: JobEvent) -> None:
    assert_type(event.retry_in, timedelta | None)
    assert_type(event.reason, Reason | None)
    assert_type(event.error, BaseException | None)
    assert_type(event.failure, FailureText | None)


@shop.task(on_success=lambda event: print(event.result), on_dead=report)
def hooked(number: int) -> int:
    return number


async def groups_are_typed_like_apps() -> None:
    assert_type(charge.enqueue(5), Job[str])
    assert_type(charge(5), str)
    assert_type(await refund.aenqueue(5), Job[bytes])
    assert_type(await refund(5), bytes)
    assert_type(
        refund.using(headers={"user": "ann"}).enqueue(cents=5).info().headers, Mapping[str, str]
    )
    assert_type(refund.job("id").info().log, tuple[LogLine, ...])
    assert_type(shop.enqueue_many([charge.bind(1), charge.bind(2)]), list[Job[str]])
    mixed: list[Call[Any]] = [charge.bind(1), refund.bind(2)]
    assert_type(await shop.aenqueue_many(mixed), list[Job[Any]])
    assert_type(shop.task_named("elsewhere", queue="mail"), Task[..., Any])
    assert_type(shop.task_named("elsewhere").using(priority=1).enqueue(1, a="b"), Job[Any])


def build(month: str, pages: list[int], *, draft: bool = False) -> bytes:
    raise NotImplementedError


async def translate(text: str, to: str = "en") -> str:
    raise NotImplementedError


reports = shop.task_named("reports.build", build, queue="node", requires=["node"], retry=Retry(3))
translations = shop.task_named("translate", translate, timeout="1m")
described = shop.task_named("described", schema={"type": "object"}, queue="node")


async def remote_tasks_are_typed_by_their_signature() -> None:
    assert_type(reports.enqueue("2030-01", [1], draft=True), Job[bytes])
    assert_type(reports.enqueue("2030-01", pages=[1]).result(), bytes)
    assert_type(await translations.aenqueue("hallo"), Job[str])
    assert_type(reports.using(priority=1).bind("2030-01", [1]), Call[bytes])
    assert_type(translations.enqueue_many([("hallo", "fr"), ("ja", "en")]), list[Job[str]])
    assert_type(described, Task[..., Any])
    assert_type(described.enqueue(any="thing"), Job[Any])
    assert_type(shop.remote_tasks, Mapping[str, Task[..., Any]])
    assert_type(reports.is_remote, bool)


def takes_any_task(task: Task[[str], object]) -> Job[object]:
    return task.enqueue("a.csv")


def a_task_is_a_task() -> None:
    takes_any_task(import_csv)  # its result is an object, too
    function: Callable[[str], int] = import_csv
    assert_type(function("a.csv"), int)


@app.task(takes_context=True, transaction=True, run_in="process")
def in_a_transaction(ctx: Context, own: int) -> int:
    transaction = ctx.transaction()
    with transaction as connection:
        assert_type(connection, psycopg.Connection[Any])
        transaction.result = 1
    with ctx.transaction(own) as same:
        assert_type(same, int)
    return 1


@app.task(takes_context=True)
async def in_an_async_transaction(ctx: Context) -> None:
    async with ctx.transaction() as connection:
        assert_type(connection, psycopg.AsyncConnection[Any])


def receipt_of(cents: int, *, currency: str = "EUR") -> list[str]:
    return [f"{cents} {currency}"]


async def later_receipt_of(cents: int) -> bytes:
    return str(cents).encode()


@app.task(takes_context=True)
def with_steps(ctx: Context, cents: int) -> None:
    assert_type(ctx.once("charge", receipt_of, cents, currency="USD"), list[str])
    assert_type(ctx.once("double", lambda: cents * 2), int)
    assert_type(ctx.idempotency_key, str)


@app.task(takes_context=True)
async def with_async_steps(ctx: Context, cents: int) -> None:
    assert_type(await ctx.aonce("charge", later_receipt_of, cents), bytes)


def declare_in_a_factory() -> Windlass:
    with Windlass() as made:

        @made.task
        def inner(number: int) -> int:
            return number

        assert_type(inner.enqueue(1).result(), int)
    return made
