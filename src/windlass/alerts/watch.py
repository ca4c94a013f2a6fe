"""Evaluate the rules of alerts, each in one process at a time, without a leader.

1. The state of a rule is a document of the engine. The process that writes it holds the rule: it
   writes the document at every look, by compare-and-set.
2. Other processes with the same rule read the document. When it has not changed for `TAKEOVER_S` by
   their own clock, its holder is dead or cut off, and one of them takes over. No two clocks are
   compared.
3. A look reads the numbers (`readings`), decides (`core.alerts.states`), stores the new state
   together with its events, and only then delivers them. So an alert does not fire again when
   another process takes over. An event whose delivery was not stored is delivered again by the
   next holder: at least once.
4. A holder that stops hands its rules over at once.

A process that does not hold a rule pays one read in each look.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from time import monotonic
from typing import Final

from msgspec.structs import replace

from windlass.alerts.delivery import AlertDelivery
from windlass.alerts.readings import Readings
from windlass.core.alerts.rules import Alert, AlertKind
from windlass.core.alerts.states import AlertRecord, Reading, advance, note_deaths
from windlass.core.ids import new_session
from windlass.engine.contract import MAX_DOCUMENT_CHANGES, Document, DocumentChange, Engine
from windlass.engine.schedule_changes import new_revision

#: The kind of the documents with the states of rules.
KIND: Final = "alert"
#: How often to look, in seconds, and how often while a delivery is under way.
LOOK_S: Final = 10.0
DELIVERY_S: Final = 1.0
#: A rule whose state has not changed for this long has no holder, in seconds.
TAKEOVER_S: Final = 30.0
#: The state of a rule that no process evaluates is removed after this time, in seconds.
ABANDONED_S: Final = 3600.0
#: How often to look for such states, in seconds.
CLEAN_S: Final = 600.0


class AlertWatch:
    """Evaluates rules for one process. Used by one thread."""

    def __init__(self, engine: Engine, rules: Sequence[Alert], delivery: AlertDelivery) -> None:
        self._engine = engine
        self._rules = {rule.key: rule for rule in rules}
        self._delivery = delivery
        self._holder = new_session(socket.gethostname(), os.getpid())
        self._is_holding = False
        self._seen: dict[str, tuple[str, float]] = {}  # key -> revision, and since when
        self._cleans_s = monotonic() + CLEAN_S

    def look(self) -> float:
        """Evaluate the rules that this process holds; return the seconds until the next look."""
        if not self._rules:
            return float("inf")
        found = self._engine.get_documents(KIND, list(self._rules))
        held = {
            key: (document, self._record_of(key, document))
            for key, document in zip(self._rules, found, strict=True)
            if self._may_hold(key, document)
        }
        self._is_holding = bool(held)
        self._clean()
        if not held:
            return LOOK_S
        readings = Readings(self._engine, [self._rules[key] for key in held])
        after = {key: self._evaluate(record, readings) for key, (_, record) in held.items()}
        stored = self._store({key: document for key, (document, _) in held.items()}, after)
        return self._deliver(stored)

    def release(self) -> None:
        """Hand over the rules, because this process stops."""
        if not self._is_holding:
            return
        found = self._engine.get_documents(KIND, list(self._rules))
        held = {
            key: (document, record)
            for key, document in zip(self._rules, found, strict=True)
            if document is not None
            and (record := AlertRecord.unpack(document.body)) is not None
            and record.holder == self._holder
        }
        self._store(
            {key: document for key, (document, _) in held.items()},
            {key: self._settle(record, holder="") for key, (_, record) in held.items()},
        )

    # -------------------------------------------------------------------------------- holding

    def _may_hold(self, key: str, document: Document | None) -> bool:
        """Whether this process holds a rule, or may take it over."""
        if document is None:
            return True
        record = AlertRecord.unpack(document.body)
        if record is not None and record.holder in ("", self._holder):
            return True
        return self._age_s(key, document.revision) >= TAKEOVER_S

    def _age_s(self, key: str, revision: str) -> float:
        """For how long this process has seen the same revision."""
        known, since_s = self._seen.get(key, ("", 0.0))
        if known != revision:
            since_s = monotonic()
            self._seen[key] = revision, since_s
        return monotonic() - since_s

    def _record_of(self, key: str, document: Document | None) -> AlertRecord:
        known = None if document is None else AlertRecord.unpack(document.body)
        return known or AlertRecord(rule=self._rules[key])

    # ----------------------------------------------------------------------------- evaluating

    def _evaluate(self, record: AlertRecord, readings: Readings) -> AlertRecord:
        record = self._settle(record, holder=self._holder)
        numbers = readings.of(record.rule)
        if record.rule.kind is AlertKind.DEAD_GROWTH:
            died, grown = note_deaths(record.died, readings.died, readings.at_ms)
            record, numbers = replace(record, died=died), {"": Reading(grown)}
        return advance(record, numbers, readings.at_ms)

    def _settle(self, record: AlertRecord, holder: str) -> AlertRecord:
        """Leave out the events that were delivered."""
        untold = tuple(event for event in record.untold if not self._delivery.is_done(event))
        return replace(record, holder=holder, untold=untold)

    def _store(
        self, before: dict[str, Document | None], after: dict[str, AlertRecord]
    ) -> list[AlertRecord]:
        """Store states; return those that this process still holds."""
        changes = []
        for key, record in after.items():
            document = before[key]
            expected = "" if document is None else document.revision
            changes.append(
                DocumentChange(
                    kind=KIND,
                    key=key,
                    expected=expected,
                    revision=new_revision(),
                    body=record.pack(),
                )
            )
        done = self._engine.change_documents(changes) if changes else []
        return [record for record, is_stored in zip(after.values(), done, strict=True) if is_stored]

    def _deliver(self, records: Sequence[AlertRecord]) -> float:
        events = [event for record in records for event in record.untold]
        self._delivery.forget_others(events)
        for event in events:
            self._delivery.send(event)
        return DELIVERY_S if events else LOOK_S

    # ------------------------------------------------------------------------------- cleaning

    def _clean(self) -> None:
        """Remove the states of rules that no process evaluates any more."""
        if monotonic() < self._cleans_s:
            return
        self._cleans_s = monotonic() + CLEAN_S
        documents = self._engine.list_documents(KIND, limit=MAX_DOCUMENT_CHANGES)
        abandoned = [
            DocumentChange(
                kind=KIND, key=one.key, expected=one.revision, revision=new_revision(), body=None
            )
            for one in documents
            if one.key not in self._rules and self._age_s(one.key, one.revision) >= ABANDONED_S
        ]
        if abandoned:
            self._engine.change_documents(abandoned)
