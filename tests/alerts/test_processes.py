"""Alerts of real processes: a worker, and `windlass serve` when all workers are gone."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tests.alerts.helpers import bury, receiving
from tests.alerts.incident import APP, KINDS, Scene, break_everything, repair_everything
from tests.contract.variants import fresh_url
from tests.worker.yard import until
from windlass.alerts.watch import TAKEOVER_S


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["sqlite-file", "redis-4", "postgres"])
def test_a_worker_fires_and_serve_clears_without_any_worker(tmp_path: Path, variant: str) -> None:
    with (
        receiving() as receiver,
        closing(Scene(tmp_path, fresh_url(variant, tmp_path), receiver)) as scene,
    ):
        ids = bury(scene.app, 4)
        worker = scene.yard.start(app=APP, environment=scene.environment)
        receiver.await_bodies(1)
        until(lambda: scene.hooks() == ["dead_letters firing"], "the hook in a child")
        worker.await_log("alert firing: 4 dead jobs, threshold 3")
        assert worker.stop() == 0
        scene.app.dead.discard(*ids)
        server = scene.serve()
        receiver.await_bodies(2)
        until(lambda: len(scene.hooks()) == 2, "the hook in the server")
        assert receiver.states() == ["dead_letters firing", "dead_letters cleared"]
        fired, cleared = receiver.bodies
        assert fired["id"] == cleared["id"]
        assert {fired["app"], cleared["app"]} == {APP}
        assert "alert cleared: 0 dead jobs" in server.log()
        assert server.stop() == 0
        assert {one.holder for one in scene.app.alerts.list() if one.state != "unknown"} == {""}


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["sqlite-file", "redis-4", "postgres"])
def test_each_alert_of_an_incident_fires_once_and_clears_once(tmp_path: Path, variant: str) -> None:
    """All workers are dead, and each process that holds the rules is killed."""
    with (
        receiving() as receiver,
        closing(Scene(tmp_path, fresh_url(variant, tmp_path), receiver)) as scene,
    ):
        worker = scene.yard.start(app=APP, environment=scene.environment)
        until(lambda: scene.holders() == {worker.pid}, "a look of the worker")
        worker.destroy()
        ids = break_everything(scene.app)
        first = scene.serve()
        receiver.await_bodies(len(KINDS), seconds=TAKEOVER_S + 30)
        until(lambda: len(scene.hooks()) == len(KINDS), "the hooks")
        assert set(receiver.states()) == {f"{kind} firing" for kind in KINDS}
        until(scene.is_delivered, "the end of the deliveries")
        first.kill()
        second = scene.serve()
        until(lambda: scene.holders() == {second.pid}, "the next holder", TAKEOVER_S + 30)
        repair_everything(scene.app, ids)
        receiver.await_bodies(2 * len(KINDS), seconds=30)
        until(lambda: len(scene.hooks()) == 2 * len(KINDS), "the hooks")
        assert (
            sorted(receiver.states())
            == sorted(scene.hooks())
            == sorted(f"{kind} {state}" for kind in KINDS for state in ("firing", "cleared"))
        )
        assert len({body["id"] for body in receiver.bodies}) == len(KINDS)
        assert second.stop() == 0
