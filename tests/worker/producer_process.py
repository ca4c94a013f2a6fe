"""A producer that enqueues in transactions of its own, and is killed by its test.

`python -m tests.worker.producer_process URL OUTBOX LABEL` enqueues a job within a transaction,
commits, prints the id, and then waits to be killed. With `--rollback` it does not commit.
"""

from __future__ import annotations

import sqlite3
import sys
import time
from typing import Any

import psycopg

from tests.worker.apps.scripted import Script
from windlass import Windlass


def connect(outbox: str) -> Any:
    if outbox.startswith("sqlite"):
        return sqlite3.connect(outbox.removeprefix("sqlite:///"), timeout=30)
    return psycopg.connect(outbox)


def main(url: str, outbox: str, label: str, *options: str) -> None:
    app = Windlass(url, outbox=outbox)
    connection = connect(outbox)
    job = Script(app).plain.using(connection=connection).enqueue(label, [])
    if "--rollback" not in options:
        connection.commit()
    print(job.id, flush=True)
    time.sleep(60)


if __name__ == "__main__":
    main(*sys.argv[1:])
