"""What the Python adapters share: the marks of tasks, and the protocol of producers.

A task appends a line of fixed length to the file PEER_MARKS, with one system call on a descriptor
that is opened once. A producer reads requests from its standard input, a JSON object per line:

    {"do": "single", "task": "noop", "count": 1000}

and answers each with `{"at_ns": ..., "seconds": ...}`: when the call began on the monotonic clock,
which all processes of a machine share, and how long it took. An error is `{"error": "..."}`.
The adapters in other languages follow the same protocol.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any, Final

URL: Final = os.environ["PEER_URL"]
#: Coroutines that enqueue at the same time.
CALLERS: Final = 100
TEXTS: Final = {"three": "ada@example.com", "three_long": "one line of a letter " * 5}
_MARKS: Final = os.open(os.environ["PEER_MARKS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)


def mark() -> None:
    """Report that a task ran."""
    os.write(_MARKS, b".\n")


def mark_start_time() -> None:
    os.write(_MARKS, b"%020d\n" % time.monotonic_ns())


def mark_begin(number: int) -> None:
    os.write(_MARKS, b"b%03d\n" % number)


def mark_end(number: int) -> None:
    os.write(_MARKS, b"e%03d\n" % number)


def arguments(task: str, number: int) -> tuple[Any, ...]:
    """The arguments of a call; the stored bytes are measured with the three short or long ones."""
    if task == "start_time":
        return ()
    if task.startswith("three"):
        return (number, TEXTS[task], 12.5)
    return (number,)


def serve(producer: object, runner: asyncio.Runner | None = None) -> None:
    """Answer requests until the input ends. Coroutines run on one event loop."""
    with runner or asyncio.Runner() as loop:
        _answer({"ready": True})
        for line in sys.stdin:
            request = json.loads(line)
            method = getattr(producer, request["do"])
            _answer(_call(loop, method, request["task"], request["count"]))


def _call(
    loop: asyncio.Runner, method: Callable[[str, int], Any], task: str, count: int
) -> dict[str, Any]:
    at_ns = time.monotonic_ns()
    try:
        made = method(task, count)
        if inspect.iscoroutine(made):
            loop.run(made)
    except Exception as error:  # noqa: BLE001 - the harness reports it
        return {"error": f"{type(error).__name__}: {error}"}
    return {"at_ns": at_ns, "seconds": (time.monotonic_ns() - at_ns) / 1e9}


def _answer(reply: dict[str, Any]) -> None:
    print(json.dumps(reply), flush=True)
