"""URLs of Redis servers, and the servers that are refused."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.engine.conftest import OpenRedis, new_job
from tests.redis_server import RedisServer, free_port, private_server
from windlass.core.states import State
from windlass.engine.contract import Beat, Capability, EngineOptions, Plan, Waiter
from windlass.engine.redis.keys import key
from windlass.engine.redis.setup import check_fit, describe_persistence, read_info
from windlass.engine.redis.url import RedisAddress, read_address
from windlass.engine.url import open_engine
from windlass.errors import EngineError, EngineUnavailable, FormatTooNew


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://localhost", RedisAddress(host="localhost")),
        ("redis://h:7/3?partitions=4", RedisAddress(host="h", port=7, database=3, partitions=4)),
        (
            "rediss://me:p%40ss@h/0?ca_file=/etc/ca.pem",
            RedisAddress(
                host="h",
                username="me",
                password="p@ss",
                is_encrypted=True,
                ca_file="/etc/ca.pem",
            ),
        ),
        (
            "rediss://h?cert_file=/a%26b.pem&key_file=key.pem",
            RedisAddress(host="h", is_encrypted=True, cert_file="/a&b.pem", key_file="key.pem"),
        ),
        ("redis://:secret@h", RedisAddress(host="h", password="secret")),
        ("unix:///run/redis.sock?database=2", RedisAddress(path="/run/redis.sock", database=2)),
        (
            "redis://h?namespace=a.b-c_1&allow_eviction=1",
            RedisAddress(host="h", namespace="a.b-c_1", allow_eviction=True),
        ),
    ],
)
def test_urls(url: str, address: RedisAddress) -> None:
    assert read_address(url) == address


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("redis:///0", "redis://localhost:6379/0"),
        ("redis://h:none", "redis://localhost:6379/0"),
        ("redis://h/name", "number of the database"),
        ("redis://h?durability=full", "found durability"),
        ("redis://h?partitons=4", r"found partitons\. Did you mean partitions\?"),
        ("redis://h?partitions=0", "partitions=1 to 1024"),
        ("redis://h?partitions=many", "partitions=1 to 1024"),
        ("redis://h?namespace={a}", "namespace of 1 to 100 letters"),
        ("redis://h?allow_eviction=yes", "allow_eviction=0"),
        ("unix://run/redis.sock", "three slashes"),
        ("redis://:pa/ss@host/0", "a slash before the @.*%2F for /"),
        ("redis://:p@ss#w/rd@host/0", "a # before the @.*%23 for #"),
        ("redis://:pa#ss@host/0", "a # before the @"),
        ("redis://:pa?ss@host/0", "a question mark before the @.*%3F for ?"),
        ("redis://user:pa?ss@host/0", "a question mark before the @"),
        ("mysql://h", "sqlite:///, redis://, rediss://, unix:// or postgresql://"),
    ],
)
def test_urls_that_make_no_sense(url: str, words: str) -> None:
    with pytest.raises(EngineError, match=words):
        open_engine(url, EngineOptions())


def test_a_password_is_never_shown() -> None:
    address = read_address("redis://me:secret@h")
    engine = open_engine("redis://me:secret@h", EngineOptions())
    assert "secret" not in f"{address} {address!r} {engine.location}"


def test_a_namespace_is_shown_unless_it_is_the_usual_one() -> None:
    for url, location in {
        "redis://h/1": "redis h:6379/1",
        "redis://h/1?namespace=windlass": "redis h:6379/1",
        "redis://h/1?namespace=shop": "redis h:6379/1 (namespace shop)",
    }.items():
        assert open_engine(url, EngineOptions()).location == location


def test_the_driver_is_named_where_it_is_missing() -> None:
    code = (
        "import sys; sys.modules['redis'] = None\n"
        "from windlass.engine.url import open_engine\n"
        "from windlass.engine.contract import EngineOptions\n"
        "from windlass.errors import EngineError\n"
        "try: open_engine('redis://h', EngineOptions())\n"
        "except EngineError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "windlass-queue[redis]', or in a clone pip install '.[redis]'" in done.stdout


def test_a_unix_socket(server: RedisServer, open_redis: OpenRedis) -> None:
    engine = open_redis(f"unix://{server.folder}/socket?namespace=by-socket")
    engine.put([new_job()])
    assert engine.get(["job-000000"]) != [None]


def make_certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """A self-signed certificate for localhost, and its key."""
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "1", "-keyout", key, "-out", certificate, "-subj", f"/CN={name}"),
            *("-addext", "subjectAltName=DNS:localhost"),
        ],
        check=True,
        capture_output=True,
    )
    return certificate, key


@contextmanager
def serve_tls(certificate: Path, key: Path, trusted: Path, *settings: str) -> Iterator[int]:
    port = free_port()
    server = private_server(
        *("--tls-port", str(port), "--tls-cert-file", str(certificate), "--tls-key-file", str(key)),
        *("--tls-ca-cert-file", str(trusted), *settings),
    )
    try:
        yield port
    finally:
        server.end()


@pytest.fixture
def tls_server(tmp_path: Path) -> Iterator[tuple[int, Path]]:
    """A server with a self-signed certificate for localhost: its port, and the certificate."""
    certificate, key = make_certificate(tmp_path, "server")
    with serve_tls(certificate, key, certificate, "--tls-auth-clients", "no") as port:
        yield port, certificate


def test_a_certificate_is_verified(tls_server: tuple[int, Path], open_redis: OpenRedis) -> None:
    port, certificate = tls_server
    engine = open_redis(f"rediss://localhost:{port}?ca_file={certificate}")
    engine.put([new_job()])
    engine.wait([Waiter("worker", Plan(queues=("other",)))], 10)
    assert engine.get(["job-000000"]) != [None]
    for url in (f"rediss://localhost:{port}", f"rediss://127.0.0.1:{port}?ca_file={certificate}"):
        started = time.monotonic()
        with pytest.raises(EngineError, match="not trusted") as caught:
            open_redis(url).stats()
        assert not isinstance(caught.value, EngineUnavailable)
        assert time.monotonic() - started < 3


@pytest.mark.parametrize("content", ["key", "nothing", "cut"])
def test_a_ca_file_without_a_certificate_is_refused_at_once(
    tls_server: tuple[int, Path], open_redis: OpenRedis, content: str
) -> None:
    port, certificate = tls_server
    file = certificate.with_name(f"{content}.pem")
    file.write_text(
        {
            "key": certificate.with_suffix(".key").read_text(),
            "nothing": "",
            "cut": certificate.read_text()[:300],
        }[content]
    )
    started = time.monotonic()
    told = (
        rf"The file {file} of the option ca_file .* has no certificate that can be read \(.+\)\. "
        "Expected PEM.* the certificate of the server, or of the CA"
    )
    with pytest.raises(EngineError, match=told) as caught:
        open_redis(f"rediss://localhost:{port}?ca_file={file}").stats()
    assert not isinstance(caught.value, EngineUnavailable)
    assert time.monotonic() - started < 3


@pytest.mark.parametrize("database", [0, 2], ids=["no login", "with a login"])
def test_a_url_without_tls_to_a_port_with_tls(
    tls_server: tuple[int, Path], open_redis: OpenRedis, database: int
) -> None:
    """The first call sets the server up, so the job itself is not sent."""
    engine = open_redis(f"redis://localhost:{tls_server[0]}/{database}", timeout_ms=300)
    told = (
        r"did not answer for 0\.\d s .*; if it speaks TLS on this port, write rediss:// in the url"
    )
    with pytest.raises(EngineUnavailable, match=told) as caught:
        engine.put([new_job()])
    assert caught.value.unsent


def test_jobs_are_handed_off_by_tls(tls_server: tuple[int, Path], open_redis: OpenRedis) -> None:
    """Some of them are larger than one read of the driver."""
    port, certificate = tls_server
    url = f"rediss://localhost:{port}?ca_file={certificate}"
    waiting, putting = open_redis(url), open_redis(url)
    waiting.beat([Beat(session="worker", info=b"it")])
    for number, size in enumerate((1, 16_000)):
        waiters = [Waiter("worker", Plan(), f"nonce-{number}")]
        assert waiting.wait(waiters, 1) == []
        putting.put([new_job(number, payload=b"x" * size)])
        [record] = putting.get([f"job-{number:06d}"])
        assert record is not None
        assert record.state is State.RUNNING
        [wake_up] = waiting.wait(waiters, 5_000)
        batch = waiting.read_handoff(wake_up.handed, f"nonce-{number}")
        assert batch is not None
        assert [len(claim.payload) for claim in batch.claims] == [size]


@pytest.mark.parametrize("tls", ["TLSv1.2", "TLSv1.3"])
def test_a_server_that_asks_for_a_client_certificate(
    tmp_path: Path, open_redis: OpenRedis, tls: str
) -> None:
    certificate, key = make_certificate(tmp_path, "server")
    client, client_key = make_certificate(tmp_path, "client")
    stranger, stranger_key = make_certificate(tmp_path, "stranger")
    both = tmp_path / "both.pem"
    both.write_text(client.read_text() + client_key.read_text())
    with serve_tls(certificate, key, client, "--tls-protocols", tls) as port:
        place = f"rediss://localhost:{port}?ca_file={certificate}"
        for number, files in enumerate(
            (f"cert_file={client}&key_file={client_key}", f"cert_file={both}")
        ):
            engine = open_redis(f"{place}&{files}")
            engine.put([new_job(number)])
            assert engine.get([f"job-{number:06d}"]) != [None]
        for files, told in {
            "": r"it asks for a client certificate: give \?cert_file= and &key_file=",
            f"&cert_file={stranger}&key_file={stranger_key}": "It does not accept the certificate",
            f"&cert_file={client}&key_file={stranger_key}": "Check cert_file and key_file .* pair",
            f"&cert_file={client}": "Check cert_file and key_file",
            f"&cert_file={tmp_path}/none.pem": r"option cert_file .* \(No such file",
        }.items():
            started = time.monotonic()
            with pytest.raises(EngineError, match=f"(?i){told}") as caught:
                open_redis(f"{place}{files}").stats()
            assert not isinstance(caught.value, EngineUnavailable)
            assert time.monotonic() - started < 3


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("redis://h?ca_file=/ca.pem", "ca_file of a redis url is for TLS, found redis://"),
        ("unix:///socket?cert_file=/a.pem", "Write rediss://, or leave out cert_file"),
        ("rediss://h?key_file=/key.pem", "add cert_file=, the file with the certificate"),
        ("rediss://h?cert_file=", "the path of a file after cert_file="),
        ("rediss://h?certfile=/a.pem", "Did you mean cert_file?"),
    ],
)
def test_files_that_make_no_sense_are_refused(url: str, told: str) -> None:
    with pytest.raises(EngineError, match=re.escape(told)):
        read_address(url)


# ------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("version", ["5.0.7", "6.0.16", "6.1"])
def test_an_old_server_is_refused(version: str) -> None:
    with pytest.raises(EngineError, match=rf"6\.2 or newer.*{version}"):
        check_fit({"redis_version": version}, RedisAddress(host="h"))


@pytest.mark.parametrize("version", ["6.2.0", "7.0.15", "10.0"])
def test_newer_servers_are_fine(version: str) -> None:
    check_fit({"redis_version": version}, RedisAddress(host="h"))


def test_a_server_that_drops_keys_is_refused(open_redis: OpenRedis) -> None:
    server = private_server("--maxmemory-policy", "allkeys-lru")
    try:
        with pytest.raises(EngineError, match=r"allkeys-lru.*noeviction"):
            open_redis(server.url()).put([new_job()])
        accepting = open_redis(server.url(allow_eviction=1))
        accepting.put([new_job()])
        (finding,) = [one for one in accepting.examine() if one.subject == "eviction"]
        assert "allkeys-lru, accepted by allow_eviction=1" in finding.text
    finally:
        server.end()


def test_what_is_written_to_disk_is_said() -> None:
    for aof, word in (("1", "append-only"), ("0", "lost when the server stops")):
        info = read_info(f"# A\r\nredis_version:7.0.1\r\naof_enabled:{aof}\r\n".encode())
        assert word in describe_persistence(info, None)


def test_the_number_of_partitions_is_settled_at_the_first_use(
    server: RedisServer, open_redis: OpenRedis
) -> None:
    namespace = "settled"
    first = open_redis(server.url(namespace=namespace, partitions=4))
    assert Capability.STRICT_ORDER not in first.capabilities
    first.put([new_job()])
    open_redis(server.url(namespace=namespace, partitions=4)).stats()
    for other in ({}, {"partitions": 3}):
        with pytest.raises(EngineError, match=r"with 4 partitions.*partitions=4"):
            open_redis(server.url(namespace=namespace, **other)).stats()


def test_a_newer_format_is_refused(server: RedisServer, open_redis: OpenRedis) -> None:
    url = server.url(namespace="newer")
    open_redis(url).stats()
    server.tell("HSET", key("newer", 0, "meta"), "format", "99")
    server.tell("DEL", key("newer", 0, "lines"))
    with pytest.raises(FormatTooNew, match="format 99"):
        open_redis(url).stats()
    assert server.tell("EXISTS", key("newer", 0, "lines")) == b":0\r\n"  # nothing was added


def test_an_older_format_is_refused(server: RedisServer, open_redis: OpenRedis) -> None:
    url = server.url(namespace="older")
    open_redis(url).stats()
    server.tell("HSET", key("older", 0, "meta"), "format", "1")
    with pytest.raises(EngineError, match=r"format 1; this one stores format 4.*windlass migrate"):
        open_redis(url).stats()
