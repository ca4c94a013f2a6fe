"""The guide of alerts can be followed, and has the numbers of the code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, blocks
from tests.docs.transcript import Terminal
from windlass.alerts.delivery import PAUSES_S
from windlass.alerts.watch import ABANDONED_S, LOOK_S, TAKEOVER_S
from windlass.alerts.webhook import TIMEOUT_S
from windlass.core.alerts.rules import CALM, MAX_CALM_MS, WINDOW_MS, Alert, AlertKind
from windlass.core.alerts.states import GROWTH_MS, MAX_SUBJECTS

PAGE = DOCS / "guides" / "alerts.md"


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path)
    yield terminal
    terminal.close()


@pytest.mark.slow
def test_the_page_can_be_followed(terminal: Terminal) -> None:
    for block in blocks(PAGE):
        terminal.follow(block)


def test_every_rule_is_there() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `Alert\.(\w+)\(", text, re.MULTILINE)) == set(AlertKind)


def test_the_numbers_are_those_of_the_code() -> None:
    text = re.sub(r"\s+", " ", PAGE.read_text(encoding="utf-8"))
    for told in (
        f"watches up to {MAX_SUBJECTS} of them",
        f"at least {Alert.failure_rate(0.5).min_runs} attempts",
        f"no answer within {TIMEOUT_S:g} s",
        f"after {PAUSES_S[0]:g} s and {PAUSES_S[1]:g} s",
        f"not changed for {TAKEOVER_S:g} s",
    ):
        assert told in text, told
    assert (LOOK_S, CALM, MAX_CALM_MS, ABANDONED_S) == (10, 0.8, 60_000, 3600)
    assert "every ten seconds" in text
    assert "four fifths of the threshold" in text
    assert "at most a minute" in text
    assert "after an hour" in text
    assert GROWTH_MS == WINDOW_MS == 5 * 60_000
    assert "within five minutes" in text
