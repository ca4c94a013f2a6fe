"""The names of `import windlass`, and the modules that it must not load."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import windlass

#: What is slow to load, and needed later or by others.
SLOW = (
    *("apsw", "asyncio", "click", "cryptography", "difflib", "logging", "pickle", "redis", "rich"),
    *("base64", "copy", "dataclasses", "hashlib", "hmac", "pathlib", "random", "tempfile"),
    *("traceback", "typer", "urllib.parse", "zoneinfo"),
    *(
        "windlass.core.serialization.encryption",
        "windlass.core.schedules.triggers",
    ),
    *("windlass.engine.sqlite", "windlass.queue", "windlass.testing", "windlass.worker"),
)
#: What a child does without, whose start every job of a killed one waits for.
SLOW_IN_A_CHILD = (
    *("cryptography", "email", "hashlib", "importlib.metadata", "importlib.resources", "pickle"),
    *("redis", "secrets", "tempfile", "windlass.cli", "zipfile", "zoneinfo"),
)
#: What is loaded when it is first asked for.
LATER = {
    *("AlertInfo", "All", "Cron", "DeadGroup", "DeadLetter", "Every", "Queue", "QueueInfo"),
    *("AppStats", "ChildInfo", "QueueStats", "RunningJob", "ScheduleInfo", "WorkerInfo"),
    "WorkerState",
    *("AccessToken", "AuditRecord", "Operation", "Role"),
    *("Activity", "AppHistory", "HistoryRow", "QueueDepth"),
}


def test_exports_are_sorted_and_complete() -> None:
    tree = ast.parse(Path(windlass.__file__).read_text())
    imported = {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert windlass.__all__ == sorted((imported | LATER) - {"TYPE_CHECKING"})


def test_facade_has_no_logic() -> None:
    tree = ast.parse(Path(windlass.__file__).read_text())
    kinds = {type(node) for node in tree.body[1:]}  # after the docstring
    assert kinds == {ast.ImportFrom, ast.Assign, ast.If, ast.FunctionDef}
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert functions == ["__getattr__"]


def test_what_is_loaded_later_is_there() -> None:
    assert all(getattr(windlass, name).__name__ == name for name in LATER)
    with pytest.raises(AttributeError, match="no attribute 'Chron'"):
        _ = windlass.Chron


@pytest.mark.parametrize(
    ("modules", "anyway", "slow"),
    [
        ("windlass", "inspect, msgspec, threading, weakref", SLOW),
        (
            "windlass.worker.child.main, windlass.engine.sqlite.engine",
            "apsw, asyncio, ctypes, msgspec",
            SLOW_IN_A_CHILD,
        ),
    ],
)
def test_import_loads_nothing_slow(modules: str, anyway: str, slow: tuple[str, ...]) -> None:
    """Save for what those modules load that are needed anyway, in this version of Python."""
    program = (
        f"import sys, {anyway}; before = set(sys.modules); import {modules}; "
        f"print([name for name in {slow} if name in sys.modules and name not in before])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "[]"


def test_every_error_is_exported() -> None:
    tree = ast.parse(Path(windlass.errors.__file__).read_text())
    errors = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    assert errors <= set(windlass.__all__)


def test_a_shell_completes_the_public_names_only() -> None:
    app = windlass.Windlass("sqlite:///:memory:")
    task = app.task(name="send")(send)
    assert dir(app) == [
        *("access_tokens", "acommand_workers", "acrash_suspects", "aenqueue_many", "ahistory"),
        *("alerts", "alost_sessions"),
        *(
            "around_enqueue",
            "around_run",
            "astats",
            "audit",
            "aworkers",
            "close",
            "command_workers",
            "crash_suspects",
            "dead",
            "engine",
        ),
        *("enqueue_many", "history", "include", "job", "jobs", "lost_sessions"),
        *("on_alert", "on_dead", "on_retry", "on_success", "operations", "queue"),
        "remote_tasks",
        *("schedules", "settings", "stats", "task", "task_named", "tasks", "worker", "workers"),
    ]
    assert dir(task) == [
        *("aenqueue", "aenqueue_many", "aliases", "apause", "app", "aresume", "bind", "enqueue"),
        *("enqueue_many", "function", "headers", "is_remote", "job", "name", "pause", "priority"),
        *("queue", "requires", "result_ttl_ms", "resume", "retry", "timeout_ms", "unique", "using"),
    ]
    assert dir(app.jobs) == ["aget_many", "alist", "awhy", "get_many", "list", "why"]
    assert dir(app.dead) == [
        *("acount", "adiscard", "aget", "agroups", "alist", "aregroup", "aretry", "aretry_with"),
        *("count", "discard", "get", "groups", "list", "regroup", "retry", "retry_with"),
    ]
    assert dir(app.job("01m7gk6tx900smjc57av0rnpgb")) == [
        *("acancel", "aedit", "ainfo", "amove", "aresult", "aretry", "arun_now", "cancel"),
        *("created", "edit", "id", "info", "move", "result", "retry", "run_now", "task"),
    ]


def send() -> None:
    """A task."""
