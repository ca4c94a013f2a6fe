"""The trace of a request continues in its jobs, whether the app is instrumented or not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.client import Client
from tests.telemetry.otel.collector import (
    Collector,
    attributes,
    parent_id,
    span_id,
    trace_id,
)
from windlass import Windlass
from windlass.core.headers import MAX_HEADERS
from windlass.telemetry.otel import instrument
from windlass.telemetry.otel.trace_context import LINKS, MODE_HEADER

SEND: dict[str, Any] = {"task": "shop.mail.send", "kwargs": {"to": "ann@example.com"}}
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE = 0x0AF7651916CD43DD8448EB211C80319C
SPAN = 0xB7AD6B7169203331
REQUEST = {"traceparent": PARENT, "tracestate": "vendor=1"}


@pytest.fixture
def collector(app: Windlass) -> Collector:
    """Instruments the app."""
    collector = Collector()
    instrument(app, collector.tracers)
    return collector


def headers_of(app: Windlass, job_id: str) -> dict[str, str]:
    """The headers of a job, without that of its caller."""
    found = app.job(job_id).info().headers
    return {name: value for name, value in found.items() if name != "windlass-actor"}


def send(client: Client, app: Windlass, request: dict[str, str], **body: Any) -> dict[str, str]:
    answer = client.post("/v1/jobs", {**SEND, **body}, headers=request)
    assert answer.status_code == 201, answer.text
    return headers_of(app, answer.json()["id"])


# -------------------------------------------------------------------------------- not instrumented


def test_the_headers_of_the_request_go_into_the_job(client: Client, app: Windlass) -> None:
    assert send(client, app, REQUEST, headers={"user": "ann"}) == {"user": "ann", **REQUEST}
    answer = client.post("/v1/jobs/bulk", {"jobs": [SEND, SEND]}, headers=REQUEST)
    for item in answer.json()["jobs"]:
        assert headers_of(app, item["job"]["id"]) == REQUEST


def test_a_header_in_the_body_stays(client: Client, app: Windlass) -> None:
    own = {"traceparent": PARENT.replace("b7", "c8")}
    assert send(client, app, REQUEST, headers=own) == own


@pytest.mark.parametrize(
    "value", ["", "garbage", PARENT.upper(), f"ff{PARENT[2:]}", f"{PARENT}-more"]
)
def test_an_invalid_trace_is_ignored(client: Client, app: Windlass, value: str) -> None:
    assert send(client, app, {**REQUEST, "traceparent": value}) == {}


def test_an_invalid_state_is_ignored(client: Client, app: Windlass) -> None:
    assert send(client, app, {**REQUEST, "tracestate": "x" * 513}) == {"traceparent": PARENT}


def test_headers_without_room_stay_as_they_are(client: Client, app: Windlass) -> None:
    own = {f"h{number}": "" for number in range(MAX_HEADERS - 1)}  # and that of the caller
    assert send(client, app, REQUEST, headers=own) == own


# ------------------------------------------------------------------------------------ instrumented


def test_the_enqueue_continues_the_trace_of_the_request(
    collector: Collector, client: Client, app: Windlass
) -> None:
    headers = send(client, app, REQUEST)
    enqueue = collector.only("enqueue mail")
    assert (trace_id(enqueue), parent_id(enqueue)) == (TRACE, SPAN)
    assert headers["traceparent"].split("-")[1:3] == [PARENT[3:35], f"{span_id(enqueue):016x}"]
    assert headers["tracestate"] == "vendor=1"
    assert MODE_HEADER not in headers


def test_a_request_without_a_trace_begins_one(
    collector: Collector, client: Client, app: Windlass
) -> None:
    headers = send(client, app, {})
    enqueue = collector.only("enqueue mail")
    assert parent_id(enqueue) is None
    assert f"{span_id(enqueue):016x}" in headers["traceparent"]


def test_a_bulk_has_one_span(collector: Collector, client: Client, app: Windlass) -> None:
    answer = client.post("/v1/jobs/bulk", {"jobs": [SEND] * 3}, headers=REQUEST)
    bulk = collector.only("enqueue mail")
    assert collector.spans == [bulk]
    assert (trace_id(bulk), parent_id(bulk)) == (TRACE, SPAN)
    assert attributes(bulk)["messaging.batch.message_count"] == 3
    for item in answer.json()["jobs"]:
        headers = headers_of(app, item["job"]["id"])
        assert f"{span_id(bulk):016x}" in headers["traceparent"]
        assert headers[MODE_HEADER] == LINKS


def test_a_job_that_is_refused_gives_the_span_its_error(
    collector: Collector, client: Client, app: Windlass
) -> None:
    key = {"Idempotency-Key": "k-1"}
    assert client.post("/v1/jobs", SEND, headers=key).status_code == 201
    other = {**SEND, "kwargs": {"to": "bob@example.com"}}
    assert client.post("/v1/jobs", other, headers=key).status_code >= 400
    *_, refused = collector.named("enqueue mail")
    assert attributes(refused)["error.type"] == "windlass.errors.IdempotencyConflict"
