"""What an instance counts of the runs of remote workers, and when it records that."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.http.client import Client, LoopThread
from tests.http.worker_protocol.conftest import ENGINES, Instance
from tests.http.worker_protocol.remote import Remote, add_remote_tasks, outcome
from tests.worker.recount import Ends, recorded, times
from tests.worker.yard import until
from windlass import Windlass
from windlass.core.history import Summary, add_counts
from windlass.http import WindlassApi, create_api, maintenance

ERROR = {"type": "OSError", "message": "no"}


each_end = pytest.mark.parametrize(
    ("end", "name"),
    [
        ({"kind": "succeeded", "result": 1}, "succeeded"),
        ({"kind": "failed", "error": ERROR}, "retried"),
        ({"kind": "failed", "error": ERROR, "rejected": True}, "dead"),
        ({"kind": "snoozed", "delay_s": 60}, "snoozed"),
        ({"kind": "released", "started": True}, "released"),
    ],
)


def counted(*instances: WindlassApi) -> dict[str, int]:
    """The ends that instances have counted in all."""
    totals = [one for api in instances for one in api.gateway.measures.snapshot().measures]
    summary = Summary(add_counts(one.counts for one in totals))
    return {name: number for name, number in summary.outcomes.items() if number}


@pytest.fixture
def other(engine_url: str, loop: LoopThread) -> Iterator[WindlassApi]:
    """A second instance, with an engine object of its own."""
    with Windlass(engine_url) as app:
        add_remote_tasks(app)
        api = create_api(app)
        running = api.running()
        loop.run(running.__aenter__())
        yield api
        loop.run(running.__aexit__(None, None, None))


@each_end
@pytest.mark.parametrize("engine_name", ENGINES)
def test_a_report_that_is_repeated_through_another_instance_counts_once(
    app: Windlass,
    api: WindlassApi,
    other: WindlassApi,
    remote: Remote,
    loop: LoopThread,
    end: dict[str, Any],
    name: str,
) -> None:
    """The answer of the first instance is lost, and then that of the second one. One of both has
    made the claim."""
    there = remote.through(Client(other, loop))
    for first, second in ((remote, there), (there, remote)):
        app.tasks["add"].enqueue(1)
        report = outcome(remote.take(), **end)
        assert [one.finish(report) for one in (first, second, first)] == [["ok"]] * 3
        app.engine.cancel([report["id"]])  # unless it has ended
    assert counted(api, other) == {name: 2}
    assert counted(api) == counted(other) == {name: 1}


@each_end
def test_a_turn_that_is_repeated_through_another_instance_counts_once(
    app: Windlass,
    api: WindlassApi,
    other: WindlassApi,
    remote: Remote,
    loop: LoopThread,
    end: dict[str, Any],
    name: str,
) -> None:
    app.tasks["add"].enqueue(1)
    turn = {**remote.ask(2), "outcomes": [outcome(remote.take(), **end)]}
    for client in (remote.client, Client(other, loop)):
        answer = client.post("/v1/turn", turn)
        assert answer.status_code == 200, answer.text
        assert answer.json()["verdicts"] == ["ok"]
    assert counted(api, other) == {name: 1}


@each_end
def test_an_accepted_report_counts_once(
    app: Windlass, api: WindlassApi, remote: Remote, end: dict[str, Any], name: str
) -> None:
    app.tasks["add"].enqueue(1)
    report = outcome(remote.take(), **end)
    assert remote.finish(report) == ["ok"]
    assert remote.finish(report) == ["ok"]  # a repeat, after a lost answer
    assert counted(api) == {name: 1}
    totals = api.gateway.measures.snapshot()
    assert [(one.queue, one.task) for one in totals.measures] == [("default", "add")]
    assert totals.stale == {}


def test_a_job_that_was_released_before_its_start_has_no_run(
    app: Windlass, api: WindlassApi, remote: Remote
) -> None:
    app.tasks["add"].enqueue(1)
    assert remote.finish(outcome(remote.take(), "released", started=False)) == ["ok"]
    assert counted(api) == {}


def test_a_stale_report_counts_apart(app: Windlass, api: WindlassApi, remote: Remote) -> None:
    app.tasks["add"].enqueue(1)
    job = remote.take()
    app.engine.lose(remote.session, "a test")
    assert Remote.begin(remote.client).take()["id"] == job["id"]
    assert remote.finish(outcome(job, "succeeded", result=1)) == ["stale"]
    assert counted(api) == {}
    assert api.gateway.measures.snapshot().stale == {"succeed": 1}


def test_a_job_that_cannot_be_handed_out_dies_without_times(
    app: Windlass, api: WindlassApi, remote: Remote
) -> None:
    job = app.tasks["once"].enqueue("you")
    for _ in range(10):  # its budget of losses
        assert remote.take()["id"] == job.id
        app.engine.lose(remote.session, "a test")
        remote = Remote.begin(remote.client)
    assert remote.claim() == []
    assert counted(api) == {"dead": 1}


@pytest.mark.parametrize("engine_name", ENGINES)
def test_another_instance_counts_what_it_finishes_and_records_it_at_its_end(
    app: Windlass, api: WindlassApi, remote: Remote, loop: LoopThread
) -> None:
    for number in range(3):
        app.tasks["add"].enqueue(number)
    claimed = remote.claim(limit=3)

    async def serve() -> None:
        other = create_api(app)
        async with other.running():
            await _report(other)

    async def _report(other: WindlassApi) -> None:
        client = Client(other, loop)
        for job in claimed[:2]:
            report = {"session": remote.session, "token": job["token"], "result": 1}
            for _ in range(2):  # the second one is a repeat
                path = f"/v1/claims/{job['id']}/ack"
                answer = await client.arequest("POST", path, json=report)
                assert answer.status_code == 204

    loop.run(serve())
    assert recorded(app.engine) == {Ends("default", "add", "succeeded"): 2}
    assert times(app.engine) == (0, 2)  # a stored job does not tell how long it has waited
    assert counted(api) == {}


def test_an_instance_records_while_it_serves(
    monkeypatch: pytest.MonkeyPatch, app: Windlass, instance: Instance
) -> None:
    monkeypatch.setattr(maintenance, "RECORD_S", 0.01)
    monkeypatch.setattr(maintenance, "TEND_S", 0.01)
    remote = Remote.begin(instance())
    app.tasks["add"].enqueue(1)
    assert remote.finish(outcome(remote.take(), "succeeded", result=1)) == ["ok"]
    until(lambda: recorded(app.engine), "the first report")
    assert recorded(app.engine) == {Ends("default", "add", "succeeded"): 1}
    assert times(app.engine) == (1, 1)
