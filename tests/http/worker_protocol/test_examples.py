"""The workers of examples/workers, with a real server: they work, stop, obey and recover.

The tests share a server, and each has a queue of its own. A test that closes or restarts its server
has its own: `own_server`.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest

from tests.http.server_process import ServerProcess
from tests.http.worker_protocol.programs import EXAMPLES, ExampleWorker, program
from tests.worker.yard import until
from windlass import Job, JobFailed, Reason, State, Windlass, WorkerInfo
from windlass.core.states import Counters
from windlass.engine.contract import SessionCommand

APP = "tests.http.worker_protocol.texts_app:app"
#: A job that a test holds: it runs until the file exists.
GATE = "gate"

MakeWorker = Callable[..., ExampleWorker]


def url_in(folder: Path) -> str:
    return f"sqlite:///{folder}/jobs.db?durability=normal"


@pytest.fixture(scope="module")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("server")


@pytest.fixture(scope="module")
def server(shared_folder: Path) -> Iterator[ServerProcess]:
    with ExitStack() as stack:
        yield start_server(url_in(shared_folder), shared_folder, stack)


@pytest.fixture
def app(shared_folder: Path) -> Iterator[Windlass]:
    with Windlass(url_in(shared_folder)) as app:
        yield app


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def own_server(tmp_path: Path, stack: ExitStack) -> ServerProcess:
    return start_server(url_in(tmp_path), tmp_path, stack)


@pytest.fixture
def own_app(tmp_path: Path, stack: ExitStack) -> Windlass:
    return stack.enter_context(Windlass(url_in(tmp_path)))


@pytest.fixture
def queue(tmp_path: Path) -> str:
    """The queue of the test."""
    return tmp_path.name


def start_server(
    url: str,
    folder: Path,
    stack: ExitStack,
    *,
    port: int = 0,
    name: str = "server",
    lease: str = "3s",
) -> ServerProcess:
    environment = {"WINDLASS_LEASE": lease}
    server = ServerProcess(
        APP, folder / f"{name}.log", "--url", url, environment=environment, port=port
    )
    stack.callback(server.kill)
    return server


@pytest.fixture(params=["shell", "node"])
def kind(request: pytest.FixtureRequest) -> str:
    program({"shell": "curl", "node": "node"}[request.param])
    return str(request.param)


@pytest.fixture
def make_worker(
    kind: str, server: ServerProcess, queue: str, tmp_path: Path, stack: ExitStack
) -> MakeWorker:
    """Start a worker of the kind, with tasks of the tests that the folder of the test controls."""
    made: list[ExampleWorker] = []

    def make(**variables: str) -> ExampleWorker:
        here = Path(__file__).parent
        commands = {
            "shell": [
                str(EXAMPLES / "shell" / "worker.sh"),
                "test.task",
                queue,
                str(here / "scripted.sh"),
            ],
            "node": ["node", str(EXAMPLES / "node" / "worker.mjs"), str(here / "scripted.mjs")],
        }
        environment = {
            "WINDLASS_API": server.url,
            "WINDLASS_QUEUES": queue,
            "FOLDER": str(tmp_path),
            **variables,
        }
        worker = ExampleWorker(commands[kind], environment, tmp_path / f"worker{len(made)}.log")
        stack.callback(worker.kill)
        made.append(worker)
        return worker

    return make


Enqueue = Callable[..., Job[str]]


@pytest.fixture
def enqueue(app: Windlass, queue: str) -> Enqueue:
    def enqueue(script: str, app: Windlass = app) -> Job[str]:
        return app.task_named("test.task").using(queue=queue).enqueue(script)

    return enqueue


def await_state(job: Job[str], state: State) -> None:
    until(lambda: job.info().state is state, f"{job.id} to be {state}")


def counters_of(app: Windlass, job: Job[str]) -> Counters:
    (record,) = app.engine.get([job.id])
    assert record is not None
    return record.counters


def workers_of(app: Windlass, queue: str) -> list[WorkerInfo]:
    return [worker for worker in app.workers() if worker.queues == (queue,)]


# ------------------------------------------------------------------------------- as in the examples


def test_the_examples_run(tmp_path: Path, stack: ExitStack) -> None:
    for name in ("curl", "node"):
        program(name)
    options = ("--url", url_in(tmp_path))
    server = ServerProcess("texts:app", tmp_path / "server.log", *options, folder=EXAMPLES)
    stack.callback(server.kill)
    environment = {"WINDLASS_API": server.url, "WINDLASS_QUEUES": "node"}
    for command in (
        ["shell/worker.sh", "text.reverse", "shell", "shell/reverse.sh"],
        ["node", "node/worker.mjs", "node/tasks.mjs"],
    ):
        log = tmp_path / f"{command[0].replace('/', '-')}.log"
        stack.callback(ExampleWorker(command, environment, log).kill)
    for task, text, result in (
        ("text.reverse", "abc", "cba"),
        ("text.count_words", "one two, two", {"one": 1, "two": 2}),
    ):
        body = {"task": task, "args": [text]}
        job = httpx.post(f"{server.url}/v1/jobs", json=body).json()
        ended = httpx.get(f"{server.url}/v1/jobs/{job['id']}/result?wait_s=20", timeout=30)
        assert ended.json()["result"] == result
    workers = httpx.get(f"{server.url}/v1/workers").json()["workers"]
    assert sorted(worker["queues"] for worker in workers) == [["node"], ["shell"]]


# ----------------------------------------------------------------------------------------- results


def test_results_failures_and_dead_letters(enqueue: Enqueue, make_worker: MakeWorker) -> None:
    jobs = [enqueue(script) for script in ("ok", "fail", "reject", "ok")]
    make_worker()
    assert [jobs[0].result(timeout=20), jobs[3].result(timeout=20)] == ["done ok", "done ok"]
    await_state(jobs[1], State.RETRYING)
    error = jobs[1].info().error
    assert error is not None
    assert 'it "went wrong"' in error.message + error.traceback
    with pytest.raises(JobFailed) as failed:
        jobs[2].result(timeout=20)
    assert failed.value.reason == Reason.REJECTED


def test_a_result_that_is_no_json_is_a_failure(enqueue: Enqueue, make_worker: MakeWorker) -> None:
    job = enqueue("garbage")
    make_worker()
    await_state(job, State.RETRYING)


# ------------------------------------------------------------------------------------ stop and obey


def test_a_stop_lets_the_running_job_end(
    app: Windlass,
    kind: str,
    queue: str,
    enqueue: Enqueue,
    make_worker: MakeWorker,
    tmp_path: Path,
) -> None:
    job = enqueue(GATE)
    worker = make_worker()
    until((tmp_path / f"started-{job.id}").exists, "the start of the job")
    worker.signal(signal.SIGTERM)
    if kind == "node":  # its other slots wait for jobs
        worker.await_line("stopping")
    later = enqueue("ok")
    (tmp_path / GATE).touch()
    assert worker.wait() == 0, worker.log()
    assert job.info().state is State.SUCCEEDED
    assert later.info().state is State.READY
    assert workers_of(app, queue) == []


def test_an_idle_worker_stops_at_once(
    app: Windlass, queue: str, enqueue: Enqueue, make_worker: MakeWorker
) -> None:
    worker = make_worker()
    worker.await_line("session")
    worker.signal(signal.SIGTERM)
    assert worker.wait(10) == 0, worker.log()
    assert workers_of(app, queue) == []
    assert enqueue("ok").info().state is State.READY


def test_an_operator_stops_a_worker(app: Windlass, queue: str, make_worker: MakeWorker) -> None:
    worker = make_worker()
    (known,) = until(lambda: workers_of(app, queue), "the worker")
    app.engine.command([known.children[0].session], SessionCommand.STOP)
    assert worker.wait() == 0, worker.log()


def test_a_cancelled_job_ends(enqueue: Enqueue, make_worker: MakeWorker, tmp_path: Path) -> None:
    job = enqueue(GATE)
    make_worker()
    until((tmp_path / f"started-{job.id}").exists, "the start of the job")
    job.cancel()
    await_state(job, State.CANCELLED)
    assert enqueue("ok").result(timeout=20) == "done ok"


class FirstJob(BaseHTTPRequestHandler):
    """An API that hands out one job, with the second claim, and notes the heartbeats."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._answer(self._reply(self.path.rpartition("/")[2], body))

    def do_DELETE(self) -> None:
        self._answer({})

    def _reply(self, verb: str, body: dict[str, Any]) -> dict[str, Any]:
        job = {"id": "a", "token": "b", "task": "test.task", "args": [GATE], "kwargs": {}}
        match verb:
            case "sessions":
                return {"session": "s", "lease_s": 3.0, "beat_s": 0.1}
            case "claims":
                claims = [{**job, "timeout_s": 3e6, "alone": False}] if body["nonce"] == 2 else []
                return {"claims": claims, "next_due_s": None}
            case "beat":
                assert isinstance(self.server, FirstJobServer)
                self.server.beats.append((body["running"], body.get("answered")))
                return {"state": "ok", "cancel": [], "lost": []}
            case _:
                return {"verdicts": ["ok"]}

    def _answer(self, body: dict[str, Any]) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(body, separators=(",", ":")).encode())

    def log_message(self, *_: object) -> None: ...


