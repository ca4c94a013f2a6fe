"""The files of `examples/deploy` agree with the product, and with one another."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest

import windlass_probe
from tests.deploy.files import (
    COMPOSE,
    DOCKERFILE,
    EXAMPLE,
    IMAGE,
    MANIFESTS,
    PROJECT,
    UNIT,
    Workload,
    compose,
    documents,
    instructions,
    pods,
    unit,
    workers,
    workloads,
)
from tests.docs.pages import blocks
from windlass import Windlass
from windlass.cli import root
from windlass.settings import read_settings
from windlass.worker.supervisor.retirement import KILL_S
from windlass.worker.supervisor.supervisor import _STOPPING, CLOSE_S, EXIT_USAGE

WORKERS = workers()
ALL = workloads()
PODS = [(owner, pod) for manifest in MANIFESTS for owner, pod in pods(manifest)]


def name_of(workload: Workload) -> str:
    return workload.name


def owner_of(pair: tuple[Any, Any]) -> str:
    return str(pair[0]["metadata"]["name"])


def parse(command: list[str]) -> click.Context:
    """Parse a command like the command line, without running it."""
    group: click.Command = root.windlass
    context = click.Context(group)
    rest = command[1:]
    while isinstance(group, click.Group):
        found = group.get_command(context, rest[0])
        assert found is not None, f"there is no {rest[0]}"
        group, rest = found, rest[1:]
    return group.make_context("windlass", rest)


def test_everything_that_runs_is_found() -> None:
    """A reader that finds nothing would let every other test here pass."""
    assert {workload.name.split()[0] for workload in WORKERS} == {
        *("Dockerfile", "compose", "systemd", "kubernetes"),
    }
    assert len(WORKERS) == 5
    assert len(ALL) == 8


# ------------------------------------------------------------------------------------- all of them


@pytest.mark.parametrize("workload", WORKERS, ids=name_of)
def test_commands_are_understood(workload: Workload) -> None:
    for command in [workload.command, *workload.live, *workload.ready]:
        assert Path(command[0]).name == "windlass"
        parse(command)


def test_a_wrong_command_is_found() -> None:
    with pytest.raises(click.UsageError):
        parse(["windlass", "worker", "shop.tasks:app", "--childs", "2"])


def test_commands_of_the_page_are_understood() -> None:
    lines = "".join(block.text for block in blocks(EXAMPLE / "README.md")).splitlines()
    commands = [shlex.split(line) for line in lines if line.startswith("windlass ")]
    assert len(commands) == 4
    for command in commands:
        parse(command)


@pytest.mark.parametrize("workload", ALL, ids=name_of)
def test_variables_are_settings(workload: Workload) -> None:
    settings = read_settings({}, workload.environment)
    with Windlass(settings.url) as app:
        assert app.engine.location, "the url can be read"


@pytest.mark.parametrize("workload", WORKERS, ids=name_of)
def test_there_is_time_to_stop(workload: Workload) -> None:
    """The grace period, the kill of stuck processes, and the last calls of the engine."""
    settings = read_settings({}, workload.environment)
    needed_s = settings.shutdown_grace_ms / 1000 + KILL_S + CLOSE_S
    assert workload.grace_s is None or workload.grace_s > needed_s


@pytest.mark.parametrize("workload", WORKERS, ids=name_of)
def test_the_signal_stops_it_gently(workload: Workload) -> None:
    assert signal.Signals[workload.signal] in _STOPPING


@pytest.mark.parametrize("workload", WORKERS, ids=name_of)
def test_an_outage_restarts_nothing(workload: Workload) -> None:
    assert all("--live" in command for command in workload.live)
    assert not any("--live" in command for command in workload.ready)


# --------------------------------------------------------------------------------------- the image


def test_the_image_has_stages_and_no_rights() -> None:
    found = instructions(DOCKERFILE)
    starts = [index for index, (name, _) in enumerate(found) if name == "FROM"]
    assert len(starts) == 2
    last = found[starts[-1] :]
    [user] = [rest for name, rest in last if name == "USER"]
    assert int(user) > 0
    assert [name for name, _ in last].index("USER") > max(
        index for index, (name, _) in enumerate(last) if name in ("RUN", "COPY")
    )
    users = {pod["securityContext"]["runAsUser"] for _, pod in PODS if runs_image(pod)}
    assert users == {int(user)}


def test_what_is_copied_into_the_image_is_there() -> None:
    lines = (EXAMPLE / "Dockerfile.dockerignore").read_text().splitlines()
    let_in = {line.removeprefix("!") for line in lines if line.startswith("!")}
    sources = {
        source
        for name, rest in instructions(DOCKERFILE)
        if name == "COPY" and "--from" not in rest
        for source in rest.split()[:-1]
    }
    assert sources == let_in
    assert all((PROJECT / source).exists() for source in sources)
    assert {"pyproject.toml", "README.md", "LICENSE", "src"} < sources, "what a build needs"


def test_its_python_is_supported() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    versions = {rest.split()[0] for name, rest in instructions(DOCKERFILE) if name == "FROM"}
    [image] = versions
    version = re.fullmatch(r"python:(\d\.\d+)-slim", image)
    assert version is not None
    assert f"Programming Language :: Python :: {version[1]}" in project["classifiers"]


# ----------------------------------------------------------------------------------------- compose


def test_the_server_of_compose_keeps_jobs() -> None:
    services = compose()["services"]
    redis = services["redis"]
    assert keeps_jobs(redis["command"])
    volume, _, path = redis["volumes"][0].partition(":")
    assert (volume in compose()["volumes"], path) == (True, "/data")
    for name in ("web", "worker"):
        assert services[name]["depends_on"] == {"redis": {"condition": "service_healthy"}}
        assert "//redis:" in services[name]["environment"]["WINDLASS_URL"]
        assert services[name]["tmpfs"] == ["/tmp"] if services[name]["read_only"] else True


def keeps_jobs(command: list[str]) -> bool:
    pairs = dict(zip(command[1::2], command[2::2], strict=True))
    return pairs["--appendonly"] == "yes" and pairs["--maxmemory-policy"] == "noeviction"


def test_the_paths_of_compose_lead_to_the_image() -> None:
    build = compose()["services"]["worker"]["build"]
    context = (COMPOSE.parent / build["context"]).resolve()
    assert (context, context / build["dockerfile"]) == (PROJECT, DOCKERFILE)


# ----------------------------------------------------------------------------------------- systemd


def test_the_unit_stops_and_restarts_as_a_worker_needs() -> None:
    values = unit()
    assert values["KillMode"] == ["mixed"]
    assert values["Restart"] == ["on-failure"]
    assert values["RestartPreventExitStatus"] == [str(EXIT_USAGE)]
    assert "WatchdogSec" not in values, "no worker tells systemd that it lives"
    assert values["Type"] == ["exec"], "nor that it is ready"


def test_the_folders_of_the_unit_are_where_it_looks() -> None:
    values = unit()
    environment = dict(value.split("=", 1) for value in values["Environment"])
    assert environment[windlass_probe.VARIABLE] == f"/run/{values['RuntimeDirectory'][0]}"
    assert f"////var/lib/{values['StateDirectory'][0]}/" in environment["WINDLASS_URL"]
    assert values["PrivateTmp"] == ["yes"]
    assert {*values["StateDirectoryMode"], *values["RuntimeDirectoryMode"]} == {"0700"}
    sockets = {"AF_UNIX", "AF_INET", "AF_INET6"}
    assert set(values["RestrictAddressFamilies"][0].split()) == sockets


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    """With an existing program in place of the missing one."""
    text = re.sub(r"(?m)^ExecStart=\S+", f"ExecStart={sys.executable}", UNIT.read_text())
    copy = tmp_path / UNIT.name
    copy.write_text(text)
    ran = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)],
        capture_output=True,
        text=True,
        check=False,
    )
    said = [line for line in ran.stderr.splitlines() if UNIT.name in line]
    assert said == []
    assert ran.returncode == 0, ran.stderr


# -------------------------------------------------------------------------------------- kubernetes


def runs_image(pod: Any) -> bool:
    return any(container["image"] == IMAGE for container in pod["containers"])


def urls_of(pod: Any) -> list[str]:
    variables = [variable for container in pod["containers"] for variable in container["env"]]
    return [one["value"] for one in variables if one["name"] == "WINDLASS_URL"]


@pytest.mark.parametrize("pair", PODS, ids=owner_of)
def test_a_sqlite_file_has_one_pod(pair: tuple[Any, Any]) -> None:
    owner, pod = pair
    if any(url.startswith("sqlite:") for url in urls_of(pod)):
        assert owner["spec"]["replicas"] == 1
        assert owner["spec"]["strategy"] == {"type": "Recreate"}
        assert len(pod["containers"]) == len(set(names_of(pod))) == len(urls_of(pod)) == 2
        assert len(set(urls_of(pod))) == 1


def names_of(pod: Any) -> list[str]:
    return [container["name"] for container in pod["containers"]]


def test_one_pod_alone_uses_a_volume() -> None:
    claims = [
        document["spec"]
        for manifest in MANIFESTS
        for document in documents(manifest)
        if document["kind"] == "PersistentVolumeClaim"
    ]
    templates = [
        claim["spec"]
        for owner, _ in PODS
        for claim in owner["spec"].get("volumeClaimTemplates", ())
    ]
    assert len(claims) == len(templates) == 1
    assert all(claim["accessModes"] == ["ReadWriteOnce"] for claim in [*claims, *templates])


@pytest.mark.parametrize("pair", PODS, ids=owner_of)
def test_volumes_and_labels_are_there(pair: tuple[Any, Any]) -> None:
    owner, pod = pair
    made = {claim["metadata"]["name"] for claim in owner["spec"].get("volumeClaimTemplates", ())}
    volumes = {volume["name"] for volume in pod.get("volumes", ())} | made
    mounted = {
        mount["name"]
        for container in pod["containers"]
        for mount in container.get("volumeMounts", ())
    }
    assert mounted == volumes
    labels = owner["spec"]["template"]["metadata"]["labels"]
    assert owner["spec"]["selector"]["matchLabels"] == labels


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda manifest: manifest.stem)
def test_services_secrets_and_claims_lead_somewhere(manifest: Path) -> None:
    found = documents(manifest)
    names = {kind: [one for one in found if one["kind"] == kind] for kind in kinds(found)}
    labels = [owner["spec"]["template"]["metadata"]["labels"] for owner, _ in pods(manifest)]
    assert all(service["spec"]["selector"] in labels for service in names["Service"])
    text = manifest.read_text()
    for name in re.findall(r"secretKeyRef: \{name: ([\w-]+), key: password\}", text):
        [secret] = names["Secret"]
        assert (secret["metadata"]["name"], "password" in secret["stringData"]) == (name, True)
    for name in re.findall(r"claimName: ([\w-]+)", text):
        assert name in [claim["metadata"]["name"] for claim in names["PersistentVolumeClaim"]]
    for host in re.findall(r"redis://.*@([\w-]+):6379", text):
        assert host in [service["metadata"]["name"] for service in names["Service"]]


def kinds(found: list[Any]) -> set[str]:
    return {one["kind"] for one in found}


@pytest.mark.parametrize("pair", [pair for pair in PODS if runs_image(pair[1])], ids=owner_of)
def test_a_worker_is_probed_and_bounded(pair: tuple[Any, Any]) -> None:
    _, pod = pair
    for container in pod["containers"]:
        assert {"requests", "limits"} == set(container["resources"])
        assert "memory" in container["resources"]["limits"]
        assert "lifecycle" not in container
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        if container["command"][0] == "windlass":
            mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
            assert "/tmp" in mounts, "the socket of windlass health is there"
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                assert container[probe]["timeoutSeconds"] > windlass_probe.TIMEOUT_S
            assert "-p" in container["command"], "the cores of the machine are not its own"


@pytest.mark.parametrize("pair", [pair for pair in PODS if not runs_image(pair[1])], ids=owner_of)
def test_the_server_of_a_manifest_keeps_jobs(pair: tuple[Any, Any]) -> None:
    owner, pod = pair
    [redis] = pod["containers"]
    assert owner["kind"] == "StatefulSet"
    assert owner["spec"]["replicas"] == 1
    assert keeps_jobs(redis["command"])
    assert [mount["mountPath"] for mount in redis["volumeMounts"]] == ["/data"]
