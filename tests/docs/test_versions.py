"""The page about versions matches code and package: interpreters, formats, platforms."""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache

from proofs.packages import MOST_BYTES
from tests.deploy.packages import MOST_OWN_BYTES
from tests.docs.pages import DOCS, PROJECT, code_in, prose, table_rows
from windlass.core.schedules import state, triggers
from windlass.core.serialization import envelope, frame
from windlass.engine.postgres import migrate
from windlass.engine.redis import setup
from windlass.engine.sqlite.engine import NEWEST_FORMAT

PAGE = DOCS / "versions.md"
SOURCE = PROJECT / "src"
DECLARED = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
ROWS = {row[0]: row for row in table_rows(PAGE)}
#: The form of a deprecation warning.
WARNING = re.compile(
    r"(?P<name>.+) is deprecated since windlass [\d.]+ and goes in [\d.]+: use .+\."
)
#: Features that only some systems have.
OF_SOME_SYSTEMS = re.compile(r"\b(prctl|memfd_create|flock|AF_UNIX)\b|(/proc/[\w/]+)")


@cache
def nodes() -> list[ast.AST]:
    """All syntax nodes of the source code."""
    texts = [file.read_text(encoding="utf-8") for file in SOURCE.rglob("*.py")]
    return [node for text in texts for node in ast.walk(ast.parse(text))]


def test_interpreters_are_those_of_the_package() -> None:
    told = ROWS["CPython"][1].split(", ")
    prefix = "Programming Language :: Python :: "
    versions = [text.removeprefix(prefix) for text in DECLARED["classifiers"] if prefix in text]
    assert told == [version for version in versions if version != "3 :: Only"]
    assert DECLARED["requires-python"] == f">={told[0]}"


def test_servers_and_libraries_are_those_of_the_code() -> None:
    assert ROWS["Redis"][1] == f"{'.'.join(map(str, setup.OLDEST_VERSION))} or newer"
    [apsw] = [need for need in DECLARED["dependencies"] if need.startswith("apsw")]
    assert ROWS["SQLite"][1].startswith(f"{apsw.removeprefix('apsw>=')} or newer")


def test_stored_formats_are_those_of_the_code() -> None:
    formats = {
        "a SQLite file": [NEWEST_FORMAT],
        "a namespace in Redis": [setup.FORMAT],
        "a schema in PostgreSQL": [migrate.NEWEST_FORMAT],
        "the call of a job": [envelope.VERSION, frame.VERSION],
        "a schedule": [triggers.VERSION, state.VERSION],
    }
    for name, numbers in formats.items():
        assert code_in(ROWS[name][1]) == list(map(str, numbers)), name


def test_the_bounds_of_an_installation_are_those_of_the_proof() -> None:
    told = re.search(r"at most ([\d.]+) MB for windlass, and (\d+) MB with", prose(PAGE))
    assert told is not None
    assert [float(told[1]) * 1e6, float(told[2]) * 1e6] == [MOST_OWN_BYTES, MOST_BYTES]


def test_all_that_is_deprecated_is_told_of_and_nothing_else() -> None:
    """Each deprecation warning in the code has the documented form, and a row."""
    warnings = [node for node in nodes() if warns_of_deprecation(node)]
    matches = [WARNING.fullmatch(text_of(node)) for node in warnings]
    assert None not in matches
    names = {match["name"] for match in matches if match is not None}
    heading = "| deprecated | since | goes in | use |"
    table = prose(PAGE).partition(heading)[2].partition("\n\n")[0]
    assert {code for line in table.splitlines() for code in code_in(line)[:1]} == names
    assert ("Nothing is deprecated today." in prose(PAGE)) == (not names)


def warns_of_deprecation(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and any(
        isinstance(argument, ast.Name) and "DeprecationWarning" in argument.id
        for argument in (*node.args, *(keyword.value for keyword in node.keywords))
    )


def text_of(node: ast.AST) -> str:
    assert isinstance(node, ast.Call)
    return str(ast.literal_eval(node.args[0]))


def test_the_form_of_a_warning_is_that_of_the_page() -> None:
    shown = next(line for line in PAGE.read_text().splitlines() if "DeprecationWarning: " in line)
    assert WARNING.fullmatch(shown.partition("DeprecationWarning: ")[2])


def test_what_only_some_systems_have_is_told_of() -> None:
    """Features are found by name in code, or by a path in a text that is not a docstring."""
    used = {match.group() for node in nodes() for match in OF_SOME_SYSTEMS.finditer(word_of(node))}
    told = {code for row in table_rows(PAGE) if len(row) == 3 for code in code_in(row[0])}
    assert {short(name) for name in used} - {"/proc"} <= {short(name) for name in told}
    assert {"prctl", "memfd_create", "flock", "AF_UNIX"} <= used


def short(name: str) -> str:
    """The path without the process id."""
    return re.sub(r"^/proc/(PID|self)", "/proc", name).rstrip("/")


def word_of(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value if "\n" not in node.value else ""
    if isinstance(node, ast.JoinedStr):
        return ast.unparse(node).replace("{pid}/", "")
    return ""


def test_untested_systems_are_not_claimed() -> None:
    systems = [text for text in DECLARED["classifiers"] if text.startswith("Operating System")]
    assert systems == ["Operating System :: MacOS", "Operating System :: POSIX :: Linux"]
    assert "not tested" in ROWS["evidence"][2]
    assert "simulate" in ROWS["evidence"][3]
