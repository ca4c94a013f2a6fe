"""The status page, which needs no JavaScript."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest

from tests.app.hand import Hand
from tests.dashboard.cookie_browser import CookieBrowser, Parts
from tests.http.client import Client
from windlass import Windlass
from windlass.core.ids import new_id
from windlass.core.introduction import Introduction
from windlass.dashboard.status_page import render_status
from windlass.engine.contract import Beat, NewJob
from windlass.testing.faults import Faults

#: What an attacker may try to store, without spaces, which names of tasks do not have.
PAYLOADS = [
    "<script>alert(1)</script>",
    "<img/src=x/onerror=alert(1)>",
    "<svg/onload=alert(1)>",
    '"><script>alert(1)</script>',
    "'><iframe/src=javascript:alert(1)>",
    "</td></tr></table><script>alert(1)</script>",
    "</title><script>alert(1)</script>",
    "<!--<script>alert(1)//-->",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "<base/href=//evil.example/>",
]
#: The elements that the page has by itself.
OWN = {
    *("html", "head", "meta", "title", "link", "body", "header", "nav", "main", "section", "h1"),
    *("h2", "p", "a", "div", "form", "button", "table", "thead", "tbody", "tr", "th", "td"),
}


def check(page: str, payload: str) -> None:
    """The payload is text of the page, and no element or attribute."""
    parts = Parts(page)
    assert payload in parts.text
    assert {tag for tag, _ in parts.elements} <= OWN
    assert parts.inline == []
    assert all(link.startswith("./") for link in parts.links())


@pytest.mark.parametrize("payload", PAYLOADS)
def test_stored_names_are_text(client: Client, app: Windlass, hand: Hand, payload: str) -> None:
    """From the engine to the page: task and queue of a dead job, and the host of a worker."""
    app.engine.put([NewJob(new_id(1), payload, payload, b'{"args":[],"kwargs":{}}')])
    hand.bury(ValueError(payload))
    known = Introduction(host=payload, worker=7, child=8, queues=(payload,))
    app.engine.beat([Beat(session="web.8.x", info=known.pack())])
    page = client.get("/status").text
    check(page, payload)
    assert Parts(page).text.count(payload) == 5


@pytest.mark.parametrize("payload", PAYLOADS)
def test_every_text_of_the_answers_is_text(client: Client, app: Windlass, payload: str) -> None:
    """Also those that the API has checked: the page does not rely on it."""
    found = {
        "me": client.get("/v1/me").json(),
        "queues": {"queues": [{"name": "q", "paused": True, "jobs": {"ready": 1}}]},
        "scale": {"queues": []},
        "workers": {
            "after": "x",
            "workers": [
                {
                    "name": "w",
                    "state": "running",
                    "queues": ["q"],
                    "jobs": 1,
                    "slots": 2,
                    "release": "r",
                    "sessions": [{"running": [{"task": "t"}]}],
                }
            ],
        },
        "dead": {
            "cursor": "x",
            "jobs": [
                {
                    "id": "i",
                    "task": "t",
                    "queue": "q",
                    "reason": "r",
                    "attempts": 1,
                    "release": "r",
                    "finished_at": "f",
                }
            ],
        },
    }
    attacked = replace_texts(copy.deepcopy(found), payload)
    check(render_status(attacked, refresh=True).decode(), payload)


def replace_texts(value: Any, payload: str) -> Any:
    if isinstance(value, str):
        return payload
    if isinstance(value, list):
        return [replace_texts(one, payload) for one in value]
    if isinstance(value, dict):
        return {name: replace_texts(one, payload) for name, one in value.items()}
    return value


def rows(page: str) -> list[list[str]]:
    """The rows of all tables."""
    found = [row.partition("</tr>")[0] for row in page.split("<tr>")[1:]]
    return [[Parts(cell).text for cell in row.split("</td>")[:-1]] for row in found]


def test_it_shows_queues_workers_and_dead_jobs(client: Client, app: Windlass, hand: Hand) -> None:
    app.tasks["shop.mail.send"].enqueue("bob")
    hand.bury(ValueError("full"))
    app.tasks["shop.mail.send"].enqueue("ada")
    app.tasks["shop.mail.send"].enqueue("cleo")
    hand.take()
    app.queue("payments").pause()
    known = Introduction(host="web", worker=7, child=8, slots=10, queues=("mail",))
    app.engine.beat([Beat(session=hand.session, info=known.pack())])
    page = client.get("/status").text
    head = Parts(page).text
    assert "anonymous (admin)" in head
    assert app.engine.location in head
    table = {row[0]: row[1:] for row in rows(page) if row}
    # waiting, scheduled, ready, running, retrying, succeeded, dead, cancelled
    assert table["mail"][:8] == ["0", "0", "1", "1", "0", "0", "1", "0"]
    assert table["mail"][-2:] == ["never", ""]
    assert table["payments"][:8] == ["0"] * 8
    assert table["payments"][-1] == "yes"
    assert table["web:7"] == ["running", "mail", "1", "10", "shop.mail.send", ""]
    [(died, dead)] = [(name, row) for name, row in table.items() if len(row[-1]) == 26]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", died)
    assert dead[:4] == ["shop.mail.send", "exhausted", "1", "mail"]
    assert '<th scope="col" class="number">ready</th>' in page  # above its numbers
    assert '<td class="number">0.00</td>' in page


def test_an_empty_engine_says_what_to_do(client: Client) -> None:
    text = Parts(client.get("/status").text).text
    assert "No queue has jobs or settings." in text
    assert "`windlass worker MODULE:ATTR` starts one" in text
    assert "No job is dead." in text


def test_it_refreshes_itself_until_told_otherwise(client: Client) -> None:
    refresh = {"http-equiv": "refresh", "content": "10"}
    for path, expected in (
        ("/status", True),
        ("/status?refresh=on", True),
        ("/status?refresh=off", False),
    ):
        metas = [found for tag, found in Parts(client.get(path).text).elements if tag == "meta"]
        assert (refresh in metas) is expected


def test_a_reader_without_a_login_fails_once(
    client: Client, app: Windlass, caplog: pytest.LogCaptureFixture
) -> None:
    """Failed authentications of an address are limited."""
    app.access_tokens.create(name="ann", role="operator")
    caplog.set_level("INFO")
    assert client.get("/status").status_code == 303
    lines = [line.getMessage() for line in caplog.records if line.name == "windlass.http"]
    assert [line.split(" in ")[0] for line in lines] == ["GET /v1/me 401", "GET /status 303"]


def test_only_a_login_can_log_out(browser: CookieBrowser, client: Client, app: Windlass) -> None:
    assert "Log out" not in client.get("/status").text
    browser.log_in(app.access_tokens.create(name="ann", role="operator")[1])
    assert "Log out" in browser.get("/status").text


def test_an_engine_that_is_away_is_a_problem_and_no_empty_table(
    client: Client, app: Windlass
) -> None:
    place = app.engine.location.partition(" ")[2]
    faults = Faults(app.engine)
    with app.replace_engine(faults.engine):
        faults.refuse("stats", times=10)
        answer = client.get("/status")
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    text = Parts(answer.text).text
    assert "The engine does not answer" in text
    assert "No queue" not in text
    assert place not in answer.text
    assert 'http-equiv="refresh"' in answer.text  # and so recovers by itself


def test_many_rows_are_cut_and_said(client: Client, app: Windlass) -> None:
    for number in range(201):
        app.queue(f"q{number:03}").pause()
    page = client.get("/status").text
    assert "q199" in page
    assert "q200" not in page
    assert "There are more than these." in page
