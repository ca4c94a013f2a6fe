"""The files of `examples/prometheus`: valid for Prometheus, and without names that do not exist."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.http.server_process import ServerProcess
from tests.telemetry.prometheus_server import PrometheusServer, find_program
from tests.telemetry.scrape import find_url
from tests.worker.yard import PROJECT, Yard, until
from windlass.core.states import State
from windlass.telemetry.metric_table import TABLE, Kind, Place

EXAMPLE = PROJECT / "examples" / "prometheus"
CONFIG = EXAMPLE / "prometheus.yml"
RULES = EXAMPLE / "windlass.rules.yml"
DASHBOARD = EXAMPLE / "grafana-dashboard.json"
SCHEMA = Path(__file__).parent / "grafana_schema.json"

_NAME = re.compile(r"\b(windlass(?:_[a-z0-9]+)+)(?:\{([^}]*)\})?")
_RECORDED = re.compile(r"\bwindlass:[a-z0-9_:]+")


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return found


def expressions() -> Iterator[str]:
    for rule in rules():
        yield rule["expr"]
    for panel in panels():
        yield from (target["expr"] for target in panel.get("targets", ()))


def series() -> dict[str, set[str]]:
    """The names of all series with their labels."""
    found = {}
    for metric in TABLE:
        labels = set(metric.labels)
        if metric.kind is Kind.HISTOGRAM:
            found[f"{metric.name}_bucket"] = {*labels, "le"}
            found[f"{metric.name}_sum"] = found[f"{metric.name}_count"] = labels
        else:
            found[metric.name] = labels
    return found


def test_every_series_of_an_expression_exists() -> None:
    known, recorded = series(), {rule["record"] for rule in rules() if "record" in rule}
    used = [one for expression in expressions() for one in _NAME.findall(expression)]
    assert used
    for name, matchers in used:
        assert name in known, name
        assert set(re.findall(r"([a-z_]+)[=!]", matchers)) <= known[name], (name, matchers)
    for expression in expressions():
        assert set(_RECORDED.findall(expression)) <= recorded, expression


def test_the_dashboard_shows_every_metric() -> None:
    shown = " ".join(expression for expression in expressions())
    used = {name for name, _ in _NAME.findall(shown)}
    missing = [one.name for one in TABLE if not any(name.startswith(one.name) for name in used)]
    assert not missing


def test_series_of_the_server_are_never_added_up() -> None:
    """Every instance of the server has the same numbers."""
    shared = [one.name for one in TABLE if one.place is Place.SERVE]
    for expression in expressions():
        for name in shared:
            for before in re.findall(rf"(\w+)(?: by \([^)]*\))? ?\((?:\w+\()?{name}", expression):
                assert before in ("max", "min", "delta", "increase", "rate"), expression


def test_alerts_say_what_to_do() -> None:
    for rule in rules():
        if "alert" in rule:
            assert rule["labels"]["severity"] in ("info", "warning", "critical")
            assert set(rule["annotations"]) == {"summary", "action"}


def test_the_dashboard_has_the_form_that_grafana_reads() -> None:
    schema = json.loads(SCHEMA.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(json.loads(DASHBOARD.read_text()), schema)
    assert len({panel["id"] for panel in panels()}) == len(panels())
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        grid = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(grid["x"], grid["x"] + grid["w"])
            for y in range(grid["y"], grid["y"] + grid["h"])
        }
        assert grid["x"] + grid["w"] <= 24
        assert not cells & taken, f"{panel['title']} covers another panel"
        taken |= cells


# -------------------------------------------------------------------------------- the real programs


def promtool(*arguments: str) -> None:
    ran = subprocess.run(
        [find_program("promtool"), *arguments],
        cwd=EXAMPLE,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_promtool_accepts_configuration_and_rules() -> None:
    promtool("check", "config", CONFIG.name)


def test_alerts_fire_in_incidents_and_only_then() -> None:
    promtool("test", "rules", "windlass.rules.test.yml")


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    yard = Yard(tmp_path, lease="30s", grace="10s", max_crashes=3)
    yield yard
    yard.close()


def config_for(folder: Path, targets: dict[str, str]) -> Path:
    """The example with other targets, and more often."""
    config = yaml.safe_load(CONFIG.read_text())
    config["global"] = {"scrape_interval": "500ms", "evaluation_interval": "500ms"}
    config["rule_files"] = [str(RULES)]
    for job in config["scrape_configs"]:
        job["static_configs"] = [{"targets": [targets[job["job_name"]]]}]
    file = folder / "prometheus.yml"
    file.write_text(yaml.safe_dump(config))
    return file


def test_a_prometheus_reads_a_server_and_a_worker(yard: Yard, tmp_path: Path) -> None:
    find_program("prometheus")
    worker = yard.start(metrics=":0")
    app, url = "tests.worker.apps.scripted:app", f"sqlite:///{tmp_path / 'jobs.db'}"
    server = ServerProcess(app, tmp_path / "serve.log", "--url", url)
    metrics = until(lambda: find_url(worker.log()), "the address of the metrics")
    targets = {
        "windlass-serve": server.url.removeprefix("http://"),
        "windlass-worker": metrics.removeprefix("http://").removesuffix("/metrics"),
    }
    prometheus = PrometheusServer(tmp_path, config_for(tmp_path, targets))
    try:
        yard.plain("one")
        yard.await_count(State.SUCCEEDED, 1)
        ended = 'windlass_jobs_finished_total{outcome="succeeded", task="plain"} == 1'
        until(lambda: prometheus.query(ended), "the run in Prometheus")
        stored = 'windlass_queue_jobs{queue="default", state="succeeded"} == 1'
        until(lambda: prometheus.query(stored), "the job in Prometheus")
        assert sorted(value for _, value in prometheus.query("windlass_up")) == [1, 1]
        for target in prometheus.ask("targets")["activeTargets"]:
            assert (target["health"], target["lastError"]) == ("up", "")
        groups = until(lambda: prometheus.ask("rules")["groups"], "the rules")
        loaded = [rule for group in groups for rule in group["rules"]]
        assert len(loaded) == len(rules())
        assert {rule["health"] for rule in loaded} <= {"ok", "unknown"}
        assert not prometheus.ask("alerts")["alerts"]
    finally:
        prometheus.end()
        server.kill()
