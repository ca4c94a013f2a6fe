"""Schedules through the API."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise
from urllib.parse import quote

import pytest
from msgspec.structs import replace

from tests.http.client import Client
from tests.http.conftest import Caller
from windlass import Every, Windlass
from windlass.core.schedules.state import Note
from windlass.engine.schedule_changes import alter


@pytest.fixture
def app(app: Windlass) -> Windlass:
    send = app.tasks["shop.mail.send"]
    app.schedules.save("daily-mail", send.bind("ann", password="hunter2"), Every("1d"))
    app.schedules.save("report", app.tasks["shop.report"].bind(), Every("1h"))
    return app


def test_schedules_are_listed_with_their_next_runs(client: Client) -> None:
    answer = client.get("/v1/schedules")
    assert "hunter2" not in answer.text
    mail, report = answer.json()["schedules"]
    assert (mail["name"], mail["task"], mail["queue"]) == ("daily-mail", "shop.mail.send", "mail")
    assert (mail["state"], mail["is_declared"], mail["timing"]) == ("active", False, "every 1d")
    runs = [datetime.fromisoformat(one) for one in report["upcoming"]]
    assert len(runs) == 5
    assert datetime.fromisoformat(report["next_at"]) == runs[0]
    assert {later - sooner for sooner, later in pairwise(runs)} == {timedelta(hours=1)}


def test_the_lateness_of_the_last_run_is_told(client: Client, app: Windlass) -> None:
    assert client.get("/v1/schedules/report").json()["last_late_s"] is None
    (record,) = app.engine.get_schedules(["report"])
    assert record is not None
    note = replace(Note.unpack(record.note), last_ms=1_000, fired_ms=3_500)
    app.engine.change_schedules([alter(record, note, now_ms=0)])
    assert client.get("/v1/schedules/report").json()["last_late_s"] == 2.5


def test_pages(client: Client) -> None:
    first = client.get("/v1/schedules?limit=1").json()
    assert ([one["name"] for one in first["schedules"]], first["after"]) == (
        ["daily-mail"],
        "daily-mail",
    )
    second = client.get("/v1/schedules?limit=2&after=daily-mail").json()
    assert ([one["name"] for one in second["schedules"]], second["after"]) == (["report"], None)


@pytest.mark.parametrize("name", ["nightly/eu", "a/b/c", "<img/src=x>", "100%"])
def test_a_name_may_have_any_character_but_space(client: Client, app: Windlass, name: str) -> None:
    app.schedules.save(name, app.tasks["shop.report"].bind(), Every("1h"))
    path = f"/v1/schedules/{quote(name, safe='')}"
    assert client.get(path).json()["name"] == name
    assert client.post(f"{path}/pause").json()["state"] == "paused"
    assert client.post(f"{path}/resume").json()["state"] == "active"
    assert client.post(f"{path}/run").json()["task"] == "shop.report"


def test_a_schedule_is_paused_resumed_and_run(client: Client, app: Windlass) -> None:
    assert client.post("/v1/schedules/report/pause").json()["state"] == "paused"
    answer = client.post("/v1/schedules/report/run")
    assert answer.status_code == 201
    job = answer.json()
    assert job["task"] == "shop.report"
    assert app.job(job["id"]).info().state == "ready"
    assert client.post("/v1/schedules/report/resume").json()["state"] == "active"


@pytest.mark.parametrize("verb", ["run", "pause", "resume"])
def test_an_unknown_schedule_is_not_found(client: Client, verb: str) -> None:
    assert client.get("/v1/schedules/rport").status_code == 404
    assert client.post(f"/v1/schedules/rport/{verb}").status_code == 404


def test_scoped_callers_see_schedules_of_their_queues(caller: Caller, app: Windlass) -> None:
    operator = caller("operator", "mail")
    listed = operator.get("/v1/schedules").json()["schedules"]
    assert [one["name"] for one in listed] == ["daily-mail"]
    assert operator.get("/v1/schedules/report").status_code == 404
    for verb in ("run", "pause", "resume"):
        assert operator.post(f"/v1/schedules/report/{verb}").status_code == 404
    assert operator.post("/v1/schedules/daily-mail/pause").status_code == 200
    assert app.schedules.get("report").state == "active"
    assert app.stats().queues.get("default") is None


def test_pages_of_scoped_callers_do_not_name_other_schedules(caller: Caller, app: Windlass) -> None:
    send = app.tasks["shop.mail.send"]
    app.schedules.save("zeta-mail", send.bind("bob"), Every("1d"))
    app.schedules.save("zz-report", app.tasks["shop.report"].bind(), Every("1h"))
    operator, after, pages = caller("operator", "mail"), "", []
    while after is not None:
        query = "limit=1" + (after and f"&after={after}")
        page = operator.get(f"/v1/schedules?{query}").json()
        after = page["after"]
        pages.append(([one["name"] for one in page["schedules"]], after))
    assert pages == [(["daily-mail"], "daily-mail"), (["zeta-mail"], "zeta-mail"), ([], None)]


def test_producers_do_not_run_schedules(caller: Caller) -> None:
    assert caller("producer").get("/v1/schedules").status_code == 403
    assert caller("producer").post("/v1/schedules/report/run").status_code == 403
