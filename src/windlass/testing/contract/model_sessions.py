"""Sessions of the reference model: heartbeats, the silence of all workers, lost sessions."""

from __future__ import annotations

from collections.abc import Sequence

from windlass.core.states import Event
from windlass.engine.contract import (
    BITE,
    GONE_SESSION_MS,
    MAX_HELD,
    UNKNOWN_NONCE_MS,
    Beat,
    Closed,
    Introductions,
    Pulse,
    SessionCommand,
    SessionRecord,
    check_held,
)
from windlass.testing.contract.model_job import ModelJob
from windlass.testing.contract.model_state import ModelState


class SessionModel(ModelState):
    def beat(self, beats: Sequence[Beat]) -> list[Pulse]:
        check_held(beats)
        self._notice_silence()
        return [self._beat(beat) for beat in beats]

    def _beat(self, beat: Beat) -> Pulse:
        if beat.session in self.gone:
            return Pulse(session=beat.session, alive=False)
        if beat.info:
            self.said[beat.session] = beat.info
        if beat.session in self.expiries or beat.info:
            self.expiries[beat.session] = self.now_ms + self.options.lease_ms
        if beat.nonces is not None:
            self._give_back_unknown(beat, beat.nonces)
        wanted = [job.record for job in self._held(beat.session) if job.record.cancel_requested]
        cancel = tuple(sorted(record.id for record in wanted))
        return Pulse(
            session=beat.session,
            alive=True,
            cancel=cancel,
            lost=() if beat.held is None else self._compare_held(beat, beat.held),
            command=self.commands.get(beat.session, SessionCommand.RUN),
        )

    def _old_claims(self, session: str) -> list[ModelJob]:
        """List the jobs whose claim is so old that its reply must have arrived."""
        ages = [(job, self.now_ms - (job.record.started_ms or 0)) for job in self._held(session)]
        return [job for job, age_ms in ages if age_ms >= UNKNOWN_NONCE_MS or age_ms < 0]

    def _give_back_unknown(self, beat: Beat, nonces: tuple[str, ...]) -> None:
        for job in self._old_claims(beat.session):
            assert job.token is not None
            if job.token not in nonces and job.token <= beat.newest:
                self.move(job, Event.RELEASE, started=False)

    def _compare_held(self, beat: Beat, held: tuple[str, ...]) -> tuple[str, ...]:
        for job in self._old_claims(beat.session):
            assert job.token is not None
            if job.record.id not in held and job.token <= beat.newest:
                self.move(job, Event.RELEASE, started=False)
        holding = {job.record.id for job in self._held(beat.session)}
        return tuple(id for id in held if id not in holding)

    def close(self, session: str, suspects: Sequence[str], cause: str) -> Closed:
        self._end_session(session)
        held = self._held(session)
        suspected = [job for job in held if job.record.id in suspects]
        innocent = [job for job in held if job.record.id not in suspects]
        event = Event.CRASH if len(set(suspects)) == 1 else Event.SUSPECT
        for job in suspected:
            self.move(job, event, error=cause.encode())
        for job in innocent:
            self.move(job, Event.RELEASE)
        crashed = len(suspected) if event is Event.CRASH else 0
        return Closed(crashed=crashed, suspected=len(suspected) - crashed, released=len(innocent))

    def lose(self, session: str, cause: str) -> int:
        self.totals["sessions_lost"] += session in self.said
        self._end_session(session)
        held = self._held(session)
        for job in held:
            self.move(job, Event.LOSE, error=cause.encode())
        return len(held)

    def sessions(self) -> list[SessionRecord]:
        return [
            SessionRecord(
                session=name,
                expires_in_ms=expires_ms - self.now_ms,
                jobs=len(self._held(name)),
                held=tuple(sorted(job.record.id for job in self._held(name))[:MAX_HELD]),
                info=self.said.get(name, b""),
                command=self.commands.get(name, SessionCommand.RUN),
            )
            for name, expires_ms in sorted(self.expiries.items())
        ]

    def infos(self, sessions: Sequence[str]) -> list[bytes | None]:
        return [self.said.get(name) for name in sessions]

    def command(self, sessions: Sequence[str], command: SessionCommand) -> list[bool]:
        self.commands |= {name: command for name in sessions if name in self.expiries}
        return [name in self.expiries for name in sessions]

    def introductions(self, prefix: str, cursor: str | None = None) -> Introductions:
        """Return all introductions at once. Engines need several calls for this."""
        named = {name: info for name, info in self.said.items() if name.startswith(prefix)}
        return Introductions(named, None)

    def _end_session(self, session: str) -> None:
        self.expiries.pop(session, None)
        self.said.pop(session, None)
        self.commands.pop(session, None)
        self.gone[session] = self.now_ms + GONE_SESSION_MS

    def _notice_silence(self) -> None:
        """Detect a silence of all workers: after a long time without calls, or when the clock went
        back, the engine was unavailable, not the workers. No session is declared dead until all
        workers, including the worker with the longest lease, had time for a heartbeat."""
        now_ms, last_ms, lease_ms = self.now_ms, self.last_seen_ms, self.options.lease_ms
        self.last_seen_ms = now_ms
        if last_ms is None or 0 <= now_ms - last_ms <= lease_ms // 2:
            self.longest = self.longest.heard(lease_ms, now_ms)
            return
        self.longest = self.longest.after_silence(lease_ms, last_ms, now_ms)
        self.reap_after_ms = now_ms + self.longest.lease_ms // 2
        if now_ms < last_ms:
            for session, expires_ms in self.expiries.items():
                self.expiries[session] = min(expires_ms, now_ms + self.longest.lease_ms)

    def _silent_sessions(self) -> list[str]:
        """List sessions with an expired lease, and dead sessions that still hold jobs."""
        late = [name for name, expires_ms in self.expiries.items() if expires_ms <= self.now_ms]
        return late + [name for name in self.gone if self._held(name)]

    def _reap(self) -> int:
        if self.now_ms < self.reap_after_ms:
            return 0
        reaped = 0
        for session in self._silent_sessions():
            if reaped == BITE:
                break
            self.totals["sessions_lost"] += session in self.said
            self._end_session(session)
            for job in self._held(session)[: BITE - reaped]:
                self.move(job, Event.LOSE)
                reaped += 1
        return reaped
