"""Make likely mistakes, and record the error messages.

`python -m tests.docs.mistakes` makes all mistakes and writes docs/reference/mistakes.md; a test
makes them again and compares. A mistake is a command or a piece of Python, in a separate folder
with the app `shop:app`. Commands run in this process, as the console script runs them; an error of
the library is shown as at the end of a traceback.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import (
    AbstractContextManager,
    contextmanager,
    nullcontext,
    redirect_stderr,
    redirect_stdout,
)
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import apsw

from tests.docs.pages import DOCS
from tests.engine.conftest import hold_the_lock
from tests.redis_server import shared_server
from windlass import Windlass
from windlass.cli.root import exit_code_of

PAGE: Final = DOCS / "reference" / "mistakes.md"
#: The folder of the reader in the page.
READER: Final = "/srv/shop"
HEAD: Final = """# Mistakes

Error messages for likely mistakes. A test makes every mistake of this page, with the app `shop:app`
in the folder `/srv/shop`:

```python shop.py
{shop}```

`python -m tests.docs.mistakes` writes this page. Commands exit with 2 if the usage, a setting or
the app is wrong, with 3 if the engine does not answer, and with 1 otherwise; none prints a
traceback.
"""

SHOP: Final = """from datetime import datetime

from windlass import Alert, Context, Cron, Retry, Tasks, Unique, Windlass, current_context
from windlass.testing import Sandbox

app = Windlass("sqlite:///jobs.db")


@app.task
def resize(path: str, width: int = 100) -> str:
    return f"{path} at {width}"


