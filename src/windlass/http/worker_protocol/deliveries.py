"""From leased jobs to messages for a remote worker.

1. A job without budget left becomes a dead letter, as in a native worker, and is not handed out.
2. The call becomes plain JSON. Damaged bytes make a dead letter. A call that cannot be read here
   (no key, a pickle, a newer format) is left to other workers.
3. Jobs that are not handed out are reported to the engine before the others are: a repeated claim
   finds them again until then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from windlass.core.durations import instant
from windlass.core.failures import FailureText
from windlass.core.queues.labels import queue_of
from windlass.core.serialization.codec import decode_plain
from windlass.core.serialization.envelope import NO_OVERRIDES, Envelope
from windlass.core.serialization.wire import to_plain_json
from windlass.core.states import Reason, is_mismatched_for_good
from windlass.engine.contract import Batch, Buried, Claim, Outcome, Unroutable, Verdict
from windlass.errors import DecodeError, MissingDecoder, NewerFormat
from windlass.http.worker_protocol.adoption import RemoteAdoption
from windlass.http.worker_protocol.claim_facts import KnownClaims
from windlass.http.worker_protocol.messages import ClaimedJob
from windlass.worker.logs.events import LogEvent, Notices, log, log_dead_letter
from windlass.worker.maintenance.measures import WorkerMeasures
from windlass.worker.run.measures import POSITIONS
from windlass.worker.run.rules import Rules, find_spent_budget, overridden, rules_of

if TYPE_CHECKING:
    from windlass.app import Windlass


class _Arguments(msgspec.Struct, forbid_unknown_fields=True):
    """A call in JSON."""

    args: list[msgspec.Raw] = []
    kwargs: dict[str, msgspec.Raw] = {}


#: Made at import: msgspec crashes when two threads inspect a class for the first time at once.
_read_arguments: Final = msgspec.json.Decoder(_Arguments).decode


class Deliveries:
    """Turns claims into messages. Used by many threads."""

    def __init__(
        self, app: Windlass, known: KnownClaims, adoption: RemoteAdoption, measures: WorkerMeasures
    ) -> None:
        self._app = app
        self._measures = measures
        self._known = known
        self._adoption = adoption
        self._notices = Notices()

    def deliver(self, batch: Batch) -> tuple[ClaimedJob, ...]:
        """The messages for the jobs of a batch. Jobs that cannot be handed out are reported."""
        messages: list[ClaimedJob] = []
        refused: list[Outcome] = []
        for claim in batch.claims:
            made = self._make(claim)
            if isinstance(made, ClaimedJob):
                messages.append(made)
            else:
                refused.append(made)
        if refused:
            self._refuse(refused, {claim.id: claim for claim in batch.claims})
        return tuple(messages)

    def _refuse(self, outcomes: Sequence[Outcome], claims: Mapping[str, Claim]) -> None:
        """Report jobs that cannot be handed out. Those that die have no run, and count where the
        engine has applied their end: another instance may answer a repeat of the claim."""
        verdicts = self._app.engine.finish(outcomes)
        for outcome, verdict in zip(outcomes, verdicts, strict=True):
            if verdict is Verdict.OK and isinstance(outcome, Buried):
                claim = claims[outcome.id]
                queue = queue_of(claim.queue)
                self._measures.add_run(queue, claim.task, POSITIONS[Buried], None, None)

    def _make(self, claim: Claim) -> ClaimedJob | Outcome:
        settings = self._app.settings
        rules = rules_of(self._app.find_task(claim.task), settings)
        try:
            envelope = self._app.packing.unpack_call(claim.payload, claim.task)
            if envelope.options != NO_OVERRIDES:
                rules = overridden(rules, envelope.options)
            spent = find_spent_budget(claim.counters, rules.policy, settings.max_crashes)
            if spent is not None:
                return self._bury(claim, *spent)
            arguments = _to_arguments(envelope)
        except (MissingDecoder, NewerFormat) as error:
            return self._leave_to_others(claim, error)
        except (DecodeError, TypeError, ValueError) as error:
            return self._bury(claim, Reason.UNDECODABLE, FailureText.of(error))
        self._known.note(claim, envelope.options)
        return _to_message(claim, envelope, arguments, rules)

    def _leave_to_others(self, claim: Claim, error: DecodeError) -> Outcome:
        """Hold a job until a worker that can read it adopts it, for at most a day."""
        if isinstance(error, MissingDecoder) and is_mismatched_for_good(claim.counters.strays):
            return self._bury(claim, Reason.UNDECODABLE, FailureText.of(error))
        self._adoption.exclude(claim.task)
        if self._notices.is_due(claim.task):
            log.warning(LogEvent.JOB_UNREADABLE_HERE, claim.task, error)
        why = self._pack(claim, FailureText.brief(error))
        return Unroutable(id=claim.id, token=claim.token, why=why)

    def _bury(self, claim: Claim, reason: Reason, text: FailureText) -> Outcome:
        log_dead_letter(claim.id, claim.task, reason, text)
        error = self._pack(claim, text)
        packing = self._app.packing
        return Buried(
            id=claim.id,
            token=claim.token,
            reason=reason,
            error=error,
            started=False,
            fingerprint=packing.failure_fingerprint(text, claim.task, claim.payload),
        )

    def _pack(self, claim: Claim, text: FailureText) -> bytes:
        return self._app.packing.pack_failure(text, claim.task, claim.id, claim.payload)


def _to_arguments(envelope: Envelope) -> _Arguments:
    """The arguments of a call in JSON, as they are stored: no number is rounded."""
    call = bytes(envelope.call)
    if envelope.codec == "pickle":
        raise MissingDecoder(
            "a pickle, which only Python can read: declare the task with task_named(...) and a "
            "signature, so that its calls are stored as JSON"
        )
    decode_plain(call, envelope.codec)  # raises for damaged bytes
    if envelope.codec == "json":
        return _read(call, DecodeError)
    return _read(to_plain_json(call), MissingDecoder)


def _read(call: bytes, refusal: type[DecodeError]) -> _Arguments:
    try:
        return _read_arguments(call)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise refusal(f"its arguments have no form in JSON: {error}") from error


def _to_message(
    claim: Claim, envelope: Envelope, arguments: _Arguments, rules: Rules
) -> ClaimedJob:
    timeout_s = rules.timeout_ms / 1000 if rules.timeout_ms else None
    deadline = None if timeout_s is None else datetime.now(UTC) + timedelta(seconds=timeout_s)
    return ClaimedJob(
        id=claim.id,
        token=claim.token,
        task=claim.task,
        queue=queue_of(claim.queue),
        args=arguments.args,
        kwargs=arguments.kwargs,
        attempt=claim.counters.attempt,
        max_attempts=rules.policy.max_attempts,
        priority=claim.priority,
        headers=envelope.headers,
        enqueued_at=instant(claim.created_ms),
        timeout_s=timeout_s,
        deadline=deadline,
        alone=claim.suspect,
    )