class FirstJobServer(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), FirstJob)
        self.beats: list[tuple[list[str], int | None]] = []


def test_a_heartbeat_names_the_newest_answered_claim(
    make_worker: MakeWorker, stack: ExitStack
) -> None:
    """The job may run for longer than a timer of node can measure."""
    api = stack.enter_context(FirstJobServer())
    thread = Thread(target=api.serve_forever)
    thread.start()
    stack.callback(thread.join)
    stack.callback(api.shutdown)
    make_worker(WINDLASS_API=f"http://127.0.0.1:{api.server_port}", WINDLASS_SLOTS="1")
    until(lambda: api.beats.count((["a"], 2)) >= 3, "heartbeats with the job and its claim")


# ------------------------------------------------------------------------------------- trouble


@pytest.mark.parametrize(
    "kind", ["node", pytest.param("shell", marks=pytest.mark.slow)], indirect=True
)
def test_a_frozen_worker_loses_its_job_and_changes_nothing(
    app: Windlass, enqueue: Enqueue, make_worker: MakeWorker, tmp_path: Path
) -> None:
    job = enqueue(GATE)
    frozen = make_worker()
    until((tmp_path / f"started-{job.id}").exists, "the start of the job")
    frozen.freeze()
    other = make_worker()
    until(lambda: counters_of(app, job).losses == 1, "the loss of the lease")
    (tmp_path / GATE).touch()
    assert job.result(timeout=30) == f"done {GATE}"
    (before,) = app.engine.get([job.id])
    frozen.thaw()
    frozen.await_line("gone")
    frozen.await_line("session", times=3)  # it has a new one
    assert app.engine.get([job.id]) == [before]
    other.kill()
    assert enqueue("ok").result(timeout=20) == "done ok", frozen.log()


