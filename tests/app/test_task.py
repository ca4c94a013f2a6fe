"""Turning functions into tasks: refused functions, names, and plain calls."""

from __future__ import annotations

import asyncio
import functools
import inspect
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from windlass import Context, InvalidTask, NoContext, Retry, Windlass, current_context


def test_a_task_looks_like_its_function(app: Windlass) -> None:
    def resize(path: str, widths: list[int]) -> list[str]:
        """Make pictures smaller."""
        return [path] * len(widths)

    task = app.task(resize)
    assert task.__name__ == "resize"
    assert task.__doc__ == "Make pictures smaller."
    assert task.__wrapped__ is resize
    assert task.function is resize
    assert inspect.signature(task) == inspect.signature(resize)
    assert repr(task) == f"<Task {task.name}>"


def test_what_a_worker_reads(app: Windlass) -> None:
    policy = Retry(max_attempts=2)

    @app.task(name="mail.send", queue="mail", priority=3, retry=policy, result_ttl="1d")
    async def send(address: str) -> None: ...

    @app.task(takes_context=True)
    def plain(ctx: Context) -> None: ...

    assert (send.name, send.queue, send.priority) == ("mail.send", "mail", 3)
    assert (send.retry, send.result_ttl_ms) == (policy, 86_400_000)
    assert (send.is_async, send.takes_context) == (True, False)
    assert (plain.queue, plain.priority, plain.retry, plain.result_ttl_ms) == (
        "default",
        0,
        None,
        None,
    )
    assert (plain.is_async, plain.takes_context) == (False, True)
    assert app.tasks == {"mail.send": send, plain.name: plain}


def test_the_tasks_of_an_app_cannot_be_changed_from_outside(app: Windlass) -> None:
    tasks: Any = app.tasks
    with pytest.raises(TypeError):
        tasks["x"] = None


# ------------------------------------------------------------------------------------ plain calls


def test_a_plain_call_runs_here(app: Windlass) -> None:
    @app.task
    def double(number: int) -> int:
        return 2 * number

    @app.task
    async def triple(number: int) -> int:
        return 3 * number

    assert double(4) == 8
    assert double.using(queue="bulk")(number=4) == 8
    assert asyncio.run(triple(4)) == 12
    assert app.engine.stats().totals == {}


def test_a_plain_call_has_a_context_that_goes_nowhere(app: Windlass) -> None:
    @app.task(takes_context=True, queue="imports")
    def load(ctx: Context, path: str) -> tuple[Context, str]:
        ctx.progress(0.5, "half way")
        return ctx, path

    context, path = load("a.csv")
    assert path == "a.csv"
    assert (context.task, context.queue, context.attempt) == (load.name, "imports", 1)
    assert context.job_id != load("a.csv")[0].job_id


def test_a_plain_call_is_no_running_job(app: Windlass) -> None:
    @app.task
    def work() -> Context:
        return current_context()

    with pytest.raises(NoContext):
        work()


# ---------------------------------------------------------------------------------------- names


def module_level() -> None: ...


def test_the_name_is_module_and_function(app: Windlass) -> None:
    assert app.task(module_level).name == f"{__name__}.module_level"


def test_a_function_in_a_function_has_both_names(app: Windlass) -> None:
    @app.task
    def inner() -> None: ...

    outer = "test_a_function_in_a_function_has_both_names"
    assert inner.name == f"{__name__}.{outer}.inner"


def test_two_functions_cannot_share_a_name(app: Windlass) -> None:
    @app.task(name="shop.work")
    def work() -> None: ...

    def other() -> None: ...

    with pytest.raises(InvalidTask, match=r"same task name shop\.work: .*work \(.* and .*other \("):
        app.task(name="shop.work")(other)
    assert app.tasks["shop.work"] is work


def test_two_apps_may_share_a_name(app: Windlass) -> None:
    other = Windlass("sqlite:///:memory:")
    app.task(module_level)
    other.task(module_level)
    assert app.tasks.keys() == other.tasks.keys()


@pytest.mark.parametrize("name", ["", "two words", "x" * 201, 7, None])
def test_a_name_that_is_none_is_refused(app: Windlass, name: Any) -> None:
    with pytest.raises(InvalidTask, match="text of 1 to 200 characters without spaces"):
        app.task(name=name)


SCRIPT = """
from windlass import Windlass
app = Windlass("sqlite:///:memory:")
@app.task
def work() -> None: ...
if __name__ == "__main__":
    print(*app.tasks)
"""


def run_python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, check=False
    )


