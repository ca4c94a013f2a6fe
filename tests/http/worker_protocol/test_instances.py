"""Several instances of the API on one engine: any of them serves any call of a session."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.client import Client
from tests.http.worker_protocol.conftest import ENGINES, Instance
from tests.http.worker_protocol.remote import Remote, outcome, problem_of
from windlass import Retry, State, Windlass

pytestmark = pytest.mark.parametrize("engine_name", ENGINES)
ERROR = {"type": "SmtpError"}


def test_claim_through_one_and_finish_through_another(
    app: Windlass, client: Client, instance: Instance
) -> None:
    jobs = [app.tasks["add"].enqueue(number) for number in range(3)]
    here = Remote.begin(client)
    there = here.through(instance())
    claimed = here.claim(limit=3)
    assert there.finish(*(outcome(job, "succeeded", result=1) for job in claimed)) == ["ok"] * 3
    assert [job.result(timeout=5) for job in jobs] == [1, 1, 1]
    assert here.finish(outcome(claimed[0], "succeeded", result=1)) == ["ok"], "a repeat elsewhere"


def test_a_repeated_claim_through_another_returns_the_same_jobs(
    app: Windlass, client: Client, instance: Instance
) -> None:
    for number in range(8):
        app.tasks["add"].enqueue(number)
    here = Remote.begin(client)
    there = here.through(instance())
    first = here.claim(1, limit=3)
    assert len(first) == 3
    assert _claims(there.claim(1, limit=3)) == _claims(first)
    later = there.claim(2, limit=3)
    assert {job["id"] for job in later}.isdisjoint(job["id"] for job in first)
    assert _claims(here.claim(2, limit=3)) == _claims(later)
    assert _claims(here.claim(1, limit=3)) == _claims(first)
    running = list(app.jobs.list(state=State.RUNNING))
    assert len(running) == 6, "no repeat has leased more"


def _claims(jobs: list[dict[str, Any]]) -> set[tuple[str, str]]:
    return {(job["id"], job["token"]) for job in jobs}


def test_a_claim_that_found_nothing_may_be_repeated_through_another(
    app: Windlass, client: Client, instance: Instance
) -> None:
    here = Remote.begin(client)
    there = here.through(instance())
    assert here.claim(1) == []
    job = app.tasks["add"].enqueue(1)
    assert [one["id"] for one in there.claim(1)] == [job.id]
    assert [one["id"] for one in here.claim(1)] == [job.id]


def test_a_failure_through_another_is_decided_the_same(
    app: Windlass, client: Client, instance: Instance
) -> None:
    job = app.tasks["add"].using(retry=Retry(delays=["7s", "7s"])).enqueue(1)
    here = Remote.begin(client)
    there = here.through(instance())
    claimed = here.take()
    assert there.finish(outcome(claimed, "failed", error=ERROR)) == ["ok"]
    (record,) = app.engine.get([job.id])
    assert record is not None
    assert record.due_ms is not None
    assert (record.state, record.due_ms - record.failures[-1].at_ms) == (State.RETRYING, 7_000)
    assert here.finish(outcome(claimed, "failed", error=ERROR)) == ["ok"], "a repeat elsewhere"


def test_beat_and_end_through_another(app: Windlass, client: Client, instance: Instance) -> None:
    here = Remote.begin(client)
    there = here.through(instance())
    job = app.tasks["add"].enqueue(1)
    here.take()
    assert there.beat(job.id) == {"state": "ok", "cancel": [], "lost": []}
    assert there.end().status_code == 204
    assert problem_of(client.post("/v1/claims", here.ask())) == (410, "session-gone")
    answer = client.post(f"/v1/sessions/{here.session}/beat", {"running": []})
    assert problem_of(answer) == (410, "session-gone")
