"""`/status`: queues, workers and the latest dead jobs as tables, without JavaScript.

1. The page asks `/v1` with the credentials of its reader, so it shows what the reader may see.
2. The browser loads it again every ten seconds. `?refresh=off` stops that.

The cost of the page does not grow with the number of jobs: counts come from counters, rates from
the history, and dead jobs from the first page of their list.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from windlass.core.durations import describe_ms
from windlass.core.states import State
from windlass.dashboard.markup import Markup, document, element
from windlass.dashboard.own_api import Answer, OwnApi

#: How often the page is loaded again, in seconds.
REFRESH_S: Final = 10
#: The most rows of a table.
MAX_ROWS: Final = 200
MAX_DEAD: Final = 20
#: The most running tasks that a worker's row names.
MAX_TASKS: Final = 5
#: What the page asks the API for, after `/v1/me`: paths and queries.
_SOURCES: Final = {
    "queues": ("/v1/queues", ""),
    "scale": ("/v1/scale", ""),
    "workers": ("/v1/workers", f"limit={MAX_ROWS}"),
    "dead": ("/v1/jobs", f"state=dead&limit={MAX_DEAD}"),
}


class StatusPage:
    """The page `/status`."""

    def __init__(self, api: OwnApi) -> None:
        self._api = api

    async def show(self, request: Request) -> Response:
        """GET /status"""
        answers = await self._ask(request)
        failed = next((one for one in answers.values() if one.status != 200), None)
        refresh = request.query_params.get("refresh") != "off"
        if failed is None:
            found = {name: answer.document for name, answer in answers.items()}
            return _respond(render_status(found, refresh=refresh))
        if failed.status == 401:
            headers = {"Location": "./login", "Cache-Control": "no-store"}
            return Response(status_code=303, headers=headers)
        return _respond(_render_problem(failed, refresh=refresh), failed)

    async def _ask(self, request: Request) -> dict[str, Answer]:
        """Ask the API. A reader that is not logged in is one failed authentication, not five."""
        me = await self._api.get(request, "/v1/me")
        if me.status != 200:
            return {"me": me}
        asked = [self._api.get(request, path, query) for path, query in _SOURCES.values()]
        return {"me": me, **dict(zip(_SOURCES, await asyncio.gather(*asked), strict=True))}


def _respond(page: bytes, failed: Answer | None = None) -> Response:
    headers = {"Cache-Control": "no-store"}
    if failed is not None and "retry-after" in failed.headers:
        headers["Retry-After"] = failed.headers["retry-after"]
    status = 200 if failed is None else failed.status
    return Response(page, status, headers=headers, media_type="text/html")


def render_status(found: Mapping[str, Any], *, refresh: bool) -> bytes:
    """The page, from the answers of the API."""
    scale = {load["queue"]: load for load in found["scale"]["queues"]}
    queues = {queue["name"]: queue for queue in found["queues"]["queues"]}
    names = sorted({*queues, *scale})
    workers, dead = found["workers"], found["dead"]
    body = [
        _header(found["me"], refresh=refresh),
        element(
            "main",
            _section(
                "Queues",
                ("queue", *State, "oldest", "in/s", "out/s", "time to drain", "paused"),
                [_queue_row(name, queues.get(name), scale.get(name)) for name in names[:MAX_ROWS]],
                empty="No queue has jobs or settings.",
                more=len(names) > MAX_ROWS,
            ),
            _section(
                "Workers",
                ("worker", "state", "queues", "jobs", "slots", "running", "release"),
                map(_worker_row, workers["workers"]),
                empty="No worker is alive. `windlass worker MODULE:ATTR` starts one.",
                more=workers["after"] is not None,
            ),
            _section(
                "Latest dead jobs",
                ("died at (UTC)", "task", "reason", "attempts", "queue", "release", "job"),
                map(_dead_row, dead["jobs"]),
                empty="No job is dead.",
                more=dead["cursor"] is not None,
            ),
        ),
    ]
    return document("Status", body, _refresh(refresh))


def _render_problem(failed: Answer, *, refresh: bool) -> bytes:
    title = failed.document.get("title", "") if isinstance(failed.document, dict) else ""
    main = element(
        "main",
        element("h1", "windlass"),
        element("p", f"{title}. {failed.detail}", class_="problem", role="alert"),
        element("p", element("a", "Log in with another access token", href="./login")),
    )
    return document("Status", [main], _refresh(refresh))


def _refresh(refresh: bool) -> list[Markup]:
    if not refresh:
        return []
    return [element("meta", http_equiv="refresh", content=str(REFRESH_S))]


def _header(me: Mapping[str, Any], *, refresh: bool) -> Markup:
    place = f"{me['name']} ({me['role']}), windlass {me['version']}"
    if me["engine"]:
        place = f"{place}, {me['engine']}"
    other = ("off", "Stop refreshing") if refresh else ("on", "Refresh by itself")
    links = [
        element("a", "Dashboard", href="./"),
        element("a", other[1], href=f"./status?refresh={other[0]}"),
    ]
    button = element("button", "Log out", type="submit")
    form = [element("form", button, method="post", action="./logout")] if me["logged_in"] else []
    nav = element("nav", *links, *form)
    return element(
        "header", element("h1", "windlass"), element("p", place), nav, class_="status-head"
    )


def _section(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    empty: str,
    more: bool,
) -> Markup:
    found = list(rows)
    if not found:
        return element("section", element("h2", title), element("p", empty))
    head = element("tr", *map(_head, columns, zip(*found, strict=True)))
    shown = [element("tr", *map(_cell, row)) for row in found]
    table = element("table", element("thead", head), element("tbody", *shown))
    frame = element("div", table, class_="table", role="region", tabindex="0", aria_label=title)
    note = [element("p", "There are more than these.")] if more else []
    return element("section", element("h2", title), frame, *note)


def _head(title: str, values: Iterable[object]) -> Markup:
    is_number = any(isinstance(value, int | float) for value in values)
    return element("th", title, scope="col", class_="number" if is_number else False)


def _cell(value: object) -> Markup:
    if isinstance(value, Markup):
        return value
    if isinstance(value, int | float):
        text = f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"
        return element("td", text, class_="number")
    return element("td", "" if value is None else value)


def _queue_row(
    name: str, queue: Mapping[str, Any] | None, load: Mapping[str, Any] | None
) -> tuple[object, ...]:
    jobs = queue["jobs"] if queue else {}
    counts = [jobs.get(str(state), 0) for state in State]
    if load is None:
        return (name, *counts, "", "", "", "", _paused(queue))
    never = "held" if load["held"] else "never"
    drain = never if load["drain_s"] is None else _duration(load["drain_s"])
    oldest = _duration(load["oldest_s"]) if load["oldest_s"] else ""
    return (name, *counts, oldest, load["in_rate"], load["out_rate"], drain, _paused(load))


def _paused(queue: Mapping[str, Any] | None) -> str:
    return "yes" if queue and queue["paused"] else ""


def _worker_row(worker: Mapping[str, Any]) -> tuple[object, ...]:
    running = [job["task"] for session in worker["sessions"] for job in session["running"]]
    named = ", ".join(running[:MAX_TASKS]) + (", ..." if len(running) > MAX_TASKS else "")
    queues = ", ".join(worker["queues"]) or "every queue"
    return (
        worker["name"],
        worker["state"],
        queues,
        worker["jobs"],
        worker["slots"],
        named,
        worker["release"],
    )


def _dead_row(job: Mapping[str, Any]) -> tuple[object, ...]:
    return (
        element("td", job["finished_at"][:19].replace("T", " "), class_="fixed"),
        job["task"],
        job["reason"],
        job["attempts"],
        job["queue"],
        job["release"],
        job["id"],
    )


def _duration(seconds: float) -> str:
    milliseconds = round(seconds * 1000)
    return describe_ms(milliseconds if milliseconds < 1000 else round(seconds) * 1000)
