"""An app whose code declares a schedule."""

from tests.worker.apps.scripted import note
from windlass import Every, Windlass

app = Windlass()


@app.task(name="ticking", schedule=Every("1s"))
def tick() -> None:
    note("ticked")
