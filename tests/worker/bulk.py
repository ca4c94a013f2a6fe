"""A worker whose jobs have large results and end together, perhaps behind a slow link."""

from __future__ import annotations

from tests.proxy import Proxy
from tests.worker.yard import Worker, Yard, until
from windlass import Job, Task

APP = "tests.worker.apps.bulky:app"
MOST_PAYLOAD = 50_000_000


def bulky(label: str, size: int) -> str:
    """Run by workers alone."""
    raise NotImplementedError


class Bulk:
    """Jobs with large results, and the link between their worker and its server, if any."""

    def __init__(self, yard: Yard, link: Proxy | None = None) -> None:
        self.yard = yard
        self.link = link
        self.task: Task[[str, int], str] = yard.app.task(name="bulky")(bulky)

    def start(self, slots: int, **environment: str) -> Worker:
        url = self.yard.app.settings.url
        if self.link is not None:
            url = url.replace(f":{self.link.target_port}/", f":{self.link.port}/")
        given = {"WINDLASS_MAX_PAYLOAD": str(MOST_PAYLOAD), **environment}
        return self.yard.start(app=APP, slots=slots, url=url, environment=given)

    def end_all(self, number: int) -> None:
        """Wait until this many jobs have started, then end all of them."""
        until(lambda: len(self.yard.events("start")) == number, "all started")
        self.yard.folder.joinpath("gate").touch()

    def enqueue(self, number: int, size: int) -> list[Job[str]]:
        return self.task.enqueue_many([(f"job-{at}", size) for at in range(number)])
