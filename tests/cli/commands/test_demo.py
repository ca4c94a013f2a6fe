"""The demonstration ends by itself with its proof, and the proof fails when it should."""

from __future__ import annotations

import re
import shlex
import subprocess
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from tests.app.hand import Hand
from tests.cli.shell import Shell
from tests.postgres_server import OWNER, shared_server
from tests.redis_server import free_port, private_server
from windlass import Windlass
from windlass.cli.commands.demo.place import choose_url, removals
from windlass.cli.commands.demo.proof import Proof, prove
from windlass.cli.commands.demo.worker_process import describe_exit
from windlass.core.ids import new_nonce
from windlass.engine.contract import Plan, Succeeded
from windlass.engine.postgres.url import read_address as read_postgres
from windlass.engine.redis.keys import KINDS, key
from windlass.engine.redis.url import read_address
from windlass.testing.contract.world import claim_jobs


def test_nothing_is_lost(shell: Shell) -> None:
    ran = shell.type("demo", TMPDIR=str(shell.folder))
    assert ran.code == 0, ran.out
    assert ran.err == ""
    assert "Nothing was lost." in ran.out
    assert "was killed with SIGKILL while it held" in ran.out
    assert "ended cleanly" in ran.out
    [folder] = shell.folder.glob("windlass-demo-*")
    assert f"rm -r {folder}" in ran.out
    for hint in re.findall(r"^  (\S+ (?:status|dead list|check) --url .*)$", ran.out, re.MULTILINE):
        subprocess.run(["bash", "-c", hint], cwd=shell.folder, check=True, capture_output=True)
    assert "  docs/quickstart.md" in ran.out


@pytest.mark.slow
def test_nothing_is_lost_on_a_server(shell: Shell) -> None:
    server = private_server()
    server.tell("CONFIG", "SET", "requirepass", "secret")
    try:
        url = f"redis://default:secret@127.0.0.1:{server.port}/1?partitions=2"
        ran = shell.type("demo", TMPDIR=str(shell.folder), WINDLASS_URL=url)
        assert (ran.code, ran.err) == (0, ""), ran.out
        assert "Nothing was lost." in ran.out
        assert "was killed with SIGKILL while it held" in ran.out
        assert "secret" not in ran.out
        printed = ran.out.replace("***", "default:secret")
        [check] = re.findall(r"^  (\S+ check --url .*)$", printed, re.MULTILINE)
        [remove] = re.findall(r"^  (redis-cli .*)$", printed, re.MULTILINE)
        left = ["bash", "-euc", f"redis-cli -u {url.split('?')[0]} dbsize"]
        of_both = b"%d\n" % (2 * len(KINDS))
        assert subprocess.check_output(left, stderr=subprocess.DEVNULL) == of_both
        for hint in (check, remove):
            subprocess.run(["bash", "-euc", hint], check=True, capture_output=True)
        assert subprocess.check_output(left, stderr=subprocess.DEVNULL) == b"0\n"
    finally:
        server.end()


@pytest.mark.slow
def test_nothing_is_lost_on_postgresql(shell: Shell) -> None:
    server = shared_server()
    name = server.new_database()
    ran = shell.type("demo", TMPDIR=str(shell.folder), WINDLASS_URL=server.url(name, user=OWNER))
    assert (ran.code, ran.err) == (0, ""), ran.out
    assert "Nothing was lost." in ran.out
    assert "was killed with SIGKILL while it held" in ran.out
    printed = ran.out.replace("***", OWNER)
    [check] = re.findall(r"^  (\S+ check --url .*)$", printed, re.MULTILINE)
    [remove] = re.findall(r"^  (psql .*)$", printed, re.MULTILINE)
    with server.connect(name) as connection:
        for hint, left in ((check, 1), (remove, 0)):
            subprocess.run(["bash", "-euc", hint], check=True, capture_output=True)
            schemas = connection.execute(
                "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'windlass%'"
            )
            assert len(schemas.fetchall()) == left
    server.drop_database(name)


def test_a_server_that_is_away_leaves_nothing(shell: Shell) -> None:
    url = f"redis://127.0.0.1:{free_port()}/0"
    ran = shell.type("demo", TMPDIR=str(shell.folder), WINDLASS_URL=url)
    assert (ran.code, ran.out) == (3, "")
    assert "did not answer" in ran.err
    assert "Traceback" not in ran.err
    assert not list(shell.folder.glob("windlass-demo-*"))


@pytest.mark.parametrize("given", ["", "sqlite:///mine.db"])
def test_an_own_database_is_left_alone(tmp_path: Path, given: str) -> None:
    assert choose_url(given, tmp_path) == f"sqlite:///{tmp_path}/demo.db"


