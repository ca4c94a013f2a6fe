"""`/v1/workers/lost`: lost sessions and crash suspects through the API."""

from __future__ import annotations

from tests.app.hand import Hand
from tests.http.client import Client
from tests.http.conftest import Caller
from windlass import Windlass
from windlass.core.introduction import Introduction
from windlass.lost_sessions import LossKind, try_note_loss


def crash(app: Windlass, hand: Hand, session: str, queues: tuple[str, ...]) -> list[str]:
    """Let two jobs of different queues be suspects of a crash."""
    hand.session = session
    app.tasks["shop.report"].enqueue()
    app.tasks["shop.mail.send"].enqueue("ann")
    ids = sorted(hand.take().id for _ in range(2))
    app.engine.close(session, ids, "killed by signal 9")
    known = Introduction(host="web", worker=7, queues=queues)
    try_note_loss(
        app.engine, session, LossKind.CRASHED, "signal 9", known, ids, job_count=3, suspects=ids
    )
    return ids


def test_lost_sessions_and_suspects(client: Client, app: Windlass, hand: Hand) -> None:
    assert client.get("/v1/workers/lost").json() == {
        "sessions": [],
        "suspects": [],
        "is_exact": True,
        "dead": [],
    }
    ids = crash(app, hand, "web.8.a", ())
    found = client.get("/v1/workers/lost").json()
    (lost,) = found["sessions"]
    assert (lost["session"], lost["kind"], lost["worker"]) == ("web.8.a", "crashed", "web:7")
    assert (lost["job_count"], lost["cause"]) == (3, "signal 9")
    assert sorted(job["id"] for job in lost["jobs"]) == ids
    assert {(job["state"], job["is_suspect"]) for job in lost["jobs"]} == {("ready", True)}
    assert sorted(job["id"] for job in found["suspects"]) == ids
    assert client.get("/v1/workers/lost?limit=101").status_code == 422


def test_a_scoped_caller_sees_jobs_of_its_queues(caller: Caller, app: Windlass, hand: Hand) -> None:
    crash(app, hand, "web.8.a", ("mail:5,low:1",))
    crash(app, hand, "web.9.a", ("default",))
    found = caller("viewer", "mail").get("/v1/workers/lost").json()
    (lost,) = found["sessions"]
    assert lost["session"] == "web.8.a"
    assert [job["queue"] for job in lost["jobs"]] == ["mail"]
    assert [job["queue"] for job in found["suspects"]] == ["mail", "mail"]
