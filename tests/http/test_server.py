"""The server around the API: slow senders, shutdown, and the command `windlass serve`."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import uvicorn

from tests.http.client import LoopThread
from tests.http.server_process import ServerProcess
from tests.worker.yard import PROJECT, until
from windlass import Windlass
from windlass.cli.root import exit_code_of
from windlass.http import ApiOptions, WindlassApi, server
from windlass.http.server import Address, make_server

APP = "tests.http.shop_app:app"


class Served:
    """The API behind a real socket, in a thread of this process."""

    def __init__(self, api: WindlassApi, loop: LoopThread) -> None:
        self._loop = loop
        self.socket = Address("127.0.0.1", 0).bind()
        self.socket.listen()
        self.port: int = self.socket.getsockname()[1]
        self.server = make_server(api)
        self._running = loop.run(self._start())
        until(lambda: self.server.started, "the start of the server")

    async def _start(self) -> asyncio.Task[None]:
        await asyncio.sleep(0)
        return asyncio.ensure_future(self.server.serve(sockets=[self.socket]))

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=10)

    def stop(self) -> None:
        self.server.should_exit = True
        self._loop.run(self._ended())

    async def _ended(self) -> None:
        await self._running


@pytest.fixture
def served(app: Windlass, options: ApiOptions, loop: LoopThread) -> Iterator[Served]:
    async def make() -> WindlassApi:
        return WindlassApi(app, options)

    served = Served(loop.run(make()), loop)
    yield served
    served.stop()


class TestSlowSenders:
    @pytest.fixture
    def options(self, monkeypatch: pytest.MonkeyPatch) -> ApiOptions:
        monkeypatch.setattr(server, "HEAD_TIMEOUT_S", 0.2)
        return ApiOptions(body_timeout_s=0.2)

    @pytest.mark.parametrize("sent", [b"", b"GET /v1/st", b"GET / HTTP/1.1\r\nHost: localhost\r\n"])
    def test_a_head_that_does_not_arrive_is_cut_off(self, served: Served, sent: bytes) -> None:
        with served.connect() as connection:
            connection.sendall(sent)
            assert connection.recv(1000) == b""

    def test_a_body_that_does_not_arrive_is_refused(self, served: Served) -> None:
        head = (
            b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 100\r\n\r\n{"
        )
        with served.connect() as connection:
            connection.sendall(head)
            answer = b""
            while chunk := connection.recv(1000):
                answer += chunk
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"request-timeout" in answer

    def test_the_next_head_has_a_deadline_too(self, served: Served) -> None:
        with served.connect() as connection:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer = b""
            while b'{"status":"ok"}' not in answer:
                answer += connection.recv(10_000)
            connection.sendall(b"G")
            assert connection.recv(1000) == b""

    def test_an_unread_body_has_a_deadline(self, served: Served) -> None:
        with served.connect() as connection:
            head = b"POST /nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n"
            connection.sendall(head)
            answer = connection.recv(10_000)
            assert answer.startswith(b"HTTP/1.1 404 ")
            connection.sendall(b"x")
            while chunk := connection.recv(10_000):
                answer += chunk
            assert answer.endswith(b"}")

    def test_a_connection_that_was_used_may_wait(self, served: Served) -> None:
        with httpx.Client(base_url=f"http://127.0.0.1:{served.port}") as client:
            assert client.get("/healthz").status_code == 200
            assert client.get("/healthz").status_code == 200


def test_bytes_that_are_not_http_get_a_problem(served: Served) -> None:
    with served.connect() as connection:
        connection.sendall(b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n")
        answer = connection.recv(10_000)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"application/problem+json" in answer


# ------------------------------------------------------------------------------------- the command


def serve(*options: str, url: str, code: int = 2) -> str:
    """Run the command to its end, and return what it says."""
    command = [sys.executable, "-m", "windlass", "serve", APP, "--url", url, *options]
    ended = subprocess.run(
        command, cwd=PROJECT, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == code, ended.stderr
    return ended.stderr


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "::ffff:10.0.0.1", "myhost"])
def test_an_address_of_other_machines_is_not_local(host: str) -> None:
    assert not Address(host, 0).is_local


def test_other_machines_are_not_served_without_tokens(engine_url: str) -> None:
    said = serve("--host", "0.0.0.0", url=engine_url)
    assert "access tokens" in said
    assert "windlass token create" in said


def test_other_machines_are_served_only_under_a_name(engine_url: str, app: Windlass) -> None:
    app.access_tokens.create(name="ops", role="operator")
    assert "--allowed-host" in serve("--host", "0.0.0.0", url=engine_url)


def test_a_server_that_requires_tokens_may_start_before_there_is_one(
    engine_url: str, tmp_path: Path
) -> None:
    options = ("--url", engine_url, "--host", "0.0.0.0", "--allowed-host", "*", "--require-token")
    server = ServerProcess(APP, tmp_path / "log", *options)
    try:
        assert httpx.get(f"http://127.0.0.1:{server.port}/v1/stats").status_code == 401
    finally:
        assert server.stop() == 0, server.log()


def test_a_missing_package_is_named_with_its_extra() -> None:
    script = "import sys; sys.modules['starlette.requests'] = None; import windlass.http"
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 1
    assert "pip install 'windlass-queue[server]'" in ended.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--allowed-host", "https://jobs.example.com"), "found 'https://jobs.example.com'"),
        (("--allowed-host", "jobs.example.com:8155"), "host names without scheme, port and path"),
        (("--allowed-host", "10.0.0.5:80"), "found '10.0.0.5:80'"),
        (("--proxy-header", "X-User", "--trusted-proxy", "nginx"), "found 'nginx'"),
        (("--proxy-header", "X-User", "--trusted-proxy", "10.0.0.0/8"), "IP addresses such as"),
        (("--proxy-header", "X User"), "found 'X User'"),
        (("--trusted-proxy", "10.0.0.5"), "needs --proxy-header"),
    ],
)
def test_an_option_that_no_request_can_match_is_refused(
    options: tuple[str, ...], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code_of(["serve", APP, *options]) == 2
    assert text in capsys.readouterr().err


def test_a_taken_port_is_reported(engine_url: str, served: Served) -> None:
    said = serve("--port", str(served.port), url=engine_url, code=1)
    assert f"port {served.port}" in said
    assert "in use" in said


def test_it_serves_and_stops(engine_url: str, tmp_path: Path) -> None:
    process = ServerProcess(APP, tmp_path / "log", "--url", engine_url)
    try:
        use_and_stop(process)
    finally:
        process.kill()


def use_and_stop(process: ServerProcess) -> None:
    assert httpx.get(f"{process.url}/readyz").status_code == 200
    assert httpx.get(f"{process.url}/v1/stats").status_code == 200
    process.process.send_signal(signal.SIGTERM)
    assert process.process.wait(20) == 0
    log = process.log()
    assert "open to this machine" in log
    assert "GET /v1/stats 200 in " in log
    assert "GET /readyz" not in log  # probes are logged at debug
    assert "stopping: got SIGTERM" in log


def test_uvicorn_has_what_is_overridden() -> None:
    """These methods are ours to override; a new version without them would ignore the overrides."""
    from uvicorn.protocols.http.h11_impl import H11Protocol

    for name in ("connection_made", "connection_lost", "data_received", "send_400_response"):
        assert callable(getattr(H11Protocol, name))
    for name in ("startup", "handle_exit"):
        assert callable(getattr(uvicorn.Server, name))
