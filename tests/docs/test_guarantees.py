"""Guarantees link to their evidence, and the glossary matches the code."""

from __future__ import annotations

import ast
import re

import pytest

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
    """A proof without a link would stay unknown to users."""
    pages = (GUARANTEES, PROJECT / "README.md")
    linked = {link.split("/")[-1] for page in pages for link in links(page)}
    # Read and not imported: some proofs change what they prove, in a process of their own.
    registry = ast.parse((PROJECT / "proofs" / "__main__.py").read_text(encoding="utf-8"))
    imports = [node for node in registry.body if isinstance(node, ast.ImportFrom)]
    proofs = [alias.name for node in imports if node.module == "proofs" for alias in node.names]
    assert len(proofs) > 10
    assert [name for name in proofs if f"{name}.py" not in linked] == []


def test_every_state_and_hold_is_in_the_glossary() -> None:
    told = [code_in(row[0])[0] for row in table_rows(GLOSSARY) if code_in(row[0])]
    assert told == [str(state) for state in State]
    assert {str(hold) for hold in Hold} <= set(code_in(read(GLOSSARY)))
