"""The guide to workers in other languages can be followed, and names what the protocol has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, read
from tests.docs.transcript import Terminal, needs
from tests.redis_server import free_port
from windlass.engine.contract import MAX_PASSED_OVER, UNKNOWN_NONCE_MS
from windlass.http.worker_protocol import messages

PAGE = DOCS / "guides" / "other-languages.md"


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path, {"8155": str(free_port())})
    yield terminal
    terminal.close()


@pytest.mark.slow
@needs("curl", "jq")
def test_the_page_can_be_followed(terminal: Terminal) -> None:
    terminal.follow_page(PAGE)


def rows_of(heading: str) -> dict[str, str]:
    """The first two columns of the table after a heading."""
    table = read(PAGE).partition(f"{heading} |")[2].partition("\n\n")[0]
    return dict(re.findall(r"^\| (`.+?) \| (.+?) \|", table, re.MULTILINE))


def names_in(text: str) -> set[str]:
    return set(re.findall(r"`(\w+)`", text))


def test_every_field_of_a_claim_is_described() -> None:
    described = set().union(*map(names_in, rows_of("| field of a claim")))
    assert described == set(messages.ClaimedJob.__struct_fields__)


def test_every_outcome_is_described_with_its_fields() -> None:
    rows = rows_of("| `outcome`")
    described = {name.strip("`"): names_in(fields) for name, fields in rows.items()}
    kinds = messages.JobReport.__args__
    assert described == {
        str(kind.__struct_config__.tag): set(kind.__struct_fields__) - {"id", "token"}
        for kind in kinds
    }


def test_the_limits_are_as_described() -> None:
    page = " ".join(read(PAGE).split())
    assert f"`limit` is at most {messages.MAX_CLAIMS}" in page
    assert f"takes up to {messages.MAX_REPORTS} reports" in page
    assert f"for at most {messages.MAX_WAIT_S} seconds" in page
    assert f"claimed more than {UNKNOWN_NONCE_MS // 1000} seconds ago" in page
    assert f"about {MAX_PASSED_OVER:,} jobs of others" in page
