"""The call that instruments an app, and apps that are not instrumented."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from tests.telemetry.otel.collector import Collector, idle
from windlass import InvalidMiddleware, Windlass
from windlass.telemetry.otel import instrument
from windlass.testing import Sandbox

_ABSENT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "opentelemetry":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
from windlass import Windlass
from windlass.telemetry.otel import instrument

def work() -> None: ...

app = Windlass("sqlite:///:memory:")
try:
    instrument(app)
except ModuleNotFoundError as error:
    print(error)
app.task(name="work")(work).enqueue()
print(app.tracing)
"""
_UNUSED = """
import sys
import windlass.telemetry.otel
from windlass import Windlass

def work() -> None: ...

app = Windlass("sqlite:///:memory:")
app.task(name="work")(work).enqueue()
import windlass.worker.child.main, windlass.worker.supervisor.supervisor, windlass.http
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""


def printed_by(program: str) -> list[str]:
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


def test_without_the_library_the_call_says_what_to_install() -> None:
    assert printed_by(_ABSENT) == [
        "instrument needs the package opentelemetry-api, and opentelemetry is not installed. "
        "Install it with: pip install 'windlass-queue[otel]', or in a clone pip install '.[otel]'",
        "None",
    ]


def test_nothing_is_imported_before_the_call() -> None:
    assert printed_by(_UNUSED) == ["[]"]


def test_an_app_that_is_not_instrumented_makes_no_call(app: Windlass) -> None:
    """Enqueue and run never enter a function of tracing, nor middleware."""
    plain = Windlass("sqlite:///:memory:")
    work = plain.task(name="work")(idle)
    entered: list[str] = []

    def note(frame: Any, event: str, argument: Any) -> None:
        code, module = frame.f_code, frame.f_globals["__name__"]
        if event == "call" and module.startswith(("windlass.telemetry", "windlass.middleware")):
            entered.append(code.co_qualname)

    with Sandbox(plain) as box:
        sys.setprofile(note)
        try:
            work.enqueue()
            work.enqueue_many([()])
            box.drain()
        finally:
            sys.setprofile(None)
    assert entered == []


def test_an_app_is_instrumented_once(app: Windlass, collector: Collector) -> None:
    with pytest.raises(InvalidMiddleware, match="call instrument once, in the module of the app"):
        instrument(app, collector.tracers)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("shop.tasks:app",), r"expects an app made by Windlass\(...\), found 'shop.tasks:app'"),
        ((Windlass("sqlite:///:memory:"), None, None, "shop.*"), r"write \['shop.\*'\]"),
        ((Windlass("sqlite:///:memory:"), None, None, [print]), "write its name"),
        ((Windlass("sqlite:///:memory:"), "x", None, []), "must be a TracerProvider .* found 'x'"),
        ((Windlass("sqlite:///:memory:"), None, "x", []), "must be a MeterProvider .* found 'x'"),
    ],
)
def test_wrong_arguments_are_refused(arguments: tuple[Any, ...], problem: str) -> None:
    app, *rest = arguments
    links = {"links": rest.pop()} if rest else {}
    with pytest.raises(TypeError, match=problem):
        instrument(app, *rest, **links)
