"""Why a job does not run, as the API shows it."""

from __future__ import annotations

import msgspec

from windlass.core.states import State
from windlass.explanation import Explanation, HoldKind, JobHold
from windlass.http.resources.fields import Instant


class HoldAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One reason why a job does not run."""

    kind: HoldKind
    text: str  # a sentence
    command: str | None  # what resolves it, if a command does
    at: Instant | None  # when the job is due, was paused, or started
    by: str | None  # who paused it, if the audit trail has that


class WhyAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job does not run, at one instant. The first hold is the one to resolve first."""

    id: str
    state: State
    holds: tuple[HoldAnswer, ...]
    ahead: int | None  # the jobs that start before it; null if it is not in a line
    is_ahead_exact: bool  # false: at least this many


def describe_why(found: Explanation, *, shows_actors: bool) -> WhyAnswer:
    return WhyAnswer(
        id=found.id,
        state=found.state,
        holds=tuple(_describe(one, shows_actors) for one in found.holds),
        ahead=found.ahead,
        is_ahead_exact=found.is_ahead_exact,
    )


def _describe(hold: JobHold, shows_actors: bool) -> HoldAnswer:
    text = hold.text
    if hold.by is not None and not shows_actors:
        text = text.replace(f" by {hold.by}", "")
    return HoldAnswer(
        kind=hold.kind,
        text=text,
        command=hold.command,
        at=hold.at,
        by=hold.by if shows_actors else None,
    )
