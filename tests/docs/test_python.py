"""Every public name is in the reference, and no others are."""

from __future__ import annotations

import inspect

import windlass
from tests.docs.pages import DOCS, code_in, prose, table_rows
from windlass import errors, testing

REFERENCE = DOCS / "reference"
TOLD = [name for row in table_rows(REFERENCE / "python.md") for name in code_in(row[0])]


def test_every_public_name_is_in_the_reference() -> None:
    """Errors have their own page; exceptions for tasks to raise are not errors."""
    own = {name for name in windlass.__all__ if is_error(getattr(windlass, name))}
    assert set(TOLD) == set(windlass.__all__) - own
    assert len(TOLD) == len(set(TOLD)), "each once"


def is_error(value: object) -> bool:
    return inspect.isclass(value) and value.__module__ == errors.__name__


def test_every_name_for_tests_is_in_its_reference() -> None:
    told = " ".join(code_in(prose(REFERENCE / "testing.md")))
    assert [name for name in testing.__all__ if name not in told] == []