@app.task
async def welcome(user_id: int) -> None: ...
"""


class Mistake(NamedTuple):
    """A command, preceded by its environment variables, or lines of Python."""

    title: str
    done: str
    around: Callable[[Path], AbstractContextManager[object]] = lambda _folder: nullcontext()


# ---------------------------------------------------------------------------------- circumstances


@contextmanager
def _stored(folder: Path) -> Iterator[None]:
    """An empty database."""
    with Windlass(f"sqlite:///{folder / 'jobs.db'}") as app:
        app.engine.migrate()
    yield


@contextmanager
def _in_paris(_folder: Path) -> Iterator[None]:
    os.environ["TZ"] = "CET-1CEST"
    time.tzset()
    try:
        yield
    finally:
        del os.environ["TZ"]
        time.tzset()


def _impatient(_folder: Path) -> AbstractContextManager[object]:
    """Shorten the time-out of calls to an unavailable engine."""
    os.environ["WINDLASS_ENQUEUE_TIMEOUT"] = "100ms"
    return nullcontext()


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    _impatient(folder)
    with _stored(folder), hold_the_lock(folder / "jobs.db"):
        yield


@contextmanager
def _locked_by_another_program(folder: Path) -> Iterator[None]:
    _impatient(folder)
    with _stored(folder):
        other = apsw.Connection(str(folder / "jobs.db"))
        other.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            other.close()


@contextmanager
def _of_another_program(folder: Path) -> Iterator[None]:
    other = apsw.Connection(str(folder / "notes.db"))
    other.execute("CREATE TABLE notes (text)")
    other.close()
    yield


def _file(name: str, text: str) -> Callable[[Path], AbstractContextManager[object]]:
    def write(folder: Path) -> AbstractContextManager[object]:
        (folder / name).write_text(text, encoding="utf-8")
        return nullcontext()

    return write


@contextmanager
def _without_driver(_folder: Path) -> Iterator[None]:
    """Simulate an installation without the Redis extra."""
    loaded = {name: sys.modules[name] for name in sys.modules if _is_of_redis(name)}
    for name in loaded:
        del sys.modules[name]
    sys.modules["redis"] = None  # type: ignore[assignment]  # how Python marks what is not there
    try:
        yield
    finally:
        for name in [name for name in sys.modules if _is_of_redis(name)]:
            del sys.modules[name]
        sys.modules.update(loaded)


def _is_of_redis(name: str) -> bool:
    return name.startswith("windlass.engine.redis") or name.partition(".")[0] == "redis"


# ------------------------------------------------------------------------------------- the mistakes

#: Names of all settings, or of all options.
_LIST: Final = re.compile(r"(Windlass\(\.\.\.\) takes|after WINDLASS_ one of|It takes) [^.]+\.")
REFUSING: Final = "redis://127.0.0.1:1/0"
COMMANDS: Final = [
    Mistake("a file for a module", "windlass status --app shop/tasks.py:app"),
    Mistake("a module that is not there", "windlass status --app shpo:app"),
    Mistake("a module without the variable", "windlass status --app shop"),
    Mistake("a variable that is not there", "windlass status --app shop:ap"),
    Mistake("a variable that is no app", "windlass status --app shop:resize"),
    Mistake(
        "an app that cannot be imported",
        "windlass status --app broken:app",
        _file("broken.py", "import os\n\nos.environ['SHOP_KEY']\n"),
    ),
    Mistake(
        "a module of include that is not there",
        "WINDLASS_INCLUDE=mail.tasks windlass job list --app shop:app",
        _stored,
    ),
    Mistake("no app", "windlass enqueue shop.resize"),
    Mistake("neither an app nor a url", "windlass status"),
    Mistake("a misspelt command", "windlass statsu"),
    Mistake("an app without its option", "windlass status shop:app"),
    Mistake("an option of another task queue", "windlass worker -A shop"),
    Mistake("an option before the command", "windlass --app shop:app status"),
    Mistake("a command of another task queue", "windlass beat"),
    Mistake("a misspelt option", "windlass status --app shop:app --jsno"),
    Mistake(
        "a misspelt key of pyproject.toml",
        "windlass status",
        _file("pyproject.toml", '[tool.windlass]\nurl = "sqlite:///jobs.db"\n'),
    ),
    Mistake("a misspelt variable", "WINDLASS_LAESE=5s windlass status --app shop:app"),
    Mistake("a variable that makes no sense", "WINDLASS_LEASE=soon windlass config"),
    Mistake(
        "an unencrypted webhook",
        "WINDLASS_ALERT_WEBHOOK=http://hooks.example.com/token windlass config",
    ),
    Mistake("alerts in the environment", "WINDLASS_ALERTS=oldest_age windlass config"),
    Mistake(
        "a variable that the code overrules",
        "WINDLASS_URL=redis://localhost windlass queue list --app shop:app",
        _stored,
    ),
    Mistake("a log level that is none", "windlass worker shop:app --log-level loud"),
    Mistake("a url without a scheme", "windlass status --url jobs.db"),
    Mistake("a url with another scheme", "windlass status --url mysql://localhost/jobs"),
    Mistake(
        "a url of SQLAlchemy, with its driver",
        "windlass status --url postgresql+asyncpg://localhost/shop",
    ),
    Mistake(
        "a mistyped option of a PostgreSQL url",
        "windlass status --url 'postgresql://localhost/shop?shema=jobs'",
    ),
    Mistake(
        "a slash in the password of a PostgreSQL url",
        "windlass status --url postgresql://shop:hunter/2@localhost/shop",
    ),
    Mistake(
        "listen= in a PostgreSQL url without a pooler",
        "windlass status --url 'postgresql://localhost/shop?listen=localhost:5432'",
    ),
    Mistake("a url with two slashes", "windlass status --url sqlite://jobs.db"),
    Mistake("a database in memory", "windlass status --url sqlite:///:memory:"),
    Mistake("a mistyped path", "windlass status --url sqlite:///jbos.db"),
    Mistake(
        "a file that is no database",
        "windlass status --url sqlite:///notes.txt",
        _file("notes.txt", "Remember the milk. " * 100),
    ),
    Mistake(
        "a database of another program",
        "windlass enqueue shop.resize --app shop:app --args '[\"a\"]' --url sqlite:///notes.db",
        _of_another_program,
    ),
    Mistake(
        "a folder that cannot be written to",
        "windlass enqueue shop.resize --app shop:app --args '[\"a\"]' --url sqlite:////proc/jobs.db",
    ),
    Mistake(
        "a file that another process has locked",
        "windlass enqueue shop.resize --app shop:app --args '[\"a\"]'",
        _locked,
    ),
    Mistake(
        "a file that another program has locked",
        "windlass enqueue shop.resize --app shop:app --args '[\"a\"]'",
        _locked_by_another_program,
    ),
    Mistake("an engine that is away", f"windlass status --url {REFUSING}", _impatient),
    Mistake("a wrong password", "windlass status --url redis://guest:hunter2@SERVER/0"),
    Mistake(
        "a certificate that is not there",
        "windlass status --url 'rediss://SERVER/0?ca_file=ca.pem'",
    ),
    Mistake(
        "a key without its certificate",
        "windlass status --url 'rediss://localhost:6380/0?key_file=me.key'",
    ),
    Mistake(
        "a driver that is not installed",
        "windlass status --url redis://localhost:6379/0",
        _without_driver,
    ),
    Mistake("a misspelt task", "windlass enqueue shop.resise --app shop:app --args '[\"a\"]'"),
    Mistake("a misspelt end of a task", "windlass job list --task resise --app shop:app", _stored),
    Mistake("a missing argument", "windlass enqueue shop.resize --app shop:app"),
    Mistake(
        "an argument of another type",
        'windlass enqueue shop.resize --app shop:app --args \'["a", "wide"]\'',
    ),
    Mistake(
        "arguments that are no JSON", "windlass enqueue shop.resize --app shop:app --args a.jpg"
    ),
    Mistake(
        "a time without an offset",
        "windlass enqueue shop.resize --app shop:app --at 2030-01-31T08:00",
        _in_paris,
    ),
    Mistake("a delay that is none", "windlass enqueue shop.resize --app shop:app --in tomorrow"),
    Mistake(
        "an unknown job", "windlass job show 01m7gk6tx900smjc57av0rnpgb --app shop:app", _stored
    ),
    Mistake("a time that is none", "windlass job list --since yesterday --app shop:app"),
    Mistake(
        "a span that ends before it starts",
        "windlass job list --since 10s --until 1h --app shop:app",
        _stored,
    ),
    Mistake(
        "an edit that changes nothing",
        "windlass job edit 01m7gk6tx900smjc57av0rnpgb --app shop:app",
    ),
    Mistake(
        "an edit of an unknown job",
        "windlass job edit 01m7gk6tx900smjc57av0rnpgb --args '[1]' --app shop:app",
        _stored,
    ),
    Mistake("no choice of jobs", "windlass job run-now --app shop:app"),
    Mistake(
        "a move to a misspelt queue",
        "windlass job move 01m7gk6tx900smjc57av0rnpgb --queue defualt --app shop:app",
        _stored,
    ),
    Mistake("a misspelt task to pause", "windlass task pause shop.resise --app shop:app", _stored),
    Mistake("a misspelt queue", "windlass queue pause defualt --app shop:app", _stored),
]
PYTHON: Final = [
    Mistake("a state that is none", 'app.jobs.list(state="waitin")'),
    Mistake("a filter that is none", 'app.jobs.list(stat="dead")'),
    Mistake("a filter of dead jobs that is none", 'app.dead.discard(taks="shop.resize")'),
    Mistake("an id in place of a list", 'app.jobs.get_many("01m7gk6tx900smjc57av0rnpgb")'),
    Mistake("a misspelt setting", 'Windlass("sqlite:///jobs.db", laese="10s")'),
    Mistake("a duration that is none", 'Windlass("sqlite:///jobs.db", lease="soon")'),
    Mistake("an alert in percent", "Windlass(alerts=[Alert.failure_rate(20)])"),
    Mistake("an alert outside of a list", 'Windlass(alerts=Alert.oldest_age("5m"))'),
    Mistake("a misspelt option of a task", "@app.task(timout=30)\ndef tidy() -> None: ..."),
    Mistake("an option in the wrong place", 'resize.using(name="other")'),
    Mistake("a missing argument in Python", "resize.enqueue()"),
    Mistake("an argument that cannot be stored", "resize.enqueue(object())"),
    Mistake("an argument that is too large", 'resize.enqueue("x" * 2_000_000)'),
    Mistake(
        "an annotation that cannot be stored",
        "@app.task\ndef send(connection: Windlass) -> None: ...\n\nsend.enqueue(app)",
    ),
    Mistake("a naive datetime", 'resize.using(run_after=datetime(2030, 1, 31)).enqueue("a.jpg")'),
    Mistake(
        "an instant that no engine can store",
        'resize.using(run_after=datetime.fromisoformat("9999-12-31T00:00Z"))',
    ),
    Mistake("a delay below zero", 'resize.using(run_after="-5s")'),
    Mistake("a priority out of range", "resize.using(priority=200)"),
    Mistake("a job that could never run", 'resize.using(run_after="1m", expires="1s")'),
    Mistake("a time-out below zero", "resize.using(timeout=-1)"),
    Mistake("a method of another task queue", 'resize.delay("a.jpg")'),
    Mistake("an option of another task queue in Python", 'resize.enqueue("a.jpg", countdown=5)'),
    Mistake("an option among the arguments", 'resize.enqueue("a.jpg", run_after="1h")'),
    Mistake("a misspelt argument", 'resize.enqueue(paht="a.jpg")'),
    Mistake(
        "a policy that is raised",
        "@app.task\ndef fetch() -> None:\n    raise Retry(max_attempts=3)\n\n"
        "with Sandbox(app) as box:\n    fetch.enqueue()\n    box.drain()",
    ),
    Mistake(
        "a group that no app has included",
        'billing = Tasks(prefix="billing")\n\n@billing.task\ndef charge(cents: int) -> None: ...'
        "\n\ncharge.enqueue(100)",
    ),
    Mistake("a secret that is too short", 'Windlass(secret="hush", encrypt=True)'),
    Mistake("pickles without a secret", 'Windlass(codec="pickle")'),
    Mistake("text for many calls", 'resize.enqueue_many("a.jpg")'),
    Mistake(
        "two tasks of one name",
        '@app.task(name="shop.resize")\ndef shrink(path: str) -> None: ...',
    ),
    Mistake("a task without a name", "app.task(lambda path: path)"),
    Mistake(
        "a method as a task",
        "class Shop:\n    @app.task\n    def tidy(self) -> None: ...",
    ),
    Mistake(
        "a task inside a function",
        "def start() -> None:\n    @app.task\n    def tidy() -> None: ...\n\nstart()",
    ),
    Mistake(
        "a group inside a function",
        'def start() -> None:\n    extra = Tasks(prefix="extra")\n\n    @extra.task\n'
        "    def tidy() -> None: ...\n\n    app.include(extra)\n\nstart()",
    ),
    Mistake(
        "a remote task that is called",
        'def build(month: str) -> None: ...\n\napp.task_named("reports.build", build)("2030-01")',
    ),
    Mistake(
        "a remote task that has its code here",
        'def other(path: str) -> None: ...\n\napp.task_named("shop.resize", other)',
    ),
    Mistake(
        "a misspelt rule of a schema",
        'app.task_named("reports.build", schema={"type": "object", "requierd": ["month"]})',
    ),
    Mistake(
        "an argument that the schema refuses",
        'schema = {"type": "object", "properties": {"pages": {"type": "integer"}}}\n'
        'app.task_named("reports.build", schema=schema).enqueue(pages="two")',
    ),
    Mistake(
        "a context that is not asked for in the right place",
        "@app.task(takes_context=True)\ndef tidy() -> None: ...",
    ),
    Mistake("a context where no job runs", "current_context()"),
    Mistake(
        "a hook that takes nothing",
        "def report() -> None: ...\n\n@app.task(on_dead=report)\ndef tidy() -> None: ...",
    ),
    Mistake(
        "a hook by another name",
        "@app.task(on_failure=print)\ndef tidy() -> None: ...",
    ),
    Mistake("a hook that is a task", "app.on_dead(resize)"),
    Mistake(
        "a cron expression that is none",
        '@app.task(schedule=Cron("61 * * * *"))\ndef tidy() -> None: ...',
    ),
    Mistake("a misspelt time zone", 'Cron("0 3 * * *", tz="Europe/Pari")'),
    Mistake(
        "a schedule of a task that needs arguments",
        '@app.task(schedule=Cron("0 3 * * *"))\ndef mail(user_id: int) -> None: ...',
    ),
    Mistake(
        "a schedule of a unique task",
        '@app.task(unique=Unique(), schedule=Cron("0 3 * * *"))\ndef tidy() -> None: ...',
    ),
    Mistake(
        "one idempotency key for two calls",
        'resize.using(idempotency_key="k").enqueue("a.jpg")\n'
        'resize.using(idempotency_key="k").enqueue("b.jpg")',
    ),
    Mistake("an id that is none", 'app.job("job 1")'),
    Mistake("the result of a job of another app", 'app.job("01m7gk6tx900smjc57av0rnpgb").result()'),
    Mistake(
        "a result without a running worker",
        'resize.enqueue("a.jpg").result(timeout="10ms")',
    ),
]
ALL: Final = [*COMMANDS, *PYTHON]


# ----------------------------------------------------------------------------------------- making


def make(mistake: Mistake, folder: Path) -> str:
    """The error message, without parts that depend on the machine or the time."""
    (folder / "shop.py").write_text(SHOP, encoding="utf-8")
    before = (os.getcwd(), dict(os.environ), [*sys.path])
    os.chdir(folder)
    try:
        with mistake.around(folder):
            is_command = mistake in COMMANDS
            return _settled(_type(mistake.done) if is_command else _run(mistake.done), folder)
    finally:
        os.chdir(before[0])
        os.environ.clear()
        os.environ.update(before[1])
        sys.path[:] = before[2]
        for name in ("shop", "broken"):
            sys.modules.pop(name, None)


def _type(line: str) -> str:
    words = shlex.split(line.replace("SERVER", f"127.0.0.1:{shared_server().port}"))
    while words[0] != "windlass":
        name, _, value = words.pop(0).partition("=")
        os.environ[name] = value
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = exit_code_of(words[1:])
    said = err.getvalue().strip()
    assert "Traceback" not in said
    said = said.partition("Error: ")[2] if "Error: " in said else said
    return f"{said} (exit code {code})" if code else said


def _run(text: str) -> str:
    """The name, the message and the first note of the exception that the lines raise."""
    names = {"__name__": "shop", "__file__": "shop.py"}
    exec(compile(SHOP, "shop.py", "exec"), names)  # noqa: S102  # it is the text above
    try:
        exec(compile(text, "shop.py", "exec"), names)  # noqa: S102  # and one of the mistakes
    except Exception as error:  # noqa: BLE001  # any is an answer
        return " ".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", [])[:1]])
    finally:
        names["app"].close()  # type: ignore[attr-defined]  # the text above made it
    raise AssertionError(f"nothing was said about {text!r}")


def _settled(answer: str, folder: Path) -> str:
    answer = answer.replace(str(folder), READER).replace("\n", " ")
    answer = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:6379", answer)
    answer = re.sub(r"\b01[0-9a-hjkmnp-tv-z]{24}\b", "01m7gk6tx900smjc57av0rnpgb", answer)
    answer = re.sub(r"(for|within) \d+\.\d s", r"\1 5.0 s", answer)
    answer = _LIST.sub(r"\1 ...", answer)
    return re.sub(r" +", " ", answer)


# ---------------------------------------------------------------------------------------- the page


def row(mistake: Mistake, answer: str) -> str:
    done = mistake.done.replace(REFUSING, "redis://127.0.0.1:6379/0")
    done = done.replace("SERVER", "127.0.0.1:6379")
    code = "<br>".join(f"`{line}`" for line in done.splitlines() if line)
    return f"| {mistake.title} | {code} | {_escaped(answer)} |".replace("\\|", "&#124;")


def _escaped(answer: str) -> str:
    for char in ("|", "*", "<", ">"):
        answer = answer.replace(char, f"&#{ord(char)};")
    return answer


def page(answers: dict[str, str]) -> str:
    parts = [HEAD.format(shop=SHOP)]
    for heading, mistakes in (("Commands", COMMANDS), ("Python", PYTHON)):
        rows = [row(mistake, answers[mistake.title]) for mistake in mistakes]
        table = "\n".join(["| mistake | input | error |", "| --- | --- | --- |", *rows])
        parts.append(f"\n## {heading}\n\n{table}\n")
    return "".join(parts)


def main() -> None:
    answers = {}
    for mistake in ALL:
        with TemporaryDirectory() as folder:
            answers[mistake.title] = make(mistake, Path(folder).resolve())
    PAGE.write_text(page(answers), encoding="utf-8")


if __name__ == "__main__":
    main()
