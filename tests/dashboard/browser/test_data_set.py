"""The views of the dashboard on a large data set.

`DASHBOARD_DATA_SET` names the folder of one that `python -m proofs dashboard-scale --keep DIR` has
made, with ten million jobs. Without it, the test makes one with some hundred thousand.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Browser, expect

from tests.dashboard.backlog import Backlog, fill, fill_rare, record_runs
from tests.dashboard.browser.visit import Visit, visiting
from tests.dashboard.data_set import VARIABLE, DataSet, Notes
from tests.http.server_process import ServerProcess
from windlass import Windlass

pytestmark = pytest.mark.slow

FINISHED, READY = 200_000, 50_000
#: Views with the beginning of their title.
VIEWS: Final = {
    "": "Overview",
    "queues": "Queues",
    "jobs": "Jobs",
    "jobs?state=succeeded&queue=mail": "Jobs",
    "jobs?task=shop.unknown": "Jobs",
    "dead": "Dead",
    "workers": "Workers",
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataSet]:
    folder = os.environ.get(VARIABLE)
    if folder is not None:
        data = DataSet.open(Path(folder))
    else:
        notes = Notes(engine="sqlite", finished=FINISHED, ready=READY)
        data = DataSet.make(tmp_path_factory.mktemp("data") / "set", notes)
        with Windlass(data.url) as app:
            fill_rare(app.engine)
            fill(app.engine, Backlog.of(FINISHED, READY))
            record_runs(app.engine, 100)
    yield data
    data.close()


@pytest.fixture
def visit(chromium: Browser, data: DataSet, tmp_path: Path) -> Iterator[Visit]:
    server = ServerProcess("tests.http.shop_app:app", tmp_path / "log", "--url", data.url)
    try:
        with visiting(chromium, server.url) as visit:
            yield visit
    finally:
        server.kill()


@pytest.mark.parametrize("path", VIEWS)
def test_every_view_is_shown(visit: Visit, path: str) -> None:
    visit.open(path, VIEWS[path])
    expect(visit.page.locator("#banner")).to_be_empty()


def test_counts_are_those_of_the_data_set(visit: Visit, data: DataSet) -> None:
    whole = Backlog.of(data.notes.finished, data.notes.ready)
    visit.open("", "Overview")
    for number in (whole.ready, whole.dead):
        expect(visit.page.locator("#main")).to_contain_text(f"{number:,}")


def test_the_next_pages_of_finished_jobs(visit: Visit) -> None:
    visit.open("jobs?state=succeeded", "Jobs")
    rows = visit.page.locator("tbody tr")
    for _ in range(3):
        expect(rows).to_have_count(50)
        first = rows.first.inner_text()
        visit.page.get_by_role("link", name="Next page").click()
        expect(rows.first).not_to_have_text(first, use_inner_text=True)
