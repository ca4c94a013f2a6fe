"""The metrics of real workers: exact counts, the port, and children that come and go."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.error import HTTPError

import psutil
import pytest

from tests.telemetry.scrape import Scrape, find_url, scrape
from tests.worker.yard import Worker, Yard, until
from windlass.core.states import State
from windlass.errors import SettingError
from windlass.telemetry.metric_table import TABLE, Place
from windlass.worker.options import WorkerOptions, read_address
from windlass.worker.supervisor.metrics_server import MOST_CONNECTIONS, MetricsServer

FINISHED = "windlass_jobs_finished_total"


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    """What a worker counts does not depend on the engine."""
    yard = Yard(tmp_path, lease="30s", grace="10s", max_crashes=3)
    yield yard
    yard.close()


def url_of(worker: Worker) -> str:
    return until(lambda: find_url(worker.log()), "the address of the metrics")


def finished(found: Scrape) -> dict[tuple[str, str], int]:
    """Runs by task and outcome, without zeros."""
    counts: Counter[tuple[str, str]] = Counter()
    for (outcome, _queue, task), number in found.samples(FINISHED).items():
        counts[task, outcome] += int(number)
    return {pair: number for pair, number in counts.items() if number}


def test_the_counts_are_those_of_a_recount(yard: Yard) -> None:
    began = time.time()
    for number in range(30):
        yard.plain(f"good{number}")
        yard.coroutine(f"late{number}", "fail_before:3")
    for number in range(5):
        yard.plain(f"bad{number}", "fail")
        yard.coroutine(f"refused{number}", "reject")
    worker = yard.start(processes=2, metrics="127.0.0.1:0")
    url = url_of(worker)
    yard.await_count(State.SUCCEEDED, 60)
    yard.await_count(State.DEAD, 10)

    expected = {
        ("plain", "succeeded"): 30,
        ("plain", "retried"): 5 * 2,
        ("plain", "dead"): 5,
        ("coroutine", "succeeded"): 30,
        ("coroutine", "retried"): 30 * 2,
        ("coroutine", "dead"): 5,
    }
    until(lambda: finished(scrape(url)) == expected, f"{expected}, not {finished(scrape(url))}")
    found = scrape(url)
    runs = sum(expected.values())
    assert len([line for line in yard.lines() if line.startswith("start")]) == runs
    assert found.value("windlass_job_wait_seconds_count", "default") == runs
    assert sum(found.samples("windlass_job_run_seconds_count").values()) == runs
    assert found.value("windlass_worker_slots", "free") == 8
    assert found.value("windlass_children", "shared") == 2
    assert found.value("windlass_up") == 1
    assert found.value("windlass_engine_call_seconds_count", "ok", "turn") > 0
    assert found.value("windlass_engine_call_seconds_count", "ok", "beat") > 0
    assert began < found.value("windlass_last_claim_timestamp_seconds") < time.time()


def test_only_metrics_of_workers_are_served(yard: Yard) -> None:
    worker = yard.start(metrics="127.0.0.1:0")
    url = url_of(worker)
    worker.await_log("ready:")
    types = {line.split()[2] for line in scrape(url).text.splitlines() if line.startswith("# TYPE")}
    assert types == {one.name for one in TABLE if one.place is not Place.SERVE}


def test_no_counter_goes_back_when_a_child_dies(yard: Yard) -> None:
    worker = yard.start(metrics="127.0.0.1:0")
    url = url_of(worker)
    yard.plain("first")
    yard.await_count(State.SUCCEEDED, 1)
    until(lambda: finished(scrape(url)), "the run of the first job")
    before = scrape(url)
    [child] = worker.children()
    os.kill(child, signal.SIGKILL)
    until(lambda: scrape(url).value("windlass_children_started_total") == 2, "another child")
    after = scrape(url)
    for name in (FINISHED, "windlass_engine_call_seconds_count", "windlass_job_wait_seconds_sum"):
        for labels, number in before.samples(name).items():
            assert after.samples(name)[labels] >= number, (name, labels)
    last = "windlass_last_claim_timestamp_seconds"
    assert after.value(last) >= before.value(last) > 0
    yard.plain("second")
    until(lambda: finished(scrape(url)) == {("plain", "succeeded"): 2}, "the run of the second")


def test_a_taken_port_is_an_error_at_the_start(yard: Yard) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        worker = yard.start(metrics=address)
        assert worker.wait() == 1
    assert f"cannot serve metrics on {address}: Address already in use" in worker.log()
    assert "started:" not in worker.log()


def test_the_port_is_free_when_the_worker_has_stopped(yard: Yard) -> None:
    worker = yard.start(metrics="127.0.0.1:0")
    url = url_of(worker)
    worker.await_log("ready:")
    assert worker.stop() == 0
    again = yard.start(metrics=url.removeprefix("http://").removesuffix("/metrics"))
    assert url_of(again) == url


def test_other_paths_are_refused(yard: Yard) -> None:
    url = url_of(yard.start(metrics=":0"))
    assert url.startswith("http://127.0.0.1:"), "a port alone is one of this machine"
    with pytest.raises(HTTPError, match="404") as caught:
        urllib.request.urlopen(url.removesuffix("metrics"))
    assert "/metrics" in caught.value.read().decode()


def test_clients_that_do_not_finish_their_request_are_few_and_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("windlass.worker.supervisor.metrics_server.TIMEOUT_S", 0.5)
    with MetricsServer("127.0.0.1:0", tuple) as url, ExitStack() as clients:
        address = "127.0.0.1", int(url.split(":")[2].partition("/")[0])
        before = threading.active_count()
        held = [
            clients.enter_context(socket.create_connection(address))
            for _ in range(3 * MOST_CONNECTIONS)
        ]
        stopping = threading.Event()

        def drip() -> None:  # no pause is as long as the time limit of one read
            while not stopping.wait(0.05):
                for client in held:
                    with suppress(OSError):
                        client.send(b"G")

        dripping = threading.Thread(target=drip)
        dripping.start()
        try:
            until(lambda: _is_closed(held[-1]), "a client too many to be refused")
            assert threading.active_count() - before <= 2 * MOST_CONNECTIONS + 1
            until(lambda: all(map(_is_closed, held)), "slow clients to be cut off", seconds=5)
        finally:
            stopping.set()
            dripping.join()
        scrape(url)  # there is room again


def _is_closed(client: socket.socket) -> bool:
    client.settimeout(0.01)
    try:
        return not client.recv(1)
    except TimeoutError:
        return False
    except OSError:
        return True


def test_metrics_are_off_by_default(yard: Yard) -> None:
    worker = yard.start()
    worker.await_log("ready:")
    assert not psutil.Process(worker.pid).net_connections("inet")
    assert not find_url(worker.log())


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9464", ("127.0.0.1", 9464)),
        (":9464", ("127.0.0.1", 9464)),
        ("0.0.0.0:0", ("0.0.0.0", 0)),
        ("[::1]:80", ("::1", 80)),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, address: tuple[str, int]) -> None:
    assert read_address(text) == address


@pytest.mark.parametrize("text", ["", "9464", "host", "host:", ":65536", "::1:80", "h:-1", "h:x"])
def test_other_addresses_are_refused(text: str) -> None:
    with pytest.raises(SettingError, match="expected HOST:PORT such as"):
        WorkerOptions("shop:app", metrics=text)
