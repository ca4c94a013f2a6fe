"""An app whose one task has a result of the size that it is told. All of its jobs end together,
when there is a file `gate` beside the ledger."""

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
