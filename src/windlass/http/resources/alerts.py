"""The rules of alerts, and what fires."""

from __future__ import annotations

import msgspec

from windlass.alerts.alert_list import AlertInfo, AlertState
from windlass.core.alerts.rules import AlertKind
from windlass.http.access import Principal
from windlass.http.resources.fields import Instant
from windlass.http.routes import VIEWERS, ApiRequest, route

#: The kinds whose subjects are queues.
_OF_QUEUES = (AlertKind.DEAD_LETTERS, AlertKind.OLDEST_AGE, AlertKind.NO_WORKER)


class AlertAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A rule, and one queue, task or schedule that it watches."""

    rule: str
    kind: str
    state: AlertState  # unknown until a process has evaluated the rule
    subject: str  # the queue, task or schedule; empty for the app as a whole
    value: float  # jobs, seconds or a share
    threshold: float
    since: Instant | None  # when the number exceeded the threshold
    checked_at: Instant | None  # the last look
    holder: str  # the process that evaluates the rule


class AlertList(msgspec.Struct, frozen=True, kw_only=True):
    """The alerts, what fires first."""

    alerts: tuple[AlertAnswer, ...]


@route("GET", "/v1/alerts", roles=VIEWERS)
async def list_alerts(call: ApiRequest) -> AlertList:
    """List the rules of alerts, and what fires.

    A rule that watches several queues, tasks or schedules is listed for each one that is pending or
    firing, or else once with the largest number. A caller for some queues sees only alerts of
    those."""
    found = await call.gateway.call(call.gateway.app.alerts.list)
    visible = (one for one in found if _may_see(call.principal, one))
    return AlertList(alerts=tuple(AlertAnswer(**msgspec.structs.asdict(one)) for one in visible))


def _may_see(principal: Principal, one: AlertInfo) -> bool:
    if principal.sees_all:
        return True
    return one.kind in _OF_QUEUES and bool(one.subject) and principal.may_use(one.subject)
