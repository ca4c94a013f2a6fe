"""Every error is in the reference, with its base classes and attributes."""

from __future__ import annotations

import inspect

import pytest

from tests.docs.pages import DOCS, code_in, table_rows
from windlass import errors

REFERENCE = DOCS / "reference" / "errors.md"
ROWS = {code_in(row[0])[0]: row for row in table_rows(REFERENCE)}
CLASSES = {
    name: kind
    for name, kind in inspect.getmembers(errors, inspect.isclass)
    if kind.__module__ == errors.__name__
}


def test_all_errors_and_no_others_are_there() -> None:
    assert set(ROWS) == set(CLASSES)


def test_ancestors_are_true() -> None:
    for name, kind in CLASSES.items():
        assert code_in(ROWS[name][1]) == [base.__name__ for base in kind.__bases__], name


def test_each_says_when_and_what_to_do() -> None:
    for name, row in ROWS.items():
        assert len(row) == 4, name
        assert all(row), name


@pytest.mark.parametrize("name", CLASSES)
def test_facts_are_named(name: str) -> None:
    """Attributes of an error, except its message and inherited ones, are in the reference."""
    kind = CLASSES[name]
    inherited = {fact for base in kind.__mro__[1:] for fact in facts_of(base)}
    # Callers do not pass `seconds`; the message contains the waiting time.
    assert facts_of(kind) - inherited - {"seconds"} <= set(code_in(ROWS[name][2]))


def facts_of(kind: type) -> set[str]:
    """The attributes that the class itself takes or declares, except its message."""
    own = vars(kind).get("__init__")
    taken = inspect.signature(own).parameters if inspect.isfunction(own) else {}
    return {*taken, *inspect.get_annotations(kind)} - {"self", "message"}
