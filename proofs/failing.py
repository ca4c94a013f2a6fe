"""The app of the proof of dead letters: its task fails until the fix, and writes a ledger."""

from __future__ import annotations

import os
import time
from pathlib import Path

from windlass import AlertEvent, Retry, Windlass

app = Windlass(os.environ["WINDLASS_URL"], dead_alert=1_000)
FOLDER = Path(os.environ.get("PROOF_FOLDER", "."))


@app.task(name="charge", retry=Retry(delays=[0]))
def charge(number: int) -> None:
    is_fixed = (FOLDER / "fixed").exists()
    line = f"{number} {time.time():.6f} {int(is_fixed)}\n".encode()
    ledger = os.open(FOLDER / f"ledger.{os.getpid()}", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(ledger, line)
    os.close(ledger)
    if not is_fixed:
        raise ValueError(f"no such order {number}")


@app.on_alert
def note(event: AlertEvent) -> None:
    if event.state == "firing":
        (FOLDER / f"alert.{event.kind}").write_text(str(event.value))
