"""A scripted incident with real processes: every rule of `watched_app` fires, and clears."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.alerts.helpers import Receiver, bury, take_number
from tests.http.server_process import ServerProcess
from tests.worker.yard import Yard
from windlass import Every, Windlass
from windlass.alerts.watch import KIND
from windlass.core.alerts.states import AlertRecord
from windlass.core.history import OUTCOMES, Tally
from windlass.engine.contract import Measure

APP: Final = "tests.alerts.watched_app:app"
#: The kinds of alerts in the incident.
KINDS: Final = frozenset(
    {*("dead_letters", "failure_rate", "no_worker", "oldest_age", "overdue_schedule", "run_time")}
)


class Scene:
    """A place with an incident, a worker and servers."""

    def __init__(self, folder: Path, url: str, receiver: Receiver) -> None:
        self.yard = Yard(folder, "30s", "5s", 3, url)
        self.app = self.yard.app
        self.app.task(name="number")(take_number)
        self.ledger = folder / "alerts"
        self.ledger.touch()
        self.environment = {
            "WINDLASS_URL": url,
            "WINDLASS_DEAD_ALERT": "3",
            "WINDLASS_ALERT_WEBHOOK": receiver.url,
            "ALERT_LEDGER": str(self.ledger),
        }
        self.servers: list[ServerProcess] = []

    def serve(self) -> ServerProcess:
        log = self.yard.folder / f"server-{len(self.servers)}.log"
        self.servers.append(ServerProcess(APP, log, environment=self.environment))
        return self.servers[-1]

    def hooks(self) -> list[str]:
        return [line.split(" ", 1)[1] for line in self.ledger.read_text().splitlines()]

    def holders(self) -> set[int]:
        """The processes that hold rules of the app."""
        held = [one.holder for one in self.app.alerts.list() if one.state != "unknown"]
        return {int(holder.split(".")[1]) for holder in held if holder}

    def is_delivered(self) -> bool:
        """Whether every event is known to be delivered. A holder that is killed before lets the
        next one deliver it again."""
        documents = self.app.engine.list_documents(KIND)
        records = [AlertRecord.unpack(document.body) for document in documents]
        return not any(record.untold for record in records if record is not None)

    def close(self) -> None:
        for server in self.servers:
            server.kill()
        self.yard.close()


def break_everything(app: Windlass) -> list[str]:
    """Let every rule of the app fire; return the ids of the dead jobs."""
    engine, task = app.engine, app.tasks["number"]
    measure(app, 1, 10, "retried", 5)
    ids = bury(app, 4)
    engine.clock_offset_ms = -3 * 3_600_000  # jobs that are ready, and a schedule that is due
    task.using(queue="mail").enqueue(1)
    task.using(queue="gone").enqueue(1)
    app.schedules.save("late", task.bind(1), Every("1h"))
    engine.clock_offset_ms = 0
    return ids


def repair_everything(app: Windlass, ids: list[str]) -> None:
    measure(app, 2, 3_000, "succeeded", 0.001)
    app.dead.discard(*ids)
    app.schedules.remove("late")
    for queue in ("mail", "gone"):
        app.queue(queue).purge()


def measure(app: Windlass, number: int, runs: int, outcome: str, seconds: float) -> None:
    tally = Tally()
    for _ in range(runs):
        tally.add(OUTCOMES.index(outcome), 0, seconds)
    counts = tuple(tally.counts)
    app.engine.record("me", number, [Measure(queue="mail", task="number", counts=counts)])
