"""An app with one task, which returns a result of the requested size. All of its jobs end together,
when the folder of the ledger contains a file `gate`."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.worker.apps.scripted import LEDGER, note
from windlass.app import Windlass

app = Windlass()


@app.task(name="bulky")
def bulky(label: str, size: int) -> str:
    note(f"start {label} 1 {os.getpid()}")
    gate, result = Path(os.environ[LEDGER]).with_name("gate"), "x" * size
    while not gate.exists():
        time.sleep(0.01)
    return result
