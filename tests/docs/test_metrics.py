"""The guide of metrics can be followed, and its tables are those of the code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.docs.pages import DOCS, PROJECT, read
from tests.docs.transcript import Terminal, needs
from tests.redis_server import free_port
from windlass.core.history import BOUNDS_S
from windlass.telemetry.metric_table import TABLE, Metric, Place

PAGE = DOCS / "guides" / "metrics.md"


def row_of(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"| `{metric.name}` | {metric.kind} | {labels} | {metric.text} |"


def rows(section: str) -> list[str]:
    """The rows about series in a section of the page."""
    text = read(PAGE).partition(f"## {section}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\| `windlass_.*$", text, re.MULTILINE)


def test_the_page_lists_every_series() -> None:
    worker = [row_of(one) for one in TABLE if one.place is not Place.SERVE]
    server = [row_of(one) for one in TABLE if one.place is not Place.WORKER]
    assert rows("A worker") == worker
    assert rows("Queues, schedules and the fleet") == server


def test_the_page_lists_the_buckets() -> None:
    *first, last = (f"{bound:g}" for bound in BOUNDS_S)
    assert f"{', '.join(first)} and {last} seconds" in read(PAGE).replace("\n", " ")


def test_the_alerts_of_the_page_exist() -> None:
    file = PROJECT / "examples" / "prometheus" / "windlass.rules.yml"
    groups = yaml.safe_load(file.read_text())["groups"]
    known = {rule.get("alert") for group in groups for rule in group["rules"]}
    told = set(re.findall(r"^\| `(Windlass\w+)`", read(PAGE), re.MULTILINE))
    assert told
    assert told <= known


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path, {"8155": str(free_port()), "9464": str(free_port())})
    yield terminal
    terminal.close()


@pytest.mark.slow
@needs("curl")
def test_the_page_can_be_followed(terminal: Terminal) -> None:
    terminal.follow_page(PAGE)
