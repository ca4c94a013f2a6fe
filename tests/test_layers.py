"""The import contracts, and that each contract finds violations.

A contract that names the wrong modules always passes. So each contract must find a violation that
is planted in a copy of the package.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent.parent
LINTER = Path(sys.executable).with_name("lint-imports")


@pytest.fixture
def package(tmp_path: Path) -> Path:
    ignored = shutil.ignore_patterns("__pycache__")
    return shutil.copytree(PROJECT / "src/windlass", tmp_path / "windlass", ignore=ignored)


def check_contracts(package: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the project's contracts over a copy of the package."""
    return subprocess.run(
        [LINTER, "--no-logo", "--no-cache", "--config", PROJECT / "pyproject.toml", *options],
        cwd=package.parent,  # the linter imports from here first, before the installed package
        capture_output=True,
        text=True,
        check=False,
    )


def plant(module: Path, line: str) -> None:
    """Add a line at the end of a module, or make a module of it."""
    with module.open("a") as file:
        file.write(f"\n{line}\n")


def test_every_import_goes_in_its_direction(package: Path) -> None:
    checked = check_contracts(package)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("errors.py", "import windlass.core", "layers"),
        ("core/__init__.py", "import windlass.engine.contract", "layers"),
        ("core/__init__.py", "from windlass import app", "layers"),
        ("engine/contract/protocol.py", "import windlass.worker", "layers"),
        ("worker/__init__.py", "import windlass.cli", "layers"),
        ("leftovers.py", "", "layers"),
        ("engine/contract/protocol.py", "import windlass.engine.url", "engines"),
        ("engine/redis.py", "import windlass.engine.sqlite", "engines"),
        ("worker/__init__.py", "import windlass.engine.sqlite", "engine-by-url"),
        ("app.py", "import windlass.engine.sqlite", "engine-by-url"),
        ("worker/supervisor/reactor.py", "import windlass.worker.child.main", "worker"),
        ("engine/sqlite/files.py", "import windlass.engine.sqlite.engine", "cycles"),
        ("core/__init__.py", "import time", "pure-core"),
        ("worker/__init__.py", "import rich", "light-import"),
    ],
)
def test_an_offence_is_found(package: Path, module: str, line: str, contract: str) -> None:
    plant(package / module, line)
    checked = check_contracts(package, "--contract", contract)
    # By this line, not by the exit code: that is 1 for a contract that cannot be read, too.
    assert "0 kept, 1 broken" in checked.stdout, checked.stdout + checked.stderr
