"""Metrics as text, read back with the parsers of the library."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable

from prometheus_client import Metric
from prometheus_client.openmetrics import parser as openmetrics_parser
from prometheus_client.parser import text_string_to_metric_families as read_plain

from windlass.core.history import BOUNDS_S
from windlass.telemetry import metric_table as table
from windlass.telemetry.exposition import OPENMETRICS, PLAIN, render
from windlass.telemetry.metric_table import Family, Histogram

#: The library does not annotate its function.
read_openmetrics: Callable[[str], Iterable[Metric]] = (
    openmetrics_parser.text_string_to_metric_families
)
FAMILIES = [
    Family(table.UP, (((), 1.0),)),
    Family(table.JOBS_ENQUEUED, ((("mail", 'odd "name"\n'), 3.0),)),
    Family(
        table.JOB_WAIT,
        ((("mail",), Histogram(BOUNDS_S, (2, *[0] * (len(BOUNDS_S) - 1), 1), 3601.5)),),
    ),
]


def test_the_plain_format_is_the_default() -> None:
    media_type, text = render(FAMILIES, "")
    assert media_type == PLAIN
    families = {family.name: family for family in read_plain(text.decode())}
    (sample,) = families["windlass_jobs_enqueued"].samples
    assert sample.name == "windlass_jobs_enqueued_total"
    assert sample.labels == {"queue": "mail", "task": 'odd "name"\n'}
    assert families["windlass_up"].documentation == table.UP.text


def test_openmetrics_is_sent_if_asked_for() -> None:
    media_type, text = render(FAMILIES, "application/openmetrics-text;version=1.0.0,text/plain")
    assert media_type.startswith(OPENMETRICS)
    assert {family.name for family in read_openmetrics(text.decode())} == {
        "windlass_up",
        "windlass_jobs_enqueued",
        "windlass_job_wait_seconds",
    }


def test_buckets_are_cumulative() -> None:
    _, text = render(FAMILIES, "")
    (family,) = (one for one in read_plain(text.decode()) if one.type == "histogram")
    buckets = [one for one in family.samples if one.name.endswith("_bucket")]
    assert [float(one.labels["le"]) for one in buckets] == [*BOUNDS_S, float("inf")]
    assert [one.value for one in buckets] == [2.0] * len(BOUNDS_S) + [3.0]
    values = {one.name: one.value for one in family.samples}
    assert values["windlass_job_wait_seconds_count"] == 3
    assert values["windlass_job_wait_seconds_sum"] == 3601.5


def test_a_missing_library_is_named_with_its_extra() -> None:
    code = (
        "import sys; sys.modules['prometheus_client'] = None; import windlass.telemetry.exposition"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "SettingError: Metrics need the package prometheus_client" in ran.stderr
    assert "pip install 'windlass-queue[prometheus]'" in ran.stderr
