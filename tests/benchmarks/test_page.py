"""The page, its charts and the table of the README are made from stored results alone."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from benchmarks.page import README
from benchmarks.peers.charts import Bar, draw
from benchmarks.peers.measures import MEASURES
from benchmarks.peers.page import (
    CHARTS,
    FOLDER,
    PAGE,
    POSTGRES_PAGE,
    POSTGRES_RESULTS,
    RESULTS,
    SECTIONS,
    chart,
    page,
)
from benchmarks.peers.results import read_results
from benchmarks.peers.summary import BEGIN, END, summary
from tests.benchmarks.sample import sample

_SVG = "{http://www.w3.org/2000/svg}"


def row_of(text: str, beginning: str) -> list[str]:
    [line] = [line for line in text.splitlines() if line.startswith(f"| {beginning} |")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def section(name: str) -> str:
    return page(sample()).split(f"## {name}\n")[1].split("\n## ")[0]


def test_cells_have_the_median_and_the_range() -> None:
    assert row_of(section("Enqueue"), "Bullmq") == ["Bullmq", "4,500 (4,000 .. 5,000)"]


def test_one_value_has_no_range() -> None:
    assert row_of(section("kill -9"), "Bullmq")[1] == "3"


def test_what_was_not_measured_has_no_section_and_no_row() -> None:
    assert "## Pick-up" not in page(sample())
    assert "Sidekiq" not in section("Drain")


def test_targets_show_what_was_reached() -> None:
    cells = row_of(section("Targets"), "drain, Redis, one process, against BullMQ")
    assert cells[1:] == ["at least 3", "4.00", "yes", "24,000", "6,000 (Bullmq)"]
    assert row_of(section("Targets"), "bulk, Redis, against Sidekiq")[2] == "not measured"


def test_the_share_of_the_bare_loop() -> None:
    assert "| Windlass-Redis | enqueue one by one | 3,000 | 4,000 | 75% |" in section("The limit")


def test_losses_and_missing_systems_are_named() -> None:
    assert "4,500 (Bullmq)" in section("Where windlass is behind")
    assert "Celery prefork: `pip` failed: no network" in section("Left out")


def test_small_sizes_are_marked() -> None:
    results = sample()
    assert "Do not cite" not in page(results)
    results.is_quick = True
    assert "Do not cite" in page(results)


def test_a_chart_has_a_bar_per_system_best_first() -> None:
    picture = ElementTree.fromstring(chart(sample(), "enqueue"))
    labels = [text.text for text in picture.iter(f"{_SVG}text")]
    names = [label for label in labels if label in ("Windlass-Redis", "Bullmq", "Sidekiq")]
    assert names == ["Bullmq", "Sidekiq", "Windlass-Redis"]
    assert len([one for one in picture.iter(f"{_SVG}rect") if one.get("class") == "ours"]) == 1


def test_the_length_of_a_bar_is_its_value() -> None:
    bars = [Bar("a", 100.0, 90.0, 100.0, False), Bar("b", 50.0, 50.0, 50.0, False)]
    widths = re.findall(r'class="bar".* width="([\d.]+)"', draw("t", "n", bars))
    assert float(widths[0]) == 2 * float(widths[1])


def test_the_readme_table_has_the_best_kind_of_drain() -> None:
    assert row_of(summary(sample()), "**Windlass-Redis**")[3] == "24,000"


def test_sections_and_charts_name_measures() -> None:
    named = {name for names, _ in SECTIONS.values() for name in names}
    named |= {name for _, _, names in CHARTS.values() for name in names}
    assert named <= set(MEASURES)


def test_the_published_page_is_that_of_the_stored_results() -> None:
    results = read_results(RESULTS)
    assert PAGE.read_text(encoding="utf-8") == page(results)
    for name in CHARTS:
        assert FOLDER.joinpath(f"{name}.svg").read_text(encoding="utf-8") == chart(results, name)
    shown = README.read_text(encoding="utf-8").split(BEGIN)[1].split(END)[0]
    assert results.is_quick or shown == summary(results)


def test_the_page_of_postgres_has_its_targets_and_no_charts() -> None:
    results = read_results(POSTGRES_RESULTS)
    text = POSTGRES_PAGE.read_text(encoding="utf-8")
    assert text == page(results)
    assert "# Benchmarks on PostgreSQL" in text
    assert "old snapshot: bulk, against the best" in text
    assert "Redis, against" not in text
    assert ".svg" not in text
