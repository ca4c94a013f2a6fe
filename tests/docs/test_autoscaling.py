"""The guide of autoscaling can be followed, and has the numbers of the code."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import DOCS
from tests.docs.transcript import Terminal, needs
from tests.redis_server import free_port
from windlass.core.queues.load import DRAIN_TARGET_S, KEEPS_UP_S
from windlass.queue_loads import WINDOW_MS
from windlass.worker.supervisor.scale_policy import BUSY, PACE_S, SCALE_PERIODS

PAGE = DOCS / "guides" / "autoscaling.md"


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path, {"web-1": socket.gethostname(), "8155": str(free_port())})
    yield terminal
    terminal.close()


@pytest.mark.slow
@needs("curl", "jq")
def test_the_page_can_be_followed(terminal: Terminal) -> None:
    terminal.follow_page(PAGE)


def test_the_numbers_are_those_of_the_code() -> None:
    text = re.sub(r"\s+", " ", PAGE.read_text(encoding="utf-8"))
    for told in (
        f"at least {BUSY:.0%} of its slots are busy".replace("%", " %"),
        f"for longer than {KEEPS_UP_S:g} s, or they are more than {KEEPS_UP_S:g} s of work",
        f"take longer than {DRAIN_TARGET_S:g} s to drain",
        f"ready x mean run / {DRAIN_TARGET_S:g} s",
        f"up to MAX, within {SCALE_PERIODS.look_s:g} s",
        f"for {SCALE_PERIODS.hold_s:g} s the busy slots",
        f"each further child takes {SCALE_PERIODS.step_s:g} s more",
        f"every {SCALE_PERIODS.look_s:g} s while its slots are busy",
        f"every {SCALE_PERIODS.rest_s:g} s while slots are free",
        f"in the last {PACE_S:g} s",
    ):
        assert told in text, told
    assert WINDOW_MS == 5 * 60_000
    assert "the last five minutes" in text