def test_a_script_is_known_by_the_name_it_is_imported_with(tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text(SCRIPT)
    assert run_python(tmp_path, "jobs.py").stdout == "jobs.work\n"
    assert run_python(tmp_path, "-m", "jobs").stdout == "jobs.work\n"


def test_a_package_is_known_by_its_whole_name(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop/__init__.py").touch()
    (tmp_path / "shop/jobs.py").write_text(SCRIPT)
    assert run_python(tmp_path, "-m", "shop.jobs").stdout == "shop.jobs.work\n"


def test_a_script_inside_a_package_is_known_by_its_whole_name(tmp_path: Path) -> None:
    """Or a worker, which imports the package, would not know the jobs of the script."""
    folder = tmp_path / "project" / "shop" / "parts"
    folder.mkdir(parents=True)
    for package in (folder.parent, folder):
        (package / "__init__.py").touch()
    (folder / "jobs.py").write_text(SCRIPT)
    assert run_python(tmp_path, "project/shop/parts/jobs.py").stdout == "shop.parts.jobs.work\n"
    assert run_python(folder, "jobs.py").stdout == "shop.parts.jobs.work\n"


SPAWNING = (
    SCRIPT
    + """
    import multiprocessing
    multiprocessing.get_context("spawn").Process(target=print, args=["child"]).start()
elif __name__ == "__mp_main__":
    print(*app.tasks, flush=True)
"""
)


def test_a_spawned_child_knows_the_same_names(tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text(SPAWNING)
    ran = run_python(tmp_path, "jobs.py")
    assert sorted(ran.stdout.splitlines()) == ["child", "jobs.work", "jobs.work"], ran.stderr


def test_a_file_that_is_run_by_runpy_is_known_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text(SCRIPT)
    code = "import runpy; print(*runpy.run_path('jobs.py')['app'].tasks)"
    assert run_python(tmp_path, "-c", code).stdout == "jobs.work\n"


@pytest.mark.parametrize("way", ["a-script.py", "folder", "-c"])
def test_what_no_worker_can_import_is_refused(tmp_path: Path, way: str) -> None:
    (tmp_path / "a-script.py").write_text(SCRIPT)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "__main__.py").write_text(SCRIPT)
    ran = run_python(tmp_path, *([way] if way != "-c" else [way, SCRIPT]))
    assert ran.returncode == 1
    assert "InvalidTask: The task work is defined where a worker cannot import it" in ran.stderr
    assert "@app.task(name=...)" in ran.stderr


# ---------------------------------------------------------------------------------- what is refused


class Callable:
    def __call__(self) -> None: ...

    def method(self) -> None: ...


@pytest.mark.parametrize(
    "value",
    ["shop.work", Callable, Callable(), len, functools.partial(module_level)],
)
def test_only_functions_become_tasks(app: Windlass, value: Any) -> None:
    with pytest.raises(InvalidTask, match="written with def or async def, found "):
        app.task(value)
    assert app.tasks == {}


def test_a_lambda_is_refused(app: Windlass) -> None:
    with pytest.raises(InvalidTask, match="has no name: write it with def"):
        app.task(lambda: None)


def test_a_method_is_refused(app: Windlass) -> None:
    function: Any = Callable.method
    methods: list[Any] = [function, Callable().method, classmethod(function)]
    for method in methods:
        with pytest.raises(InvalidTask, match=r"Callable\.method .* is a method, and a worker has"):
            app.task(method)
    static: Any = staticmethod(module_level)
    with pytest.raises(InvalidTask, match=r"write @staticmethod above @app\.task"):
        app.task(static)
    assert app.tasks == {}


module_app = Windlass("sqlite:///:memory:")
imported_module = ModuleType("imported_module")
vars(imported_module)["app"] = Windlass("sqlite:///:memory:")


def test_a_function_that_no_worker_defines_is_refused(app: Windlass) -> None:
    def work() -> None: ...

    with pytest.raises(InvalidTask, match="is defined inside test_a_function_that_no_worker_"):
        module_app.task(work)
    with pytest.raises(InvalidTask, match="is defined inside test_a_function_that_no_worker_"):
        imported_module.app.task(work)
    assert module_app.task(name="named")(work).name in module_app.tasks
    assert app.task(work).name in app.tasks  # of an app that is made in a function as well


def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize("function", [generator, async_generator])
def test_a_generator_is_refused(app: Windlass, function: Any) -> None:
    with pytest.raises(InvalidTask, match="is a generator, and a job has one result"):
        app.task(function)


def test_a_context_that_nobody_would_pass_is_noticed(app: Windlass) -> None:
    def work(ctx: Context, path: str) -> None: ...

    with pytest.raises(InvalidTask, match=r"write @app\.task\(takes_context=True\)"):
        app.task(work)


def test_a_task_that_takes_the_context_has_a_place_for_it(app: Windlass) -> None:
    def work() -> None: ...

    function: Any = work
    with pytest.raises(TypeError, match="its first parameter must be the context"):
        app.task(takes_context=True)(function)


@pytest.mark.parametrize("name", ["takes_context", "transaction"])
def test_an_option_that_is_a_yes_or_a_no(app: Windlass, name: str) -> None:
    options: dict[str, Any] = {name: "yes"}
    with pytest.raises(TypeError, match=f"{name} must be True or False, found 'yes'"):
        app.task(**options)


def test_a_task_says_where_it_runs_and_for_how_long(app: Windlass) -> None:
    @app.task(run_in="process", timeout="30s")
    def alone() -> None: ...

    @app.task
    def plain() -> None: ...

    assert (alone.runs_alone, alone.timeout_ms) == (True, 30_000)
    assert (plain.runs_alone, plain.timeout_ms) == (False, None)
    assert alone.using(timeout=0).timeout_ms == 0


def test_there_is_one_other_place_to_run_in(app: Windlass) -> None:
    options: dict[str, Any] = {"run_in": "thread"}
    with pytest.raises(ValueError, match=r"run_in must be .* found 'thread'"):
        app.task(**options)
