"""The histograms of enqueues and runs."""

from __future__ import annotations

import pytest

from tests.telemetry.otel.collector import Collector
from windlass import EngineUnavailable, Windlass
from windlass.testing import Sandbox


def test_enqueues_and_runs_are_measured(collector: Collector, app: Windlass, box: Sandbox) -> None:
    @app.task(name="shop.work")
    def work(fails: bool) -> None:
        if fails:
            raise ValueError

    for fails in (False, False, True):
        work.enqueue(fails)
    work.enqueue_many([(False,), (False,)])
    box.drain(raise_errors=False)
    box.faults.refuse("put")
    with pytest.raises(EngineUnavailable):
        work.enqueue(True)
    common = {
        "messaging.system": "windlass",
        "messaging.destination.name": "default",
    }
    enqueue = {
        **common,
        "messaging.operation.name": "enqueue",
        "messaging.operation.type": "send",
    }
    run = {
        **common,
        "messaging.operation.name": "run",
        "messaging.operation.type": "process",
        "windlass.task": "shop.work",
    }
    away = "windlass.errors.EngineUnavailable"
    assert collector.durations("messaging.client.operation.duration") == {
        tuple(sorted(enqueue.items())): 4,  # the bulk is one
        tuple(sorted({**enqueue, "error.type": away}.items())): 1,
    }
    assert collector.durations("messaging.process.duration") == {
        tuple(sorted(run.items())): 4,
        tuple(sorted({**run, "error.type": "ValueError"}.items())): 1,
    }
