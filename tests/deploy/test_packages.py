"""What is in wheel and sdist, and what is not. `python -m proofs packages` installs them."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.deploy.files import PROJECT
from tests.deploy.packages import (
    MOST_OWN_BYTES,
    Packages,
    build,
    build_again,
    files_in_sdist,
    files_in_wheel,
    metadata,
)

SOURCE = PROJECT / "src"
DECLARED = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
#: Files of a package that are not imported.
OWN = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"}
LEFT = {"__pycache__", ".DS_Store"}


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Packages:
    return build(tmp_path_factory.mktemp("built"))


def source_files() -> set[str]:
    found = [file for file in SOURCE.rglob("*") if file.is_file() and not LEFT & set(file.parts)]
    return {file.relative_to(SOURCE).as_posix() for file in found}


def test_the_wheel_has_all_of_the_source_and_nothing_else(packages: Packages) -> None:
    folder = f"windlass_queue-{DECLARED['version']}.dist-info"
    expected = source_files() | {f"{folder}/{name}" for name in OWN}
    assert files_in_wheel(packages.wheel).keys() == expected


def test_what_is_not_python_is_there(packages: Packages) -> None:
    """By name and number, because the test above believes the tree."""
    names = files_in_wheel(packages.wheel)
    assert "windlass/py.typed" in names
    assert "windlass_probe/__init__.py" in names
    endings = [Path(name).suffix for name in names]
    assert endings.count(".lua") >= 30
    assert endings.count(".sql") >= 18
    of_pages = {".css", ".html", ".js", ".json", ".svg", ".ts"}
    assert set(endings) == {".py", ".lua", ".sql", ".typed", ".txt", "", *of_pages}
    assert {
        "windlass/dashboard/static/index.html",
        "windlass/dashboard/static/login.js",
    } <= names.keys()


def test_the_sdist_has_what_a_wheel_is_built_from(packages: Packages) -> None:
    expected = {f"src/{name}" for name in source_files()}
    extra = {".gitignore", "CHANGELOG.md", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml"}
    assert files_in_sdist(packages.sdist) == expected | extra


def test_the_sdist_makes_the_same_wheel(packages: Packages, tmp_path: Path) -> None:
    again = build_again(packages.sdist, tmp_path)
    assert again.name == packages.wheel.name
    assert again.read_bytes() == packages.wheel.read_bytes()


def test_the_metadata_says_what_is_needed(packages: Packages) -> None:
    said = metadata(packages.wheel)
    assert said["Name"] == "windlass-queue"
    assert said["Version"] == DECLARED["version"]
    assert said["Requires-Python"] == ">=3.11"
    assert said["License-Expression"] == "MIT"
    assert said.get_all("Provides-Extra") == sorted(DECLARED["optional-dependencies"])
    always = {need for need in said.get_all("Requires-Dist", []) if "extra ==" not in need}
    assert always == {
        *("apsw>=3.51.3", "click>=8.1", "msgspec>=0.22", "rich>=13.7"),
        "tzdata; sys_platform == 'win32'",
    }
    assert {
        "hiredis>=3; extra == 'redis'",
        "psycopg[binary]>=3.2; extra == 'postgres'",
        "redis>=5; extra == 'redis'",
    } <= set(said.get_all("Requires-Dist", []))


def test_it_stays_small(packages: Packages) -> None:
    assert sum(files_in_wheel(packages.wheel).values()) <= MOST_OWN_BYTES
