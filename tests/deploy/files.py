"""Parse the files of `examples/deploy`: what each of them runs, and how it is stopped.

1. Parsers for a Dockerfile, a systemd unit and YAML.
2. `workloads` finds everything that runs the image or the app, in all files.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from windlass.core.durations import to_ms

PROJECT: Final = Path(__file__).parent.parent.parent
EXAMPLE: Final = PROJECT / "examples" / "deploy"
DOCKERFILE: Final = EXAMPLE / "Dockerfile"
COMPOSE: Final = EXAMPLE / "compose.yaml"
UNIT: Final = EXAMPLE / "shop-worker.service"
MANIFESTS: Final = sorted((EXAMPLE / "kubernetes").glob("*.yaml"))
#: The name of the image of the Dockerfile in the manifests.
IMAGE: Final = "shop"
#: The default grace period of an orchestrator, in seconds.
DEFAULT_GRACE_S: Final = {"compose": 10.0, "kubernetes": 30.0}


class Workload(NamedTuple):
    """One process that a file starts and stops."""

    name: str
    command: list[str]
    environment: Mapping[str, str]
    grace_s: float | None  # between the stop signal and SIGKILL; None: set by the runtime
    signal: str
    live: list[list[str]]  # commands whose failure restarts it
    ready: list[list[str]]  # commands whose failure does not

    @property
    def is_worker(self) -> bool:
        return Path(self.command[0]).name == "windlass" and self.command[1] == "worker"


# ----------------------------------------------------------------------------------------- readers


def instructions(file: Path) -> list[tuple[str, str]]:
    """The instructions of the Dockerfile with their arguments, continuation lines joined."""
    lines = [line for line in file.read_text().splitlines() if not line.lstrip().startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    parts = [line.split(maxsplit=1) for line in joined.splitlines() if line.strip()]
    return [(name.upper(), rest.strip()) for name, rest in parts]


def unit() -> dict[str, list[str]]:
    """The values of each directive of the systemd unit; a directive may occur several times."""
    values: dict[str, list[str]] = {}
    for line in UNIT.read_text().splitlines():
        if line and line[0] not in "#[":
            name, _, value = line.partition("=")
            values.setdefault(name, []).append(value)
    return values


def compose() -> Any:
    return yaml.safe_load(COMPOSE.read_text())


def documents(manifest: Path) -> list[Any]:
    return list(yaml.safe_load_all(manifest.read_text()))


def pods(manifest: Path) -> Iterator[tuple[Any, Any]]:
    """All objects that create pods, and their pod specification."""
    for document in documents(manifest):
        if "template" in document.get("spec", {}):
            yield document, document["spec"]["template"]["spec"]


# --------------------------------------------------------------------------------------- workloads


def workloads() -> list[Workload]:
    return [_image(), *_services(), _unit(), *_containers()]


def workers() -> list[Workload]:
    return [workload for workload in workloads() if workload.is_worker]


def _image() -> Workload:
    last = dict(instructions(DOCKERFILE))
    health = last["HEALTHCHECK"].partition("CMD ")[2]
    environment = dict(part.split("=", 1) for part in shlex.split(last["ENV"]))
    return Workload(
        "Dockerfile",
        json.loads(last["CMD"]),
        environment,
        None,
        last["STOPSIGNAL"],
        [json.loads(health)],
        [],
    )


def _services() -> Iterator[Workload]:
    for name, service in compose()["services"].items():
        if service["image"] == IMAGE:
            test = service.get("healthcheck", {}).get("test", [])
            grace = service.get("stop_grace_period")
            yield Workload(
                f"compose {name}",
                service["command"],
                service["environment"],
                DEFAULT_GRACE_S["compose"] if grace is None else to_ms(grace, name=name) / 1000,
                service.get("stop_signal", _image().signal),
                [test[1:]] if test else _image().live,
                [],
            )


def _unit() -> Workload:
    values = unit()
    return Workload(
        "systemd",
        shlex.split(values["ExecStart"][-1]),
        dict(value.split("=", 1) for value in values["Environment"]),
        float(values["TimeoutStopSec"][-1]),
        values["KillSignal"][-1],
        [],
        [],
    )


def _containers() -> Iterator[Workload]:
    for manifest in MANIFESTS:
        for owner, pod in pods(manifest):
            for container in pod["containers"]:
                if container["image"] == IMAGE:
                    yield _container(f"{manifest.stem} {owner['metadata']['name']}", pod, container)


def _container(name: str, pod: Any, container: Any) -> Workload:
    return Workload(
        f"kubernetes {name} {container['name']}",
        container["command"],
        _expanded(container["env"]),
        float(pod.get("terminationGracePeriodSeconds", DEFAULT_GRACE_S["kubernetes"])),
        _image().signal,
        [_asked(container[probe]) for probe in _probes(container, "startup", "liveness")],
        [_asked(container[probe]) for probe in _probes(container, "readiness")],
    )


def _probes(container: Any, *kinds: str) -> list[str]:
    names = [f"{kind}Probe" for kind in kinds]
    return [name for name in names if "exec" in container.get(name, {})]


def _asked(probe: Any) -> list[str]:
    command: list[str] = probe["exec"]["command"]
    return command


def _expanded(variables: list[dict[str, Any]]) -> dict[str, str]:
    """Expand $(NAME) as Kubernetes does: an earlier variable; a secret becomes a dummy value."""
    found: dict[str, str] = {}
    for variable in variables:
        value = variable.get("value", "secret")
        found[variable["name"]] = re.sub(r"\$\((\w+)\)", lambda name: found[name[1]], value)
    return found
