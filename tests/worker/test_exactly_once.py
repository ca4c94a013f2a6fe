"""Short versions of the proofs in `proofs/transactions.py`."""

from __future__ import annotations

from pathlib import Path

from proofs.transactions import prepared
from tests.postgres_server import shared_server
from tests.worker.apps import accounts


def test_a_job_is_there_if_its_transaction_was_committed(tmp_path: Path) -> None:
    with prepared(tmp_path) as (yard, database):
        url = shared_server().url(database)
        list(accounts.prove_enqueues(yard, url, threads=2, number=30))


def test_the_writes_of_killed_jobs_count_once(tmp_path: Path) -> None:
    with prepared(tmp_path) as (yard, database):
        list(
            accounts.prove_exactly_once(
                yard, database, jobs=300, workers=2, seconds=6, kill_every_s=2
            )
        )
