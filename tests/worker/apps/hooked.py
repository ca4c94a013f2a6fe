"""The scripted tasks with hooks, which write into the ledger."""

from __future__ import annotations

import os
import time

from tests.worker.apps.scripted import Script, note
from windlass import JobEvent, Windlass

#: How long a hook takes, in seconds.
HOOK_S = "HOOKED_S"

app = Windlass()
script = Script(app)


@app.on_success
def write_success(event: JobEvent) -> None:
    time.sleep(float(os.environ.get(HOOK_S, "0")))
    note(f"success {event.args[0]} {event.attempt} {os.getpid()}")


@app.on_retry
def write_retry(event: JobEvent) -> None:
    note(f"retry {event.args[0]} {event.attempt} {os.getpid()}")


@app.on_dead
async def write_death(event: JobEvent) -> None:
    label = f"{event.args[0]}-{event.reason}-{event.failure and event.failure.name}"
    note(f"dead {label} {event.attempt} {os.getpid()}")
