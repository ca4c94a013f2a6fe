"""The harness on windlass itself, which needs no other installation."""

from __future__ import annotations

import socket

from benchmarks.peers.deployment import deployed
from benchmarks.peers.environments import Installation
from benchmarks.peers.measures import MEASURES
from benchmarks.peers.redis_recorder import RawConnections, RedisRecorder, command_name
from benchmarks.peers.session import plan
from benchmarks.peers.subjects import QUICK, InstalledSystem
from benchmarks.peers.systems import SYSTEMS
from benchmarks.peers.workloads import WORKLOADS, drain
from tests.redis_server import shared_server

HERE = Installation()


def subject(name: str) -> InstalledSystem:
    return InstalledSystem(SYSTEMS[name], HERE, QUICK)


def test_rounds_begin_with_another_system() -> None:
    subjects = [subject("windlass-redis"), subject("windlass-full"), subject("dramatiq")]
    steps = list(plan(subjects, ["enqueue"], runs=3))
    orders = [[step.subjects[0].system.name for step in steps if step.round == n] for n in range(3)]
    assert [order[0] for order in orders] == ["windlass-redis", "windlass-full", "dramatiq"]
    assert all(sorted(order) == sorted(orders[0]) for order in orders)


def test_systems_are_asked_only_for_what_they_have() -> None:
    subjects = [subject("celery-prefork"), subject("sidekiq"), subject("windlass-full")]
    steps = list(plan(subjects, ["bulk", "concurrent"], runs=1))
    asked = [(step.workload, step.subjects[0].system.name) for step in steps]
    assert asked == [
        ("bulk", "sidekiq"),
        ("bulk", "windlass-full"),
        ("concurrent", "windlass-full"),
    ]


def test_sleeping_workloads_take_all_systems_at_once() -> None:
    [step] = plan([subject("sidekiq"), subject("bullmq")], ["recovery"], runs=1)
    assert len(step.subjects) == 2
    rounds = {step.round for step in plan([subject("bullmq")], ["stored"], runs=5)}
    assert rounds == {0, 1, 2}


def test_two_processes_are_one_command_or_two() -> None:
    assert len(SYSTEMS["sidekiq"].worker_commands(2)) == 2
    [command] = SYSTEMS["windlass-full"].worker_commands(2, "async")
    assert command[-4:] == ["-p", "2", "-c", "100"]


def test_a_producer_and_a_worker_follow_the_protocol() -> None:
    with deployed(SYSTEMS["windlass-full"], HERE) as deployment:
        with deployment.producer() as producer:
            for method in ("single", "bulk", "concurrent"):
                assert producer.call(method, "noop", 2)["seconds"] > 0
        with deployment.workers() as workers:
            deployment.await_marks(6, workers, timeout_s=60)
            assert deployment.cpu_s(workers) > 0
            assert workers.memory_bytes() > 1_000_000
        assert not workers.members()
        assert deployment.read_marks() == ["."] * 6


def test_a_drain_gives_its_measures() -> None:
    taken = drain(subject("windlass-normal"), "noop", "sync", 1)
    assert set(taken) == {"drain-sync-1", "cpu-sync-1"}
    assert set(taken) <= set(MEASURES)
    assert all(value > 0 for value in taken.values())
    assert "drain-sync-1" in WORKLOADS


def test_recorded_commands_are_sent_again() -> None:
    server = shared_server()
    with RedisRecorder(server.port) as recorder:
        port = int(recorder.url.split(":")[-1].split("/")[0])
        with socket.create_connection(("127.0.0.1", port)) as client:
            for _ in range(3):
                client.sendall(b"*2\r\n$4\r\nINCR\r\n$13\r\npeers-counter\r\n")
                assert client.recv(100).startswith(b":")
        exchanges = recorder.exchanges
    assert [(command_name(one.request), one.commands) for one in exchanges] == [("INCR", 1)] * 3
    raw = RawConnections(server.port, exchanges)
    assert raw.replay(exchanges) > 0
    raw.close()
    assert server.tell("GET", "peers-counter") == b"$1\r\n6\r\n"
