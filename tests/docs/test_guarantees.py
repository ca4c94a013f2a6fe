"""Promises point to what shows them, and the words are those of the code."""

from __future__ import annotations

import re

import pytest

from proofs.__main__ import PROOFS
from tests.docs.pages import DOCS, PROJECT, code_in, links, read, table_rows
from windlass import Hold, State

GUARANTEES = DOCS / "guarantees.md"
GLOSSARY = DOCS / "glossary.md"
PROMISES = [row for row in table_rows(GUARANTEES) if row[0].startswith("**")]
PLACES = ("../proofs/", "../tests/", "../src/windlass/testing/contract/test_")


@pytest.mark.parametrize("row", PROMISES, ids=lambda row: row[0].split("**")[1])
def test_a_promise_points_to_what_shows_it(row: list[str]) -> None:
    shown = re.findall(r"\[(?:proof|test)\]\(([^)]+)\)", row[1])
    assert shown
    assert all(link.startswith(PLACES) for link in shown)


def test_the_promises_are_read() -> None:
    assert len(PROMISES) > 10


def test_every_proof_is_pointed_to() -> None:
    """A proof that no page tells of would be run by nobody but us."""
    pages = (GUARANTEES, PROJECT / "README.md")
    linked = {link.split("/")[-1] for page in pages for link in links(page)}
    modules = {f"{prove.__module__.split('.')[-1]}.py" for prove in PROOFS.values()}
    assert modules - linked == set()


def test_every_state_and_hold_is_in_the_glossary() -> None:
    told = [code_in(row[0])[0] for row in table_rows(GLOSSARY) if code_in(row[0])]
    assert told == [str(state) for state in State]
    assert {str(hold) for hold in Hold} <= set(code_in(read(GLOSSARY)))
