"""An app with a task that no call can reach: a lock cannot be stored."""

from threading import Event

from windlass.app import Windlass

app = Windlass()


@app.task
def wait_for(gate: Event) -> bool:
    return gate.wait()
