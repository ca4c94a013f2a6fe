"""What it costs to read loads and the history does not grow with the number of stored jobs. The
tests count work instead of time, as `test_many_queues` does."""

from __future__ import annotations

from tests.engine import test_many_queues
from tests.engine.test_many_queues import Place
from windlass.core.history import HOUR_MS, MINUTE_MS
from windlass.history import HistoryChoice, read_history
from windlass.queue_loads import read_loads

#: pytest finds them here again.
place = test_many_queues.place
sqlite_place = test_many_queues.sqlite_place

FEW, MANY = 100, 10_000


def read_both(place: Place) -> None:
    (load,) = read_loads(place.engine)
    assert load.ready > 0
    history = read_history(place.engine, HistoryChoice(since=HOUR_MS))
    assert history.depths


def work_of_reading(place: Place) -> int:
    before = place.worked()
    read_both(place)
    return place.worked() - before


def test_reading_costs_the_same_with_many_jobs(place: Place) -> None:
    place.put(["mail"] * FEW)
    place.claim(10)
    place.engine.tend()
    read_both(place)  # opens and prepares
    few = work_of_reading(place)
    place.put(["mail"] * MANY)
    place.claim(10)
    place.engine.clock_offset_ms += MINUTE_MS
    place.engine.tend()
    many = work_of_reading(place)
    assert few > 0
    assert many <= few + 10, f"{many} instead of {few}, with {MANY} more jobs"
