"""A remote worker for tests: a session, and the requests of a worker."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

from tests.http.client import Client
from windlass import Retry, Windlass

TASKS = ["add", "once", "picky", "native"]


def add_remote_tasks(app: Windlass) -> None:
    """Tasks that native workers know too, so that their options count."""

    @app.task(name="add", retry=Retry(max_attempts=3, base=10, jitter=0), timeout="30s")
    def add(a: int, b: int = 0) -> int:
        return a + b

    @app.task(name="once", queue="mail", retry=Retry(max_attempts=1), result_ttl=0)
    def once(to: str) -> None: ...

    @app.task(name="picky", retry=Retry(retry_on=OSError, reject_on=ValueError, base=10, jitter=0))
    def picky() -> None: ...

    @app.task(name="native", run_in="process")
    def native() -> None: ...


class Remote:
    """One session. Requests go through one instance; `through` gives the same session elsewhere."""

    def __init__(self, client: Client, session: str, first: int = 1) -> None:
        self.client = client
        self.session = session
        self.number = first

    @classmethod
    def begin(cls, client: Client, **wants: Any) -> Remote:
        answer = client.post("/v1/sessions", {"name": "js", "tasks": TASKS, **wants})
        assert answer.status_code == 201, answer.text
        return cls(client, answer.json()["session"])

    def through(self, client: Client) -> Remote:
        return Remote(client, self.session, self.number)

    def ask(self, number: int | None = None, **wants: Any) -> dict[str, Any]:
        """The body of a claim."""
        return {"session": self.session, "nonce": number or self.number, **wants}

    def claim(self, number: int | None = None, **wants: Any) -> list[dict[str, Any]]:
        """Claim jobs, under the next number unless one is given."""
        body = self.ask(number, **wants)
        self.number += number is None
        answer = self.client.post("/v1/claims", body)
        assert answer.status_code == 200, answer.text
        claims: list[dict[str, Any]] = answer.json()["claims"]
        return claims

    def take(self) -> dict[str, Any]:
        (job,) = self.claim()
        return job

    def poll(self, **wants: Any) -> asyncio.Task[httpx.Response]:
        """Begin a long poll."""
        body = self.ask(wait_s=20, **wants)
        self.number += 1
        return self.client.start("POST", "/v1/claims", json=body)

    def polled(self, request: asyncio.Task[httpx.Response]) -> list[dict[str, Any]]:
        answer = self.client.finish(request)
        assert answer.status_code == 200, answer.text
        claims: list[dict[str, Any]] = answer.json()["claims"]
        return claims

    def finish(self, *outcomes: dict[str, Any]) -> list[str]:
        answer = self.client.post(
            "/v1/claims/finish", {"session": self.session, "outcomes": outcomes}
        )
        assert answer.status_code == 200, answer.text
        verdicts: list[str] = answer.json()["verdicts"]
        return verdicts

    def beat(self, *running: str, **fields: Any) -> dict[str, Any]:
        body = {"running": running, **fields}
        answer = self.client.post(f"/v1/sessions/{self.session}/beat", body)
        assert answer.status_code == 200, answer.text
        said: dict[str, Any] = answer.json()
        return said

    def one(self, job: dict[str, Any], verb: str, **body: Any) -> httpx.Response:
        """Report on one job."""
        body = {"session": self.session, "token": job["token"], **body}
        return self.client.post(f"/v1/claims/{job['id']}/{verb}", body)

    def end(self) -> httpx.Response:
        return self.client.delete(f"/v1/sessions/{self.session}")


def outcome(job: dict[str, Any], kind: str, **fields: Any) -> dict[str, Any]:
    """A report on a claimed job."""
    return {"id": job["id"], "token": job["token"], "outcome": kind, **fields}


def problem_of(answer: httpx.Response) -> tuple[int, str]:
    """The status and the kind of a problem document."""
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    return answer.status_code, answer.json()["type"].rpartition(":")[2]
