"""What an instance says about its own cost."""

from __future__ import annotations

from tests.http.client import Client
from tests.http.conftest import Caller
from windlass.http.own_cost import MAX_REQUESTS, WINDOW_S, OwnCost


def test_streams_and_reads_are_counted(client: Client) -> None:
    before = client.get("/v1/server").json()
    assert (before["streams"], before["snapshot_s"], before["requests"]) == (0, None, 0)
    assert before["request_p95_s"] is None
    with client.stream("/v1/events") as stream:
        stream.next()
        client.get("/v1/stats")
        now = client.get("/v1/server").json()
    assert now["streams"] == 1
    assert now["max_streams"] == 200
    assert 0 < now["snapshot_s"] < 30
    assert now["requests"] == 3  # the server, the stream and the counts
    assert 0 < now["request_p50_s"] <= now["request_p95_s"] < 30
    assert now["cpu_s"] >= before["cpu_s"] > 0
    assert client.get("/v1/server").json()["streams"] == 0


def test_requests_that_wait_or_change_are_not_counted(client: Client) -> None:
    id = client.post("/v1/jobs", {"task": "shop.report"}).json()["id"]
    client.get(f"/v1/jobs/{id}/result?wait_s=0.01")
    assert client.get("/v1/server").json()["requests"] == 0


def test_a_viewer_may_read_it_and_a_producer_may_not(caller: Caller) -> None:
    assert caller("viewer").get("/v1/server").status_code == 200
    assert caller("producer").get("/v1/server").status_code == 403


def test_only_the_last_minute_counts_and_a_bounded_number() -> None:
    now_s = 0.0
    cost = OwnCost(clock=lambda: now_s)
    cost.add(5.0)
    now_s = WINDOW_S + 1
    assert cost.summary().number == 0
    for number in range(2 * MAX_REQUESTS):
        cost.add(number / 1000)
    summary = cost.summary()
    assert (summary.number, summary.p50_s) == (MAX_REQUESTS, 3.0)
    assert summary.p95_s == 3.9
