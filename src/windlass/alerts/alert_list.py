"""The alerts of an engine, `app.alerts`: which rules there are, and what fires."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from windlass.alerts.watch import KIND
from windlass.core.alerts.rules import Alert
from windlass.core.alerts.states import AlertRecord, SubjectState
from windlass.core.durations import instant
from windlass.engine.contract import MAX_DOCUMENT_CHANGES, Engine
from windlass.twins import Steps, act, twins

if TYPE_CHECKING:
    from windlass.app import Windlass

#: `unknown` until a process has evaluated the rule.
AlertState: TypeAlias = Literal["ok", "pending", "firing", "unknown"]


class AlertInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One alert: a rule and one of its subjects. A rule without a pending or firing alert is listed
    once, with its largest number."""

    rule: str  # such as `oldest_age(mail) > 5m`
    kind: str
    state: AlertState
    subject: str  # the queue, task or schedule; empty for the app as a whole
    value: float  # jobs, seconds or a share
    threshold: float
    since: datetime | None  # when the number exceeded the threshold
    checked_at: datetime | None  # the last look, by the engine's clock
    holder: str  # the process that evaluates the rule


class Alerts:
    """The alerts of an engine."""

    def __init__(self, app: Windlass) -> None:
        self._app = app

    @twins
    def list(self) -> Steps[builtins.list[AlertInfo]]:
        """All alerts, those that fire first. Rules of other apps on the same engine are listed
        too."""
        return (yield from act(_list, self._app.settings.alert_rules))

    alist = list.awaited


_ORDER = ("firing", "pending", "ok", "unknown")


def _list(engine: Engine, rules: Sequence[Alert]) -> builtins.list[AlertInfo]:
    records = {rule.key: AlertRecord(rule=rule) for rule in rules}
    after = ""
    while page := engine.list_documents(KIND, after, MAX_DOCUMENT_CHANGES):
        for document in page:
            record = AlertRecord.unpack(document.body)
            if record is not None:
                records[document.key] = record
        after = page[-1].key
    found = [info for record in records.values() for info in _describe(record)]
    return sorted(found, key=lambda info: _ORDER.index(info.state))


def _describe(record: AlertRecord) -> Iterator[AlertInfo]:
    if not record.subjects:
        yield _info(record, record.worst, None, record.value)
    for subject, state in record.subjects.items():
        yield _info(record, subject, state, state.value)


def _info(record: AlertRecord, subject: str, state: SubjectState | None, value: float) -> AlertInfo:
    rule = record.rule
    return AlertInfo(
        rule=str(rule),
        kind=rule.kind,
        state=_state_of(record, state),
        subject=subject or rule.subject,
        value=value,
        threshold=rule.over,
        since=None if state is None else instant(state.since_ms),
        checked_at=instant(record.at_ms) if record.at_ms else None,
        holder=record.holder,
    )


def _state_of(record: AlertRecord, state: SubjectState | None) -> AlertState:
    if state is not None:
        return "firing" if state.fired_ms else "pending"
    return "ok" if record.at_ms else "unknown"
