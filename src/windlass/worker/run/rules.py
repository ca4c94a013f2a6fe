"""The rules for one run of a job: retry policy, time-out, lifetime of the result, and budgets.

1. `rules_of` lets options of the task override settings of the app.
2. `overridden` lets options of the caller override both.
3. `find_spent_budget` names the budget that a claimed job has used up, if any. Such a job becomes
   a dead letter, and its code does not run.

The pipeline of a worker and the gateway for remote workers decide by the same rules.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from windlass.core.failures import FailureText
from windlass.core.quantities import count
from windlass.core.retry import Retry
from windlass.core.serialization.envelope import Overrides
from windlass.core.states import MAX_INTERRUPTIONS, MAX_LOSSES, Counters, Reason
from windlass.settings import Settings
from windlass.task import Task

_INTERRUPTED = "its process ended before it was reported"


class Rules(NamedTuple):
    """Effective options of a run."""

    policy: Retry
    result_ttl_ms: int
    timeout_ms: int  # 0 is without end


def rules_of(task: Task[..., Any] | None, settings: Settings) -> Rules:
    """The rules of a task, or of the app for a task that it does not have."""
    if task is None:
        return Rules(settings.retry, settings.result_ttl_ms, settings.timeout_ms)
    ttl_ms, timeout_ms = task.result_ttl_ms, task.timeout_ms
    return Rules(
        task.retry or settings.retry,
        settings.result_ttl_ms if ttl_ms is None else ttl_ms,
        settings.timeout_ms if timeout_ms is None else timeout_ms,
    )


def overridden(rules: Rules, own: Overrides) -> Rules:
    """Override options of the task with options of the caller."""
    policy, ttl_ms, timeout_ms = rules
    return Rules(
        policy if own.retry is None else policy.paced_by(Retry.from_data(own.retry)),
        ttl_ms if own.result_ttl_ms is None else own.result_ttl_ms,
        timeout_ms if own.timeout_ms is None else own.timeout_ms,
    )


def find_spent_budget(
    had: Counters, policy: Retry, max_crashes: int
) -> tuple[Reason, FailureText] | None:
    """Return the first spent budget. The attempt counter includes the current claim."""
    failed = had.attempt - 1
    budgets = (
        (Reason.EXHAUSTED, failed, policy.max_attempts, f"{failed} failed attempts"),
        (Reason.CRASHED, _crashes(had), max_crashes, _describe_crashes(had)),
        (Reason.LOST, had.losses, MAX_LOSSES, f"{had.losses} losses of its worker"),
        (
            Reason.EXHAUSTED,
            had.interruptions,
            MAX_INTERRUPTIONS,
            f"{had.interruptions} interruptions: {_INTERRUPTED}",
        ),
    )
    for reason, spent, budget, what in budgets:
        if spent >= budget:
            return reason, FailureText(message=f"{what}, and {budget} are allowed")
    return None


def _crashes(had: Counters) -> int:
    """Count crashes. If a job crashed alone, an earlier interruption counts as a crash too: the job
    then ran next to others in a process that died."""
    return had.crashes + 1 if had.crashes and had.interruptions else had.crashes


def _describe_crashes(had: Counters) -> str:
    text = f"{count(had.crashes, 'crash', 'crashes')} of its process"
    if _crashes(had) == had.crashes:
        return text
    return f"{text}, and an interruption before, which counts as one"
