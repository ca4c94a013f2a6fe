"""Install wheel and sdist into clean environments, and follow the quickstart there.

The proof uses every CPython from 3.11 on of this machine: by name on the path, and from pyenv. In
each environment the sdist replaces the wheel, with another folder for the quickstart. `make test`
does so in that of the newest interpreter only: a test shows that the sdist makes the same wheel.
The proof prints the size of an installation, and limits it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

from tests.deploy.packages import MOST_OWN_BYTES, Packages, build
from tests.docs.pages import DOCS, blocks

OLDEST: Final = (3, 11)
NEWEST_MINOR: Final = 20
#: The number of interpreters tested in parallel.
AT_A_TIME: Final = 2
#: The size limit of windlass with all dependencies, in bytes, without compiled files.
MOST_BYTES: Final = 21_000_000

_INSTALL: Final = ("install", "--no-compile", "--no-warn-script-location")
_LOOK: Final = (
    "import sys; print(sys.implementation.name, sys.version.split()[0], sys.base_prefix, sep='|')"
)
_RESULT: Final = "import sys; from tasks import app; print(app.job(sys.argv[1]).result(timeout=10))"
_WHERE: Final = "import windlass, windlass_probe; print(windlass.__file__, windlass_probe.__file__)"


class Interpreter(NamedTuple):
    version: str
    path: str


def prove(folder: Path) -> Iterator[str]:
    found = find_interpreters()
    yield from _prove(folder, found, with_sdist=found)


def prove_wheel(folder: Path) -> Iterator[str]:
    """The same, with the sdist for the newest interpreter only."""
    found = find_interpreters()
    yield from _prove(folder, found, with_sdist=found[-1:])


def _prove(
    folder: Path, found: Sequence[Interpreter], with_sdist: Sequence[Interpreter]
) -> Iterator[str]:
    packages = build(folder / "built")
    yield f"found: {', '.join(f'CPython {one.version}' for one in found)}"
    assert found

    def try_(one: Interpreter) -> list[str]:
        return _try(packages, one, folder / one.version, has_sdist=one in with_sdist)

    with ThreadPoolExecutor(AT_A_TIME) as pool:
        # The last one is tried first: it may take longest.
        yield from chain.from_iterable(reversed(list(pool.map(try_, reversed(found)))))


def _try(
    packages: Packages, interpreter: Interpreter, folder: Path, *, has_sdist: bool
) -> list[str]:
    """The findings for each package."""
    clean = Environment(interpreter, folder)
    seen = []
    steps = [("wheel", clean.install, packages.wheel)]
    if has_sdist:
        steps.append(("sdist", clean.replace, packages.sdist))
    for kind, bring, package in steps:
        bring(package)
        clean.follow_quickstart(folder / kind)
        told = f"{kind} on {interpreter.version}: quickstart followed"
        seen.append(f"{told}, {clean.describe_size()}")
    return seen


# ------------------------------------------------------------------------------------ interpreters


def find_interpreters() -> list[Interpreter]:
    """One interpreter per minor version, the oldest first."""
    found = [one for path in _candidates() if (one := _look(path)) is not None]
    looked = {_numbers(one.version)[:2]: one for one in found}
    return sorted(looked.values(), key=lambda one: _numbers(one.version))


def _candidates() -> Iterator[str]:
    names = [f"python3.{minor}" for minor in range(OLDEST[1], NEWEST_MINOR)]
    kept = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    yield from map(str, sorted(kept.glob("3.*/bin/python3")))
    yield from (path for name in names if (path := shutil.which(name)))
    yield str(Path(sys.base_prefix) / "bin" / "python3")


def _look(path: str) -> Interpreter | None:
    """None if it does not start, is too old, is a pre-release or is not CPython."""
    ran = subprocess.run([path, "-c", _LOOK], capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        return None
    name, version, prefix = ran.stdout.strip().split("|")
    is_release = re.fullmatch(r"\d+\.\d+\.\d+", version) is not None
    if name != "cpython" or not is_release or _numbers(version) < OLDEST:
        return None
    return Interpreter(version, str(Path(prefix) / "bin" / "python3"))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


# ------------------------------------------------------------------------------------ environments


class Environment:
    """A clean environment: only the installed parts of this project can be imported."""

    def __init__(self, interpreter: Interpreter, folder: Path) -> None:
        self._home = folder / "env"
        folder.mkdir()
        _run([interpreter.path, "-m", "venv", "--without-pip", str(self._home)], folder)
        [self._libraries] = self._home.glob("lib/python3.*/site-packages")

    def install(self, package: Path) -> None:
        self._pip(*_INSTALL, str(package))
        self._pip("check")

    def replace(self, package: Path) -> None:
        """Replace the package and keep its dependencies: tests check that both packages declare the
        same ones."""
        self._pip(*_INSTALL, "--force-reinstall", "--no-deps", str(package))

    def _pip(self, *arguments: str) -> None:
        """Use the pip of the current environment, so that the clean one does not contain pip."""
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "--python"]
        _run([*pip, str(self._home / "bin" / "python"), *arguments], self._home)

    def follow_quickstart(self, work: Path) -> None:
        work.mkdir()
        for block in blocks(DOCS / "quickstart.md")[:4]:
            if block.language == "python":
                (work / block.label).write_text(block.text, encoding="utf-8")
        assert self._type(work, "windlass", "--version").startswith("windlass ")
        for place in self._type(work, "python", "-c", _WHERE).split():
            assert Path(place).is_relative_to(self._home), place
        id, state = self._type(work, "python", "enqueue.py").split()
        assert state == "ready"
        self._type(work, "windlass", "worker", "tasks:app", "--burst", "-p", "1")
        assert self._type(work, "python", "-c", _RESULT, id) == "9"
        self._type(work, "windlass", "check", "--app", "tasks:app")

    def _type(self, work: Path, program: str, *arguments: str) -> str:
        return _run([str(self._home / "bin" / program), *arguments], work).strip()

    def describe_size(self) -> str:
        entries = self._libraries.iterdir()
        sizes = {entry.name: _size(entry) for entry in entries if entry.name != "__pycache__"}
        own = sum(size for name, size in sizes.items() if name.startswith("windlass"))
        total = sum(sizes.values())
        assert 0 < own <= MOST_OWN_BYTES, f"windlass takes {own} bytes: was that decided?"
        assert own < total <= MOST_BYTES, f"all takes {total} bytes: was that decided? {sizes}"
        return f"windlass takes {own:,} bytes, with all that it depends on {total:,}"


def _size(entry: Path) -> int:
    files = entry.rglob("*") if entry.is_dir() else [entry]
    return sum(file.lstat().st_size for file in files if file.is_file() and file.suffix != ".pyc")


def _run(command: list[str], folder: Path) -> str:
    """Run a command without variables that expose this project or the settings of the user."""
    hidden = ("PYTHON", "VIRTUAL_ENV", "WINDLASS_")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(hidden)}
    ran = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, f"{command}\n{ran.stdout}{ran.stderr}"
    return ran.stdout
