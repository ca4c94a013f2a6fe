"""The app of tests of alerts in real processes. Its hook appends a line to a ledger."""

from __future__ import annotations

import os

from tests.alerts.helpers import take_number
from windlass import Alert, AlertEvent, Windlass

app = Windlass(
    os.environ["WINDLASS_URL"],
    alerts=[
        Alert.oldest_age("1h", queue="mail"),
        Alert.no_worker(queue="gone", for_=0),
        Alert.failure_rate(0.5, for_=0, min_runs=5),
        Alert.run_time("1s", for_=0, min_runs=5),
        Alert.overdue_schedule("1h"),
    ],
)
app.task(name="number")(take_number)


@app.on_alert
def note(event: AlertEvent) -> None:
    line = f"{os.getpid()} {event.kind} {event.state}\n".encode()
    ledger = os.open(os.environ["ALERT_LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(ledger, line)
    os.close(ledger)
