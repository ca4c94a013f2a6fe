"""Kill producers right after their commit: each of their jobs runs, soon, and once.

200 processes write an order and enqueue its job in one transaction, commit, and die by SIGKILL; as
many others die before their commit. No worker runs meanwhile, so that every death is before the
relay. Then a worker starts: the 200 jobs have to end within 5 s of its start, and no others. On
both kinds of databases, in front of every engine.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from tests.contract.variants import fresh_url
from tests.outbox.databases import Shop, postgres_shop, sqlite_shop
from tests.worker.apps.scripted import Script
from tests.worker.yard import Yard
from windlass import State, Windlass

#: The engine, and the database of the outbox.
PLACES: Final = (
    ("sqlite-file", "sqlite"),
    ("redis-4", "postgresql"),
    ("postgres", "postgresql"),
)
PRODUCERS: Final = 200
PROMPT_S: Final = 5.0


def prove(folder: Path) -> Iterator[str]:
    for engine, database in PLACES:
        place = folder / engine
        (place / "data").mkdir(parents=True)
        shop = sqlite_shop(place / "data") if database == "sqlite" else postgres_shop()
        url = fresh_url(engine, place)
        with closing(Yard(place, "30s", "5s", 3, url)) as yard:
            for number in range(PRODUCERS):
                produce(url, shop, f"kept-{number}", commits=True)
                produce(url, shop, f"lost-{number}", commits=False)
            assert len(shop.waiting()) == PRODUCERS
            yield account(yard, shop, f"{engine}, outbox in {database}")
    yield "windlass check: records, indexes and counters agree"


def produce(url: str, shop: Shop, label: str, *, commits: bool) -> None:
    """Enqueue in a process of its own, which kills itself."""
    pid = os.fork()
    if pid == 0:
        try:
            connection = shop.connect()
            app = Windlass(url, outbox=shop.url.url)
            connection.execute("INSERT INTO orders VALUES ('1')")
            Script(app).plain.using(connection=connection).enqueue(label, [])
            if commits:
                connection.commit()
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL


def account(yard: Yard, shop: Shop, place: str) -> str:
    begin = time.monotonic()
    worker = yard.start(slots=10, environment={"WINDLASS_OUTBOX": shop.url.url})
    yard.await_count(State.SUCCEEDED, PRODUCERS, seconds=60)
    took_s = time.monotonic() - begin
    worker.stop()
    ended = sorted(line.label for line in yard.events("end"))
    assert ended == sorted(f"kept-{number}" for number in range(PRODUCERS)), ended
    assert shop.waiting() == []
    assert took_s <= PROMPT_S, f"{took_s:.2f} s"
    return (
        f"{place}: {len(ended)} of {PRODUCERS} jobs of killed producers ran once, within "
        f"{took_s:.2f} s of the worker's start; none of {PRODUCERS} without a commit"
    )
