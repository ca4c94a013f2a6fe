"""Mistakes of new users of Redis: each gets a message and an exit code, no traceback."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from tests.cli.shell import Ran, Shell
from tests.redis_server import RedisServer, free_port, private_server, shared_server

APP = "from windlass import Windlass\napp = Windlass()\n\n@app.task\ndef nothing() -> None: ...\n"
#: Pauses the server between its setup and the enqueue.
PAUSING = """
import os
import socket
from collections.abc import Iterator
from windlass import EnqueueCall

@app.around_enqueue
def pause(call: EnqueueCall) -> Iterator[None]:
    if os.environ.get("PAUSES"):
        app.engine.migrate()
        with socket.create_connection(("127.0.0.1", {port})) as connection:
            connection.sendall(b"AUTH right\\r\\nCLIENT PAUSE 60000 WRITE\\r\\n")
            connection.recv(100)
    yield
"""
#: Run before anything else by every interpreter that has its folder on the path.
WITHOUT_DRIVER = """
import sys

class NoDriver:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("redis", "hiredis"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, NoDriver())
"""


@pytest.fixture
def shell(shell: Shell) -> Shell:
    """Its app takes the url from the environment."""
    (shell.folder / "tasks.py").write_text(APP, encoding="utf-8")
    return shell


@pytest.fixture(scope="module")
def locked() -> Iterator[RedisServer]:
    """A server that asks for a password."""
    server = private_server()
    server.tell("CONFIG", "SET", "requirepass", "right")
    yield server
    server.end()


def try_all(type_: Callable[..., Ran], url: str, **environment: str) -> Iterator[Ran]:
    """A look, a worker and an enqueue."""
    for arguments in (
        ("status",),
        ("worker", "tasks:app", "-p", "1"),
        ("enqueue", "tasks.nothing"),
    ):
        app = {} if arguments == ("status",) else {"WINDLASS_APP": "tasks:app"}
        ran = type_(*arguments, WINDLASS_URL=url, **app, **environment)
        assert "Traceback" not in ran.out + ran.err
        assert ran.code != 0
        yield ran


def test_a_wrong_password(shell: Shell, locked: RedisServer) -> None:
    for ran in try_all(shell.type, f"redis://:wrong@127.0.0.1:{locked.port}/0"):
        assert "refused the login" in ran.err
        assert "Check user name and password in the url." in ran.err
        assert "wrong" not in ran.err.replace("WRONGPASS", "")


def test_no_password(shell: Shell, locked: RedisServer) -> None:
    for ran in try_all(shell.type, f"redis://127.0.0.1:{locked.port}/0"):
        assert ran.code != 3
        assert "asks for a password" in ran.err
        assert "and there is none in the url" in ran.err


def test_whether_a_job_was_stored_is_not_always_known(shell: Shell, locked: RedisServer) -> None:
    (shell.folder / "tasks.py").write_text(APP + PAUSING.format(port=locked.port))
    url = f"redis://:right@127.0.0.1:{locked.port}/0"
    told = {"WINDLASS_APP": "tasks:app", "WINDLASS_URL": url, "WINDLASS_ENQUEUE_TIMEOUT": "500ms"}
    assert shell.type("enqueue", "tasks.nothing", **told).code == 0
    ran = shell.type("enqueue", "tasks.nothing", PAUSES="1", **told)
    locked.tell("AUTH", "right\r\nCLIENT", "UNPAUSE")
    assert (ran.code, ran.out) == (3, "")
    assert re.search("Job [0-9a-z]{26} may or may not have been stored", ran.err)
    assert "twice, enqueue it with --idempotency-key KEY." in ran.err
    assert "using(" not in ran.err


def test_a_job_is_not_sent_before_the_server_is_set_up(shell: Shell, locked: RedisServer) -> None:
    pause = ("CLIENT", "PAUSE", "60000", "WRITE")
    ran = enqueue_during(shell, locked, pause, ("CLIENT", "UNPAUSE"))
    assert re.search("Job [0-9a-z]{26} was not stored. The call can be repeated", ran.err)


def test_a_full_server_has_stored_nothing(shell: Shell, locked: RedisServer) -> None:
    limit = ("CONFIG", "SET", "maxmemory")
    ran = enqueue_during(shell, locked, (*limit, "1"), (*limit, "0"))
    assert re.search("Job [0-9a-z]{26} was not stored. The call can be repeated", ran.err)


def enqueue_during(
    shell: Shell, locked: RedisServer, begin: tuple[str, ...], end: tuple[str, ...]
) -> Ran:
    """The output of an enqueue between these two commands."""
    url = f"redis://:right@127.0.0.1:{locked.port}/0"
    told = {"WINDLASS_APP": "tasks:app", "WINDLASS_URL": url, "WINDLASS_ENQUEUE_TIMEOUT": "500ms"}
    assert shell.type("enqueue", "tasks.nothing", **told).code == 0
    locked.tell("AUTH", f"right\r\n{begin[0]}", *begin[1:])
    ran = shell.type("enqueue", "tasks.nothing", **told)
    locked.tell("AUTH", f"right\r\n{end[0]}", *end[1:])
    assert (ran.code, ran.out) == (3, "")
    return ran


def test_a_wrong_database(shell: Shell) -> None:
    for ran in try_all(shell.type, f"redis://127.0.0.1:{shared_server().port}/99"):
        assert "has no database 99. Give a lower number in the url" in ran.err


def test_only_workers_and_jobs_set_a_server_up(shell: Shell) -> None:
    server = private_server()
    url = f"redis://127.0.0.1:{server.port}/3"
    for arguments in (("status",), ("check",), ("queue", "pause", "mail", "--yes"), ("doctor",)):
        ran = shell.type(*arguments, "--url", url)
        if arguments != ("doctor",):
            assert (ran.code, ran.out) == (1, "")
            assert f"windlass was never used at redis 127.0.0.1:{server.port}/3" in ran.err
        else:
            assert "none was ever stored here" in ran.out
        assert b"keys=" not in server.tell("INFO", "keyspace")
    told = {"WINDLASS_APP": "tasks:app", "WINDLASS_URL": url}
    assert shell.type("enqueue", "tasks.nothing", **told).code == 0
    assert shell.type("status", "--url", url).code == 0
    server.end()


def test_no_driver(shell: Shell) -> None:
    (shell.folder / "sitecustomize.py").write_text(WITHOUT_DRIVER, encoding="utf-8")
    url = "redis://:secret@127.0.0.1:6379/0"
    for ran in try_all(shell.type_afresh, url, PYTHONPATH=str(shell.folder)):
        assert ran.code == 2
        assert "needs the Redis driver, which is not installed here" in ran.err
        assert "pip install 'windlass-queue[redis]'" in ran.err
        assert "secret" not in ran.err


def test_a_file_with_the_name_of_the_driver(shell: Shell) -> None:
    file = shell.folder / "redis.py"
    file.write_text("", encoding="utf-8")
    for ran in try_all(shell.type_afresh, "redis://127.0.0.1:1/0", PYTHONPATH=str(shell.folder)):
        assert ran.code == 2
        assert f"{file} is imported in its place. Give that file another name." in ran.err


def test_the_rest_works_without_a_driver(shell: Shell) -> None:
    (shell.folder / "sitecustomize.py").write_text(WITHOUT_DRIVER, encoding="utf-8")
    environment = {"WINDLASS_APP": "tasks:app", "WINDLASS_URL": shell.url}
    environment["PYTHONPATH"] = str(shell.folder)
    ran = shell.type_afresh("enqueue", "tasks.nothing", **environment)
    assert ran.code == 0, ran.err


@pytest.mark.parametrize(
    ("scheme", "hint"),
    [("redis", "Check that it runs"), ("rediss", "write redis:// in the url")],
    ids=["no server", "TLS to a plain port"],
)
def test_no_answer(shell: Shell, scheme: str, hint: str) -> None:
    port = free_port() if scheme == "redis" else shared_server().port
    url = f"{scheme}://127.0.0.1:{port}/0"
    ran = shell.type("status", "--url", url)
    assert (ran.code, ran.out) == (3, "")
    assert f"The Redis server at 127.0.0.1:{port}/0 did not answer" in ran.err
    assert hint in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.slow
def test_a_worker_waits_for_a_server_and_says_so(shell: Shell) -> None:
    """Slow: it retries for five seconds before it reports that no server answers."""
    port = free_port()
    url = f"redis://127.0.0.1:{port}/0"
    worker = shell.start("worker", "tasks:app", "-p", "1", "--url", url)
    assert worker.stderr is not None
    lines = [next(worker.stderr) for _ in range(3)]
    worker.kill()  # its children end with it
    lines += worker.communicate()[1].splitlines()
    said = ("waiting for the engine", "lost connection to engine, retrying")
    assert any(words in lines[2] for words in said)  # the part that noticed it first
    assert f"127.0.0.1:{port}/0 did not answer" in lines[2]
    assert not any("Traceback" in line for line in lines)
