"""A real worker: spans of its child process, in one tree with the span of the producer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.variants import fresh_url
from tests.telemetry.otel.collector import Collector, span_id, trace_id
from tests.telemetry.otel.traced_app import TARGET
from tests.worker.yard import Worker, until
from windlass import State, Windlass
from windlass.telemetry.otel import instrument
from windlass.worker.options import WorkerOptions

MODULE = "tests.telemetry.otel.traced_app"


@pytest.fixture(
    params=[
        "sqlite-file",
        pytest.param("redis", marks=pytest.mark.slow),
        pytest.param("postgres", marks=pytest.mark.slow),
    ]
)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return fresh_url(request.param, tmp_path)


@pytest.fixture
def worker(url: str, tmp_path: Path) -> Iterator[Worker]:
    options = WorkerOptions(app=f"{MODULE}:app", processes=1, slots=2)
    environment = {"WINDLASS_URL": url, TARGET: str(tmp_path / "spans.jsonl")}
    worker = Worker(options, environment, tmp_path / "worker.log")
    yield worker
    worker.destroy()


def test_the_attempts_of_a_worker_are_in_the_trace_of_the_producer(
    url: str, worker: Worker, tmp_path: Path
) -> None:
    collector = Collector()
    with Windlass(url) as producer:
        instrument(producer, collector.tracers)
        with collector.tracer.start_as_current_span("POST /orders"):
            job = producer.task_named(f"{MODULE}.charge").enqueue(7)
        job.result(timeout=20)
        until(lambda: producer.stats().jobs.get(State.SUCCEEDED) == 2, "the end of both jobs")
    assert worker.stop() == 0, worker.log()
    spans = read_spans(tmp_path / "spans.jsonl")
    enqueue = collector.only("enqueue default")
    assert {one["context"]["trace_id"] for one in spans} == {f"0x{trace_id(enqueue):032x}"}
    charge = [one for one in spans if one["name"] == f"run {MODULE}.charge"]
    assert [one["parent_id"] for one in charge] == [f"0x{span_id(enqueue):016x}"] * 2
    assert links_of(charge[1]) == [id_of(charge[0])]
    banks = [one for one in spans if one["name"] == "bank"]
    assert [one["parent_id"] for one in banks] == [id_of(one) for one in charge]
    (second,) = [one for one in spans if one["name"] == "enqueue default"]
    assert second["parent_id"] == id_of(charge[1])
    confirm = [one for one in spans if one["name"] == f"run {MODULE}.confirm"]
    assert [one["parent_id"] for one in confirm] == [id_of(second)] * 2
    assert [links_of(one) for one in confirm] == [[], [id_of(confirm[0])]]
    assert len(spans) == 7
    assert "tracing failed" not in worker.log()


def read_spans(path: Path) -> list[dict[str, Any]]:
    """The spans of the file by their start."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return sorted(map(json.loads, lines), key=lambda span: str(span["start_time"]))


def id_of(span: dict[str, Any]) -> str:
    found: str = span["context"]["span_id"]
    return found


def links_of(span: dict[str, Any]) -> list[str]:
    return [link["context"]["span_id"] for link in span["links"]]
