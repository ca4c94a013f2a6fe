"""The pytest plugin: found by its entry point, and without effect unless it is used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.docs.pages import DOCS, blocks

GUIDE = DOCS / "guides" / "testing.md"
SHOP = """
from windlass import Windlass

app = Windlass("sqlite:////there/is/no/such/folder/jobs.db")
sent = []

@app.task(name="welcome")
def welcome(user_id: int) -> None:
    sent.append(user_id)
"""
CONFTEST = """
import pytest

@pytest.fixture
def windlass_app():
    from shop import app

    return app
"""
TESTS = """
import asyncio
import pytest
from shop import sent, welcome

def test_sync(windlass_sandbox):
    welcome.enqueue(42)
    assert [job.arguments for job in windlass_sandbox.jobs(welcome)] == [{"user_id": 42}]
    windlass_sandbox.drain()
    assert sent == [42]

def test_each_has_its_own(windlass_sandbox):
    assert windlass_sandbox.jobs() == []

def test_coroutines(windlass_sandbox):
    async def body():
        await welcome.aenqueue(43)
        return await windlass_sandbox.adrain()

    assert len(asyncio.run(body())) == 1
"""
MARKED = """
from datetime import UTC, datetime
import pytest
from shop import app, welcome
from windlass import Every

@pytest.fixture
def windlass_now():
    return datetime(2030, 5, 1, tzinfo=UTC)

def test_of_the_fixture(windlass_sandbox):
    assert windlass_sandbox.now.year == 2030

@pytest.mark.windlass(now=datetime(2031, 5, 1, tzinfo=UTC), schedules=True)
def test_of_the_marker(windlass_sandbox):
    assert windlass_sandbox.now.year == 2031
    app.schedules.save("tick", welcome.bind(1), Every("10m"))
    windlass_sandbox.advance("10m")
    assert len(windlass_sandbox.drain()) == 1

@pytest.mark.windlass(when=1)
def test_of_a_wrong_marker(windlass_sandbox): ...
"""
STRAY = """
import pytest
from shop import app, welcome
from windlass import EngineError, Windlass

def test_without_the_fixture():
    with pytest.raises(EngineError, match="allows only engines in memory. Use the fixture"):
        welcome.enqueue(1)

def test_with_the_fixture(windlass_sandbox):
    welcome.enqueue(1)

def test_in_memory():
    Windlass("sqlite:///:memory:").task_named("work").enqueue(1)
"""
UNUSED = """
import sys

def test_nothing_was_loaded(request):
    assert request.config.pluginmanager.get_plugin("windlass") is sys.modules["windlass_pytest"]
    assert not [name for name in sys.modules if name.partition(".")[0] == "windlass"]
    assert "msgspec" not in sys.modules
"""


def run(folder: Path, *options: str, **files: str) -> subprocess.CompletedProcess[str]:
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    # The plugins of this project's own tests are left out: some of them load windlass.
    others = ("hypothesispytest", "xdist", "timeout", "anyio", "asyncio")
    plugins = [option for name in others for option in ("-p", f"no:{name}")]
    given = ("-q", "-W", "error", "--strict-markers", "-p", "no:cacheprovider")
    return subprocess.run(
        [sys.executable, "-m", "pytest", *given, *plugins, *options],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_fixture_gives_a_sandbox(tmp_path: Path) -> None:
    ran = run(tmp_path, shop=SHOP, conftest=CONFTEST, test_shop=TESTS)
    assert "3 passed" in ran.stdout, ran.stdout + ran.stderr


def test_what_the_guide_tells_to_write_works(tmp_path: Path) -> None:
    files = {block.label.removesuffix(".py"): block.text for block in blocks(GUIDE) if block.label}
    ran = run(tmp_path, **{name: text for name, text in files.items() if "/" not in name})
    assert "1 passed" in ran.stdout, ran.stdout + ran.stderr


def test_fixture_and_marker_give_the_options_of_the_sandbox(tmp_path: Path) -> None:
    ran = run(tmp_path, shop=SHOP, conftest=CONFTEST, test_shop=MARKED)
    assert "2 passed, 1 error" in ran.stdout, ran.stdout + ran.stderr
    assert "Expected @pytest.mark.windlass(now=..., schedules=False), found ()" in ran.stdout


def test_real_engines_can_be_forbidden(tmp_path: Path) -> None:
    ran = run(tmp_path, "--windlass-sandbox-only", shop=SHOP, conftest=CONFTEST, test_shop=STRAY)
    assert "3 passed" in ran.stdout, ran.stdout + ran.stderr


def test_without_an_app_it_says_what_to_write(tmp_path: Path) -> None:
    ran = run(tmp_path, shop=SHOP, test_shop=TESTS)
    assert "3 errors" in ran.stdout, ran.stdout + ran.stderr
    assert "def windlass_app():" in ran.stdout


def test_it_loads_nothing_where_it_is_not_used(tmp_path: Path) -> None:
    ran = run(tmp_path, test_unused=UNUSED)
    assert "1 passed" in ran.stdout, ran.stdout + ran.stderr


def test_a_sandbox_needs_no_library_for_tests() -> None:
    program = "import sys, windlass.testing; print({'pytest', 'hypothesis'} & set(sys.modules))"
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "set()"
