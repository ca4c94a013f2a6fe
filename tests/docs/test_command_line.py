"""Every command and every option is in the reference."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tests.cli.shell import all_commands
from tests.docs.pages import DOCS, all_pages, blocks, code_in, prose, read
from windlass import JobInfo, Windlass
from windlass.cli.support import output
from windlass.cli.support.records import describe

REFERENCE = DOCS / "reference" / "command-line.md"
#: Pages with commands that are mistyped on purpose.
MISTAKES = DOCS / "reference" / "mistakes.md"
#: The part of the page about each command of the first level, by its heading.
SECTIONS = dict(
    section.split("\n", 1) for section in re.split(r"^## ", read(REFERENCE), flags=re.MULTILINE)[1:]
)
ALL = all_commands()


def section_of(path: str) -> str:
    """The section of `windlass dead retry` is `windlass dead`."""
    return SECTIONS[" ".join(path.split()[:2])]


@pytest.mark.parametrize("path", ALL)
def test_a_command_is_told_of(path: str) -> None:
    assert path in SECTIONS or any(code.startswith(path) for code in code_in(section_of(path)))


@pytest.mark.parametrize("path", ALL)
def test_its_options_are_told_of(path: str) -> None:
    options = {
        name
        for parameter in ALL[path].params
        if isinstance(parameter, click.Option)
        for name in (*parameter.opts, *parameter.secondary_opts)
    }
    assert options <= set(code_in(section_of(path)))


def test_no_other_command_is_told_of() -> None:
    assert set(SECTIONS) <= set(ALL)
    told = {code for section in SECTIONS.values() for code in code_in(section)}
    named = {match[0] for code in told if (match := re.match(r"windlass( [a-z][a-z-]*)+", code))}
    assert named
    assert named <= set(ALL)


def test_no_other_option_is_told_of() -> None:
    options = {
        name
        for command in ALL.values()
        for parameter in command.params
        for name in parameter.opts
        if name.startswith("-")
    }
    told = {code for section in SECTIONS.values() for code in code_in(section)}
    assert {code for code in told if re.fullmatch(r"--?[a-z]+", code)} <= options | {"--help", "-h"}


def typed(page: Path) -> Iterator[str]:
    """The commands that a page tells its reader to type."""
    yield from (code for code in code_in(prose(page)) if code.startswith("windlass "))
    shells = [block.text for block in blocks(page) if block.language in ("console", "sh")]
    lines = [line.removeprefix("$ ") for text in shells for line in text.splitlines()]
    yield from (line.partition(" #")[0] for line in lines if line.startswith("windlass "))


@pytest.mark.parametrize(
    "page", [page for page in all_pages() if page != MISTAKES], ids=lambda page: page.stem
)
def test_no_page_tells_of_a_command_or_an_option_that_is_not_there(page: Path) -> None:
    for line in typed(page):
        words = re.match(r"windlass(?: [a-z][a-z-]*)*", line)
        assert words, line
        path = next((path for path in prefixes(words[0]) if path in ALL), "")
        options = {name for parameter in ALL[path].params for name in parameter.opts}
        told = set(re.findall(r"(?<=\s)--?[a-z][a-z-]*", re.sub("'[^']*'", "", line)))
        assert path == words[0] or not isinstance(ALL[path], click.Group), line
        assert told <= options | {"--help", "-h"}, line


def prefixes(words: str) -> Iterator[str]:
    """`windlass job show a b`, then without its last word, and so on."""
    while words:
        yield words
        words = words.rpartition(" ")[0]


def test_fields_of_a_job_are_told_of(tmp_path: Path) -> None:
    with Windlass(f"sqlite:///{tmp_path / 'jobs.db'}") as app:
        job_id = app.task(name="nothing")(nothing).enqueue().id
        [record] = app.engine.get([job_id])
    assert record is not None
    told = re.findall(r"^\| ((?:`[a-z_]+`(?:, )?)+) \|", SECTIONS["windlass job"], re.MULTILINE)
    fields = {field for cell in told for field in code_in(cell)}
    assert fields == describe(app, record).keys() - set(JobInfo.__struct_fields__)


def nothing() -> None:
    """A task for the described job."""


def test_exit_codes_are_told_of() -> None:
    text = read(REFERENCE)
    for code in (0, output.FAILED, output.USAGE, output.ENGINE_AWAY):
        assert f"| {code} | " in text
