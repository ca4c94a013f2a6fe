"""Timed calls of a real engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from windlass.engine.contract import Beat, EngineOptions
from windlass.engine.instrumented import TIMED_VERBS, instrument
from windlass.engine.url import open_engine
from windlass.errors import EngineError
from windlass.worker.ipc.call_times import CallTimes


def test_calls_and_errors_are_counted_apart(tmp_path: Path) -> None:
    times = CallTimes()
    engine = instrument(open_engine(f"sqlite:///{tmp_path}/jobs.db", EngineOptions()), times)
    engine.beat([])
    engine.beat([])
    with pytest.raises(EngineError):
        engine.beat([Beat(session="one", held=("id",) * 1_001)])
    engine.queues()  # not timed
    found = times.read()
    assert set(found) == {("beat", "ok"), ("beat", "error")}
    *buckets, sum_us = found["beat", "ok"]
    assert sum(buckets) == 2
    assert sum_us > 0
    assert sum(found["beat", "error"][:-1]) == 1
    engine.shutdown()


def test_other_attributes_are_those_of_the_engine(tmp_path: Path) -> None:
    plain = open_engine(f"sqlite:///{tmp_path}/jobs.db", EngineOptions())
    engine = instrument(plain, CallTimes())
    assert engine.location == plain.location
    assert engine.capabilities == plain.capabilities
    assert all(callable(getattr(plain, verb)) for verb in TIMED_VERBS), "no verb is misspelt"
    plain.shutdown()
