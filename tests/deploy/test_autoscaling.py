"""The files of `examples/autoscaling` agree with the API, the metrics and the commands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import yaml

from tests.deploy.files import PROJECT
from windlass.cli.commands.serve import DEFAULT_PORT
from windlass.http.resources.scale import ScaleAnswer, ScaleQuery, read_scale
from windlass.http.routes import VIEWERS
from windlass.telemetry.metric_table import QUEUE_DEMAND

EXAMPLE = PROJECT / "examples" / "autoscaling"


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((EXAMPLE / name).read_text()))


def slots_in(file: Path) -> set[int]:
    """The slots of a pod in each command of a file."""
    found = re.findall(r"-p (\d+) -c (\d+)", file.read_text())
    return {int(processes) * int(slots) for processes, slots in found}


def test_keda_reads_a_field_of_the_answer() -> None:
    scaled, _ = documents("keda.yaml")
    (trigger,) = scaled["spec"]["triggers"]
    metadata = trigger["metadata"]
    kinds = {field.name: field.type for field in msgspec.structs.fields(ScaleAnswer)}
    assert kinds[metadata["valueLocation"]] is int
    assert (trigger["type"], metadata["format"]) == ("metrics-api", "json")
    assert int(metadata["targetValue"]) in slots_in(EXAMPLE / "keda.yaml")


def test_keda_asks_a_route_with_a_query_that_it_takes() -> None:
    scaled, _ = documents("keda.yaml")
    url = urlsplit(scaled["spec"]["triggers"][0]["metadata"]["url"])
    route = vars(read_scale)["windlass_route"]
    assert (route["method"], route["path"]) == ("GET", url.path)
    assert url.port == DEFAULT_PORT
    query = msgspec.convert(parse_qs(url.query), ScaleQuery)
    assert query.queue == ("mail",)


def test_keda_sends_the_token_of_a_role_that_may_read() -> None:
    text = (EXAMPLE / "keda.yaml").read_text()
    scaled, authentication = documents("keda.yaml")
    (trigger,) = scaled["spec"]["triggers"]
    assert trigger["metadata"]["authMode"] == "bearer"
    assert trigger["authenticationRef"]["name"] == authentication["metadata"]["name"]
    (secret,) = authentication["spec"]["secretTargetRef"]
    assert secret["parameter"] == "token"
    (role,) = re.findall(r"windlass token create \w+ --role (\w+) --queue mail", text)
    assert role in VIEWERS


def test_the_autoscaler_reads_a_metric_that_exists() -> None:
    (scaler,) = documents("hpa.yaml")
    (adapter,) = documents("prometheus-adapter.yaml")
    (metric,) = scaler["spec"]["metrics"]
    external = metric["external"]
    (rule,) = adapter["rules"]["external"]
    assert external["metric"]["name"] == rule["name"]["as"] == QUEUE_DEMAND.name
    assert set(external["metric"]["selector"]["matchLabels"]) <= set(QUEUE_DEMAND.labels)
    assert rule["seriesQuery"].startswith(QUEUE_DEMAND.name + "{")
    assert rule["metricsQuery"].startswith(f"max by ({QUEUE_DEMAND.labels[0]})")
    assert int(external["target"]["averageValue"]) in slots_in(EXAMPLE / "hpa.yaml")


def test_both_scale_the_same_workers_as_slowly_down() -> None:
    scaled, (scaler,) = documents("keda.yaml")[0], documents("hpa.yaml")
    assert scaled["spec"]["scaleTargetRef"]["name"] == scaler["spec"]["scaleTargetRef"]["name"]
    behaviour = scaled["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert behaviour == scaler["spec"]["behavior"]