@pytest.mark.slow
def test_a_restart_of_the_server_loses_nothing(
    own_app: Windlass,
    own_server: ServerProcess,
    enqueue: Enqueue,
    make_worker: MakeWorker,
    tmp_path: Path,
    stack: ExitStack,
) -> None:
    job = enqueue(GATE, own_app)
    worker = make_worker(WINDLASS_API=own_server.url)
    until((tmp_path / f"started-{job.id}").exists, "the start of the job")
    port = own_server.port
    own_server.kill()
    (tmp_path / GATE).touch()
    worker.await_line("no answer")
    start_server(url_in(tmp_path), tmp_path, stack, port=port, name="second")
    assert job.result(timeout=30) == f"done {GATE}"
    counters = counters_of(own_app, job)
    assert (counters.attempt, counters.losses) == (1, 0)
    assert enqueue("ok", own_app).result(timeout=30) == "done ok"


def test_a_worker_with_the_address_of_something_else_ends(
    make_worker: MakeWorker, server: ServerProcess
) -> None:
    lost = make_worker(WINDLASS_API=f"{server.url}/elsewhere")
    assert lost.wait() == 1
    assert "404" in lost.log()
    assert "There is nothing at /elsewhere/v1/sessions" in lost.log()
    assert "    at " not in lost.log()  # no stack trace


def test_the_address_may_end_with_a_slash(make_worker: MakeWorker, server: ServerProcess) -> None:
    make_worker(WINDLASS_API=f"{server.url}/").await_line("session ~")


def test_a_refused_worker_ends(
    own_app: Windlass,
    own_server: ServerProcess,
    queue: str,
    enqueue: Enqueue,
    make_worker: MakeWorker,
) -> None:
    own_app.access_tokens.create(name="other", role="worker")
    refused = make_worker(WINDLASS_API=own_server.url, WINDLASS_TOKEN="wl_wrong")
    assert refused.wait() != 0
    _, text = own_app.access_tokens.create(name="worker", role="worker", queues=[queue])
    make_worker(WINDLASS_API=own_server.url, WINDLASS_TOKEN=text)
    assert enqueue("ok", own_app).result(timeout=20) == "done ok"
    assert text not in json.dumps(own_app.workers(), default=str)