def test_an_own_namespace_is_left_alone(tmp_path: Path) -> None:
    url = choose_url("unix:///run/redis.sock?database=3&namespace=mine&partitions=4", tmp_path)
    address = read_address(url)
    assert (address.database, address.partitions) == (3, 4)
    assert address.namespace.startswith("windlass-demo-")
    *_, removal = removals(url, tmp_path)
    pattern = f"{address.namespace}:{{*"
    assert removal.startswith(f"redis-cli -s /run/redis.sock -n 3 --scan --pattern '{pattern}' | ")
    assert fnmatchcase(key(address.namespace, 3, "meta"), pattern)


@pytest.mark.parametrize(
    ("given", "of_psql"),
    [
        (
            "postgresql://me:pw@db/shop?schema=mine&pooler=transaction&sslmode=require",
            "postgresql://***@db/shop?sslmode=require",
        ),
        ("postgres:///shop?host=/run/postgresql", "postgres:///shop?host=%2Frun%2Fpostgresql"),
        ("postgresql://db/shop", "postgresql://db/shop"),
    ],
)
def test_an_own_schema_is_left_alone(tmp_path: Path, given: str, of_psql: str) -> None:
    url = choose_url(given, tmp_path)
    schema = read_postgres(url).schema
    assert schema.startswith("windlass_demo_")
    assert url.startswith(given.partition("?")[0])
    *_, removal = removals(url, tmp_path)
    assert shlex.split(removal) == ["psql", of_psql, "-c", f"DROP SCHEMA {schema} CASCADE"]


# --------------------------------------------------------------------------------------- the proof


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "ledger.txt"


@pytest.fixture
def job_id(app: Windlass) -> str:
    return app.tasks["tasks.add"].enqueue(1).id


def proof_of(app: Windlass, job_id: str, ledger: Path, lines: str, exit_code: int = 0) -> Proof:
    ledger.write_text(lines.replace("ID", job_id), encoding="utf-8")
    return prove(app.engine, [job_id], ledger, exit_code)


def test_a_job_that_ran_once_proves_it(
    app: Windlass, hand: Hand, job_id: str, ledger: Path
) -> None:
    hand.succeed(3)
    proof = proof_of(app, job_id, ledger, "ID start 1\nID end 1\n")
    assert proof.holds
    assert (proof.jobs, proof.starts, proof.lost, proof.unexplained) == (1, 1, 0, 0)


def test_a_job_that_has_not_ended_is_lost(app: Windlass, job_id: str, ledger: Path) -> None:
    proof = proof_of(app, job_id, ledger, "")
    assert (proof.lost, proof.holds) == (1, False)


def test_a_success_that_nobody_wrote_down_is_lost(
    app: Windlass, hand: Hand, job_id: str, ledger: Path
) -> None:
    hand.succeed(3)
    proof = proof_of(app, job_id, ledger, "ID start 1\n")
    assert (proof.lost, proof.holds) == (1, False)


def test_a_second_start_without_a_reason_is_unexplained(
    app: Windlass, hand: Hand, job_id: str, ledger: Path
) -> None:
    hand.succeed(3)
    proof = proof_of(app, job_id, ledger, "ID start 1\nID start 1\nID end 1\n")
    assert (proof.unexplained, proof.holds) == (1, False)
    assert any("+ 1 unexplained" in line for line in proof.lines())


def test_a_run_that_was_killed_before_it_wrote_is_no_loss(
    app: Windlass, hand: Hand, job_id: str, ledger: Path
) -> None:
    hand.take()
    app.engine.close(hand.session, [job_id], "signal 9 (SIGKILL)")
    plan = Plan(suspects=True)  # it may have been the one, and runs alone
    [claim] = claim_jobs(app.engine, "hand.2.0000", new_nonce(1), plan, 1).claims
    app.engine.finish([Succeeded(id=claim.id, token=claim.token)])
    proof = proof_of(app, job_id, ledger, "ID start 1\nID end 1\n")
    assert proof.holds
    assert (proof.cut_short, proof.unwritten) == (1, 1)


def test_a_worker_that_ended_badly_fails_the_proof(
    app: Windlass, hand: Hand, job_id: str, ledger: Path
) -> None:
    hand.succeed(3)
    proof = proof_of(app, job_id, ledger, "ID start 1\nID end 1\n", exit_code=1)
    assert not proof.holds
    assert "cleanly" in describe_exit(0, ledger)
    assert "did not end cleanly: its exit code is 1" in describe_exit(1, ledger)
