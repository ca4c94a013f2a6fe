"""Hypothesis strategies for the machine: jobs, plans, outcomes, instants, and other arguments."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

from windlass.core.durations import LATEST_MS
from windlass.core.states import Reason
from windlass.core.unique import OnConflict, Until
from windlass.engine.contract import (
    BATCH_BYTES,
    MAX_WHY,
    Buried,
    Claim,
    Outcome,
    Plan,
    Progressed,
    Released,
    Retried,
    Share,
    Snoozed,
    Succeeded,
    UniqueKey,
    Unroutable,
)
from windlass.testing.contract.world import LEASE_MS, START_MS, STEP_MS

DAY_MS = 24 * 60 * 60 * 1000

distances = st.sampled_from([0, 1, 1_000, LEASE_MS, DAY_MS, 2 * LATEST_MS])
jumps = st.sampled_from(
    [0, 1, 1_000, STEP_MS, LEASE_MS - 1, LEASE_MS, LEASE_MS + 1, DAY_MS, -1, -LEASE_MS, -DAY_MS]
)
queues = st.sampled_from(["a", "b"])
tasks = st.sampled_from(["t", "u"])
suspects = st.sampled_from([False, False, True])
budgets = st.sampled_from([BATCH_BYTES, BATCH_BYTES, 3, 5])
plans = st.one_of(
    st.builds(
        Plan,
        queues=st.sampled_from([(), (), ("a",), ("b", "a"), ("b", "none", "b")]),
        suspects=suspects,
        most_bytes=budgets,
    ),
    st.builds(
        lambda first, turns, suspects, most_bytes, tasks: Plan(
            queues=("none", "a", "b") if first else ("a", "b"),
            suspects=suspects,
            shares=(Share(first, 2, turns),),
            most_bytes=most_bytes,
            tasks=tasks,
        ),
        st.integers(0, 1),
        st.sampled_from([b"", b"\1", b"\0\1\0", b"\1\1\0\1"]),
        suspects,
        budgets,
        st.sampled_from([(), (), ("t",)]),
    ),
    st.builds(
        Plan,
        queues=st.sampled_from([(), ("a",), ("b", "a")]),
        suspects=suspects,
        labels=st.sampled_from([("gpu",), ("gpu", "x"), ("x",)]),
    ),
    st.builds(
        Plan,
        queues=st.sampled_from([(), ("a",), ("b", "a")]),
        suspects=suspects,
        labels=st.sampled_from([(), ("gpu",)]),
        tasks=st.sampled_from([("t",), ("u", "none"), ("u", "t")]),
        most_bytes=budgets,
    ),
)
limits = st.sampled_from([0, 1, 1, 2, 3, 100])
slots = st.integers(0, 2)
errors = st.sampled_from([b"", b"boom"])
fingerprints = st.sampled_from(["", "aa", "aa", "ab"])
uniques = st.builds(
    UniqueKey,
    key=st.sampled_from(["v", "v", "w"]),
    until=st.sampled_from(Until),
    period_ms=st.sampled_from([0, 0, 1_000, DAY_MS]),
    on_conflict=st.sampled_from(OnConflict),
)
fields = st.fixed_dictionaries(
    {
        "task": tasks,
        "queue": st.sampled_from(["a", "a", "b", "b", "a+gpu", "b+gpu+x"]),
        "payload": st.sampled_from([b"", b"\x00\xff"]),
        "priority": st.sampled_from([0, 0, 0, 1, 2, -100, 100]),
        "run_after_ms": st.sampled_from([None, None, None, START_MS - 1, START_MS + 5_000]),
        "run_in_ms": st.sampled_from([0, 0, 0, 1, 1_000, DAY_MS]),
        "expires_ms": st.sampled_from([None, None, None, START_MS + LEASE_MS]),
        "expires_in_ms": st.sampled_from([None, None, None, 0, 1_000]),
        "idempotency_key": st.sampled_from([None, None, None, "k", "l"]),
        "fingerprint": st.sampled_from(["", "", "x"]),
        "unique": st.none() | uniques,
    }
)
endings: st.SearchStrategy[Callable[[Claim], Outcome]] = st.one_of(
    st.builds(
        lambda result, ttl_ms: (
            lambda claim: Succeeded(
                id=claim.id, token=claim.token, result=result, result_ttl_ms=ttl_ms
            )
        ),
        st.sampled_from([None, b"", b"result"]),
        st.sampled_from([0, 1, LEASE_MS, 2 * DAY_MS, 2 * LATEST_MS]),
    ),
    st.builds(
        lambda delay_ms, error: (
            lambda claim: Retried(id=claim.id, token=claim.token, delay_ms=delay_ms, error=error)
        ),
        distances,
        errors,
    ),
    st.builds(
        lambda reason, error, started, fingerprint: (
            lambda claim: Buried(
                id=claim.id,
                token=claim.token,
                reason=reason,
                error=error,
                started=started,
                fingerprint=fingerprint,
            )
        ),
        st.sampled_from(Reason),
        errors,
        st.booleans(),
        fingerprints,
    ),
    st.builds(
        lambda started, alone: (
            lambda claim: Released(id=claim.id, token=claim.token, started=started, alone=alone)
        ),
        st.booleans(),
        st.booleans(),
    ),
    st.builds(
        lambda delay_ms: lambda claim: Snoozed(id=claim.id, token=claim.token, delay_ms=delay_ms),
        distances,
    ),
    st.builds(
        lambda why: lambda claim: Unroutable(id=claim.id, token=claim.token, why=why),
        st.sampled_from([b"", b"unknown", b"w" * (MAX_WHY + 1)]),
    ),
    st.builds(
        lambda progress: (
            lambda claim: Progressed(id=claim.id, token=claim.token, progress=progress)
        ),
        st.sampled_from([b"", b"half"]),
    ),
)
