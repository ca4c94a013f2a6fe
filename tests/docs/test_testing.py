"""All names of `windlass.testing` are in the reference, with their parameters."""

from __future__ import annotations

import inspect
import re

import pytest

from tests.docs.pages import DOCS, code_in, read, table_rows
from windlass import JobInfo, testing

REFERENCE = DOCS / "reference" / "testing.md"
#: Attributes that the constructor sets.
FIELDS = {"Sandbox": {"app", "faults"}, "Faults": {"engine"}}


CLASSES = [name for name in testing.__all__ if inspect.isclass(getattr(testing, name))]


def test_functions_are_told_of() -> None:
    functions = {f"{name}()" for name in testing.__all__ if name not in CLASSES}
    assert {f"windlass.testing.{name}" for name in functions} <= set(code_in(read(REFERENCE)))


@pytest.mark.parametrize("name", CLASSES)
def test_members_are_told_of(name: str) -> None:
    kind = getattr(testing, name)
    inherited = {member for base in (JobInfo, tuple) for member in dir(base)}
    members = {member for member in dir(kind) if member[0] != "_"} - inherited
    table = read(REFERENCE).split(f"| member of `{name}` |")[1].split("\n\n")[0]
    rows = [row for row in table_rows(REFERENCE) if row[0] in table]
    told = {re.split(r"\W", code)[0] for row in rows for code in code_in(row[0])}
    assert told == members | FIELDS.get(name, set())


@pytest.mark.parametrize("name", ["Sandbox", "Faults"])
def test_parameters_are_told_of(name: str) -> None:
    told = {code for row in table_rows(REFERENCE) for code in code_in(row[0]) if "(" in code}
    told |= {code for code in code_in(read(REFERENCE)) if code.startswith(f"{name}(")}
    kind = getattr(testing, name)
    for member, value in [(name, kind), *inspect.getmembers(kind, inspect.isfunction)]:
        if not member.startswith("_"):
            assert _written(member, value) in told


def _written(name: str, function: object) -> str:
    """The call as the reference writes it: without annotations."""
    assert callable(function)
    signature = inspect.signature(function)
    plain = [
        one.replace(annotation=one.empty)
        for one in signature.parameters.values()
        if one.name != "self"
    ]
    text = str(signature.replace(parameters=plain, return_annotation=signature.empty))
    return name + text.replace("10000", "10_000").replace("'", '"')
