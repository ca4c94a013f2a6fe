"""Every public name is in the reference, and every public method is told of somewhere."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from importlib import import_module

import pytest

import windlass
from tests.docs.pages import DOCS, code_in, read, table_rows
from windlass.schedules import Schedules

REFERENCE = DOCS / "reference" / "python.md"
TOLD = [name for row in table_rows(REFERENCE) for name in code_in(row[0])]
#: What a program holds in its hands.
NOUNS = [
    *(windlass.Context, windlass.Job, windlass.Queue, Schedules, windlass.Task, windlass.Windlass),
]
#: For the worker and the command line, which stand beside the public face.
INSIDE = {
    *("adecode_result", "batcher", "decode_result", "engine", "interruption", "middleware"),
    *("wrap_engine", "of"),
}


def test_every_public_name_is_in_the_reference() -> None:
    errors = {name for name in windlass.__all__ if is_error(getattr(windlass, name))}
    assert sorted(TOLD) == sorted(set(TOLD)), "each once"
    assert set(TOLD) == set(windlass.__all__) - errors


def is_error(value: object) -> bool:
    """Errors are held to their own page; what tasks raise on purpose is no error of ours."""
    return inspect.isclass(value) and value.__module__ == import_module("windlass.errors").__name__


def public(noun: type) -> Iterator[str]:
    yield from (name for name in dir(noun) if not name.startswith("_") and name not in INSIDE)


@pytest.mark.parametrize("noun", NOUNS, ids=lambda noun: noun.__name__)
def test_every_method_is_told_of(noun: type) -> None:
    pages = [page for page in DOCS.rglob("*.md") if page.parent.name not in ("decisions",)]
    words = set(re.findall(r"\w+", "\n".join(map(read, pages))))
    assert [name for name in public(noun) if name not in words] == []
