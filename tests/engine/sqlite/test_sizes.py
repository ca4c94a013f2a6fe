"""Size limits of values: results are stored without encoding, and a value that SQLite can never
store is told apart from an outage. The tests lower the limits of SQLite."""

from __future__ import annotations

import apsw
import pytest

from tests.engine.conftest import new_job
from windlass import EngineError, EngineUnavailable, PayloadTooLarge
from windlass.core.states import State
from windlass.engine.contract import BATCH_BYTES, Outcome, Plan, Succeeded, Verdict
from windlass.engine.sqlite.engine import SQLiteEngine
from windlass.testing.contract.world import claim_jobs


def limit_values(engine: SQLiteEngine, most_bytes: int) -> None:
    """Set the limit, which is a thousand million bytes by default."""
    engine._database._writer().limit(apsw.SQLITE_LIMIT_LENGTH, most_bytes)


def claim(engine: SQLiteEngine, number: int, size: int) -> list[Outcome]:
    engine.put([new_job(at) for at in range(number)])
    claims = claim_jobs(engine, "worker", "nonce", Plan(), number).claims
    results = [bytes([at]) * size for at in range(number)]
    return [
        Succeeded(id=held.id, token=held.token, result=result, result_ttl_ms=60_000)
        for held, result in zip(claims, results, strict=True)
    ]


def test_results_are_not_written_together_as_text(engine: SQLiteEngine) -> None:
    """In hex, in one value, they would be four times too long."""
    outcomes = claim(engine, 18, 500_000)
    limit_values(engine, BATCH_BYTES + 100_000)
    assert engine.finish(outcomes) == [Verdict.OK] * 18
    assert_stored(engine, 18, 500_000)


@pytest.mark.slow
def test_eighteen_results_of_28_megabytes(engine: SQLiteEngine) -> None:
    outcomes = claim(engine, 18, 28 * 1024 * 1024)
    assert engine.finish(outcomes) == [Verdict.OK] * 18
    assert_stored(engine, 18, 28 * 1024 * 1024)


def assert_stored(engine: SQLiteEngine, number: int, size: int) -> None:
    for at in range(number):
        (record,) = engine.get([new_job(at).id])
        assert record is not None
        assert record.result == bytes([at]) * size


def test_results_of_all_kinds_go_together(engine: SQLiteEngine) -> None:
    """None, an empty one, one that is not kept, and others between them."""
    outcomes = claim(engine, 5, 10)
    given = [b"first", None, b"", b"not kept", b"last"]
    for at, result in enumerate(given):
        held = outcomes[at]
        ttl_ms = 0 if result == b"not kept" else 60_000
        outcomes[at] = Succeeded(id=held.id, token=held.token, result=result, result_ttl_ms=ttl_ms)
    assert engine.finish(outcomes) == [Verdict.OK] * 5
    records = engine.get([outcome.id for outcome in outcomes])
    stored = [None if record is None else record.result for record in records]
    assert stored == [b"first", None, b"", None, b"last"]


def test_an_empty_result_alone_is_stored(engine: SQLiteEngine) -> None:
    (outcome,) = claim(engine, 1, 0)
    engine.finish([outcome])
    (record,) = engine.get([outcome.id])
    assert record is not None
    assert (record.result, record.has_result) == (b"", True)


def test_a_value_that_is_never_stored_is_no_outage(engine: SQLiteEngine) -> None:
    outcomes = claim(engine, 2, 10)
    large = Succeeded(
        id=outcomes[1].id, token=outcomes[1].token, result=b"x" * 300_000, result_ttl_ms=60_000
    )
    limit_values(engine, 200_000)
    for call in (
        lambda: engine.finish([outcomes[0], large]),
        lambda: engine.put([new_job(7, payload=b"x" * 300_000)]),
    ):
        with pytest.raises(PayloadTooLarge, match="and never will") as caught:
            call()
        assert not isinstance(caught.value, EngineError | EngineUnavailable)
    (record,) = engine.get([outcomes[0].id])
    assert record is not None
    assert record.state is State.RUNNING  # all of a call, or nothing
    assert engine.finish([outcomes[0]]) == [Verdict.OK]
    assert engine.check() == []
