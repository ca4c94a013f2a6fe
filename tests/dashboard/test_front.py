"""The front end: its unit tests, its types, its size and what it never does."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.http.worker_protocol.programs import program
from tests.worker.yard import PROJECT
from windlass.dashboard.static_files import read_files

STATIC: Final = PROJECT / "src" / "windlass" / "dashboard" / "static"
FRONT: Final = PROJECT / "tests" / "dashboard" / "front"
UNPACKED: Final = PROJECT / "build" / "typescript" / "node_modules" / ".bin"
#: What a browser loads for the first page, compressed; and all files together, as they are stored.
MOST_FIRST_BYTES: Final = 60_000
MOST_BYTES: Final = 180_000
#: The modules from which the first page is made.
FIRST: Final = ("app.js", "pages/overview.js")
IMPORTED: Final = re.compile(r'^import .*? from "(.+?)";$', re.MULTILINE)
MODULES: Final = sorted(STATIC.rglob("*.js"))
#: Ways from a text to markup, to code or to another host.
UNSAFE: Final = re.compile(
    r"\.(?:innerHTML|outerHTML|insertAdjacentHTML|srcdoc)\b|document\.write|\beval\(|new Function"
    r"|[\"'`]https?://(?!www\.w3\.org/2000/svg)"
)


def run(*command: str) -> None:
    done = subprocess.run(
        command, cwd=PROJECT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_unit_tests_pass() -> None:
    run(program("node"), "--test", *map(str, sorted(FRONT.glob("*.test.mjs"))))


def test_types_are_right() -> None:
    found = shutil.which("tsc", path=f"{UNPACKED}{os.pathsep}{os.environ['PATH']}")
    absent = "There is no TypeScript here. Run `make typescript`, which needs npm."
    if found is None and not os.environ.get("CI"):
        pytest.skip(absent)
    assert found is not None, absent
    run(found, "--project", str(FRONT / "tsconfig.json"))


def first_modules() -> set[str]:
    """The modules of the first page, with all that they import."""
    found: set[str] = set()
    rest = [STATIC / name for name in FIRST]
    while rest:
        module = rest.pop()
        name = module.relative_to(STATIC).as_posix()
        if name not in found:
            found.add(name)
            rest += [
                (module.parent / one).resolve() for one in IMPORTED.findall(module.read_text())
            ]
    return found


def test_the_first_page_is_small() -> None:
    names = {"index.html", "app.css", "icon.svg", *first_modules()}
    sizes = {name: len(file.compressed) for name, file in read_files().items() if name in names}
    assert sizes.keys() == names
    assert sum(sizes.values()) <= MOST_FIRST_BYTES, sizes


def test_the_browser_loads_all_modules_of_the_first_page_at_once() -> None:
    page = (STATIC / "index.html").read_text()
    preloaded = re.findall(r'rel="modulepreload" href="\./static/(.+?)"', page)
    assert preloaded == sorted(first_modules() - {"app.js"})


def test_all_files_together_are_small() -> None:
    sizes = {file.name: file.stat().st_size for file in STATIC.rglob("*") if file.is_file()}
    assert sum(sizes.values()) <= MOST_BYTES, sizes


@pytest.mark.parametrize("module", MODULES, ids=lambda module: str(module.relative_to(STATIC)))
def test_no_module_makes_markup_of_text_or_names_another_host(module: Path) -> None:
    assert not UNSAFE.findall(module.read_text())


def test_the_page_has_no_inline_script_or_style() -> None:
    page = (STATIC / "index.html").read_text()
    assert not re.findall(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", page)
    assert not re.findall(r"(?:src|href)=\"(?!\./|#)", page)
