"""Workers over HTTP keep the promises of native workers, whatever dies.

1. Two instances of `windlass serve` behind nginx, three workers on node, 1,000 jobs of 300 ms. For
   30 s the proof kills a worker or an instance with SIGKILL every 2 s, and starts it again: no job
   is lost, and every extra start follows the kill of its worker.
2. A job that is claimed through one instance is finished through the other one after the first has
   died. A worker that is silent past its lease gets 409, and its report changes nothing.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec

from proofs.everywhere import on_every_engine
from tests.http.server_process import ServerProcess
from tests.redis_server import free_port
from tests.worker.yard import PROJECT, until
from windlass import State, Windlass

JOBS: Final = 1_000
JOB_MS: Final = 300
WORKERS: Final = 3
INSTANCES: Final = 2
KILLING_S: Final = 30.0
EVERY_S: Final = 2.0
APP: Final = "tests.http.shop_app:app"
#: Three heartbeats; a killed instance must be back in this time.
LEASE: Final = "6s"

_NGINX: Final = """
daemon off;
error_log {folder}/nginx-errors.log;
pid {folder}/nginx.pid;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/bodies;
    proxy_temp_path {folder}/proxied;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    upstream windlass {{
        {servers}
        keepalive 16;
    }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://windlass;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host localhost;
            proxy_set_header X-Forwarded-For $remote_addr;
            proxy_read_timeout 60s;
        }}
    }}
}}
"""


class Gateways:
    """Instances behind one nginx."""

    def __init__(self, folder: Path, url: str, token: str) -> None:
        self.url = url
        self.token = token
        self._folder = folder
        self._starts = 0
        self._ports = [free_port() for _ in range(INSTANCES)]
        self.instances = [self._start(port) for port in self._ports]
        self.port = free_port()
        self._nginx = self._start_nginx()

    def _start(self, port: int) -> ServerProcess:
        self._starts += 1
        log = self._folder / f"serve-{self._starts}.log"
        options = ("--url", self.url, "--rate-limit", "100000")
        environment = {"WINDLASS_LEASE": LEASE}
        return ServerProcess(APP, log, *options, environment=environment, port=port)

    def _start_nginx(self) -> subprocess.Popen[bytes]:
        executable = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
        if executable is None:
            raise FileNotFoundError("There is no nginx here: apt install nginx-light")
        servers = "\n".join(f"server 127.0.0.1:{port} fail_timeout=1s;" for port in self._ports)
        settings = _NGINX.format(folder=self._folder, port=self.port, servers=servers)
        file = self._folder / "nginx.conf"
        file.write_text(settings)
        nginx = subprocess.Popen([executable, "-c", str(file), "-p", str(self._folder)])
        until(lambda: _answers(self.port), "nginx")
        return nginx

    def replace(self, number: int) -> None:
        """Kill an instance, and start it again on its port."""
        self.instances[number].kill()
        self.instances[number] = self._start(self._ports[number])

    def close(self) -> None:
        self._nginx.terminate()
        self._nginx.wait()
        for instance in self.instances:
            instance.kill()


def _answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/healthz").status_code == 200
    except httpx.TransportError:
        return False


@on_every_engine
def prove_killed(folder: Path, url: str) -> Iterator[str]:
    ledger = folder / "ledger"
    ledger.touch()
    with ExitStack() as stack:
        app = stack.enter_context(Windlass(url, lease=LEASE))
        _, token = app.access_tokens.create(name="node", role="worker")
        gateways = Gateways(folder, url, token)
        stack.callback(gateways.close)
        task = app.task_named("proof.work", queue="remote")
        task.enqueue_many(task.bind(f"job-{number}", JOB_MS) for number in range(JOBS))
        workers = [_start_worker(gateways, ledger) for _ in range(WORKERS)]
        stack.callback(_kill_all, workers)
        killed, kills = _keep_killing(gateways, workers, ledger)
        yield f"{JOBS} jobs, {kills} kills of workers and instances in {KILLING_S:g} s"
        until(lambda: _succeeded(app) == JOBS, f"{JOBS} jobs: {app.stats().jobs}", 120)
        yield from _account(ledger, killed)
        problems = app.engine.check()
        assert not problems, problems
    yield "windlass check: records, indexes and counters agree"


def _start_worker(gateways: Gateways, ledger: Path) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        "WINDLASS_API": f"http://127.0.0.1:{gateways.port}",
        "WINDLASS_TOKEN": gateways.token,
        "LEDGER": str(ledger),
    }
    return subprocess.Popen(
        ["node", str(PROJECT / "proofs" / "http_worker.mjs")],
        env=environment,
        stderr=subprocess.DEVNULL,
    )


def _keep_killing(
    gateways: Gateways, workers: list[subprocess.Popen[bytes]], ledger: Path
) -> tuple[set[int], int]:
    """The process ids of all killed workers, and the number of kills."""
    killed: set[int] = set()
    kills = 0
    end = time.monotonic() + KILLING_S
    while time.monotonic() < end:
        time.sleep(EVERY_S)  # the pace of the killing is what is asked for
        kills += 1
        number = random.randrange(WORKERS + INSTANCES)
        if number >= WORKERS:
            gateways.replace(number - WORKERS)
            continue
        killed.add(workers[number].pid)
        _kill(workers[number])
        workers[number] = _start_worker(gateways, ledger)
    return killed, kills


def _kill(worker: subprocess.Popen[bytes]) -> None:
    worker.send_signal(signal.SIGKILL)
    worker.wait()


def _kill_all(workers: list[subprocess.Popen[bytes]]) -> None:
    for worker in workers:
        _kill(worker)


def _succeeded(app: Windlass) -> int:
    return app.stats().jobs.get(State.SUCCEEDED, 0)


def _account(ledger: Path, killed: set[int]) -> Iterator[str]:
    """Check that every extra start of a job follows the kill of its worker."""
    starts: dict[str, list[int]] = defaultdict(list)
    ended: set[str] = set()
    for line in ledger.read_text().splitlines():
        event, label, _, pid = line.split()
        if event == "start":
            starts[label].append(int(pid))
        else:
            ended.add(label)
    lost = [f"job-{number}" for number in range(JOBS) if f"job-{number}" not in ended]
    extra = sum(len(pids) - 1 for pids in starts.values())
    unexplained = sum(pid not in killed for pids in starts.values() for pid in pids[:-1])
    yield f"lost {len(lost)}, extra starts {extra}, unexplained {unexplained}"
    assert not lost
    assert not unexplained


# -------------------------------------------------------------------------------------- one worker


@on_every_engine
def prove_frozen(folder: Path, url: str) -> Iterator[str]:
    with ExitStack() as stack:
        app = stack.enter_context(Windlass(url, lease="2s"))
        servers = []
        for number in range(INSTANCES):
            environment = {"WINDLASS_LEASE": "2s"}
            log = folder / f"serve-{number}.log"
            server = ServerProcess(APP, log, "--url", url, environment=environment)
            stack.callback(server.kill)
            servers.append(server)
        first, second = (stack.enter_context(_client(server)) for server in servers)
        task = app.task_named("proof.work", queue="remote")

        job = task.enqueue("killed")
        claim = _claim(first, session := _session(first), 1)
        servers[0].kill()
        again = _claim(second, session, 1)
        assert again["token"] == claim["token"], "the same number returns the same claim"
        assert _finish(second, session, claim, "ok through the other") == 204
        assert job.result(timeout=5) == "ok through the other"
        yield "claimed through one instance, which was killed; finished through the other: ok"

        job = task.enqueue("frozen")
        stale = _claim(second, frozen := _session(second), 1)
        fresh = _claim(second, other := _session(second), 1)
        assert fresh["id"] == stale["id"]
        before = _dump(app, job.id)
        status = _finish(second, frozen, stale, "stale")
        assert _dump(app, job.id) == before, "a stale report changes nothing"
        assert _finish(second, other, fresh, "fresh") == 204
        assert job.result(timeout=5) == "fresh"
        yield f"a report after the lease: {status}, the record is unchanged byte for byte"
        assert status in (409, 410)


def _client(server: ServerProcess) -> httpx.Client:
    return httpx.Client(base_url=server.url, timeout=30)


def _session(client: httpx.Client) -> str:
    body = {"name": "proof", "tasks": ["proof.work"], "queues": ["remote"]}
    session: str = client.post("/v1/sessions", json=body).json()["session"]
    return session


def _claim(client: httpx.Client, session: str, nonce: int) -> dict[str, Any]:
    """Claim one job. Until there is one, poll again, as a worker does."""
    body = {"session": session, "nonce": nonce, "wait_s": 0.5}
    while True:
        answer = client.post("/v1/claims", json=body)
        assert answer.status_code == 200, answer.text
        claims: list[dict[str, Any]] = answer.json()["claims"]
        if claims:
            return claims[0]
        client.post(f"/v1/sessions/{session}/beat", json={"running": []})


def _finish(client: httpx.Client, session: str, claim: dict[str, Any], result: str) -> int:
    body = {"session": session, "token": claim["token"], "result": result}
    return client.post(f"/v1/claims/{claim['id']}/ack", json=body).status_code


def _dump(app: Windlass, id: str) -> bytes:
    return msgspec.msgpack.encode(app.engine.get([id]))
