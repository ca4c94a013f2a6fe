"""The map for contributors matches the source tree and the path of a traced job."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from tests.docs.pages import PROJECT, code_in, read, table_rows
from windlass import Windlass

PAGE = PROJECT / "CONTRIBUTING.md"
SOURCE = PROJECT / "src" / "windlass"
#: The threads of each step, by the prefix of their names.
THREADS = {
    "Enqueue": ("MainThread",),
    "Put": ("MainThread",),
    "Wake": ("waiter",),
    "Claim": ("windlass-fetcher",),
    "Run": ("slot",),
    "Finish": ("windlass-fetcher",),
    "Result": ("MainThread", "windlass-results"),
}
#: At most this many jobs are traced until all files of the page are seen.
JOBS = 50


def test_every_package_is_in_the_tree() -> None:
    rows = [row for row in table_rows(PAGE) if len(row) == 3]
    named = {name for row in rows for name in code_in(row[0])}
    packages = {str(file.parent.relative_to(SOURCE)) for file in SOURCE.rglob("__init__.py")}
    assert named == packages - {"."}


def test_every_file_that_is_named_exists() -> None:
    names = [name for name in re.findall(r"`([\w/]+\.(?:py|md))`", read(PAGE)) if "/" in name]
    assert len(names) > 30
    for name in names:
        assert (SOURCE / name).exists() or (PROJECT / name).exists(), name


def test_the_path_of_a_job_is_the_one_it_takes(tmp_path: Path) -> None:
    steps = re.findall(
        r"^\d\. \*\*(\w+)\*\*: (.*?)(?=^\d\. |^A \[test\])", read(PAGE), re.MULTILINE | re.DOTALL
    )
    assert [name for name, _ in steps] == list(THREADS)
    told = {name: set(re.findall(r"`([\w/]+\.py)`", text)) for name, text in steps}
    assert all(told.values())
    with Windlass(f"sqlite:///{tmp_path}/jobs.db") as app:
        task = app.task(name="add")(add)
        with traced() as calls, app.worker():
            # A job that finds its worker busy takes no wake-up: some jobs may take a shorter path.
            for number in range(JOBS):
                assert task.enqueue(number, 1).result(timeout=30) == number + 1
                if not any(untaken(told, calls).values()):
                    break
    assert untaken(told, calls) == {name: set() for name in THREADS}


def untaken(told: dict[str, set[str]], calls: set[tuple[str, str]]) -> dict[str, set[str]]:
    """The files of each step that no job has passed yet."""
    seen = calls.copy()  # other threads add to it
    return {
        name: files - {file for thread, file in seen if thread.startswith(THREADS[name])}
        for name, files in told.items()
    }


def add(a: int, b: int) -> int:
    return a + b


@contextmanager
def traced() -> Iterator[set[tuple[str, str]]]:
    """Every file of the library with a called function, and the calling thread."""
    calls: set[tuple[str, str]] = set()
    root = str(SOURCE) + "/"

    def note(frame: FrameType, event: str, _argument: object) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(root):
            calls.add((threading.current_thread().name, file.removeprefix(root)))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield calls
    finally:
        threading.setprofile(None)
        sys.setprofile(None)
