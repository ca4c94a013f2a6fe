"""The Redis servers of `examples/deploy` keep what they have confirmed, and have no problem."""

from __future__ import annotations

import pytest

from tests.deploy.files import IMAGE, MANIFESTS, compose, pods
from tests.redis_server import private_server
from windlass import State, Windlass
from windlass.engine.contract import Grade


def commands() -> list[list[str]]:
    services = compose()["services"].values()
    containers = [
        container
        for manifest in MANIFESTS
        for _, pod in pods(manifest)
        for container in pod["containers"]
    ]
    return [one["command"] for one in (*services, *containers) if one["image"] != IMAGE]


def without_password(command: list[str]) -> list[str]:
    """The tests log in by users of their own."""
    pairs = zip(command[1::2], command[2::2], strict=True)
    return [part for pair in pairs if pair[0] != "--requirepass" for part in pair]


def test_both_servers_are_found() -> None:
    assert [command[0] for command in commands()] == ["redis-server"] * 2


@pytest.mark.parametrize("command", commands(), ids=["compose", "kubernetes"])
def test_a_job_outlives_the_server(command: list[str]) -> None:
    server = private_server(*without_password(command))
    try:
        with Windlass(server.url()) as app:
            job = app.task(name="nothing")(nothing).enqueue()
            server.kill()
            server.start()
            assert job.info().state is State.READY
            assert not [one for one in app.engine.examine() if one.grade is Grade.PROBLEM]
    finally:
        server.end()


def nothing() -> None:
    """A task for a job to be kept."""
