"""The engine contract for worker sessions: heartbeats (`Beat`, `Pulse`), the end of a session,
session records, and the operations on them."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, Protocol

import msgspec

from windlass.errors import EngineError

#: The engine releases a claim older than this if its child does not know the nonce.
UNKNOWN_NONCE_MS: Final = 10_000
#: The engine remembers a dead session this long, to reply to late heartbeats.
GONE_SESSION_MS: Final = 60 * 60 * 1000
#: A heartbeat lists at most this many jobs in `held`.
MAX_HELD_BEAT: Final = 1_000
#: A session record names at most this many of the jobs that the session holds.
MAX_HELD: Final = 100


class SessionCommand(StrEnum):
    """What an operator asks of a session. A heartbeat returns the command until it is changed."""

    RUN = "run"  # claim and run jobs, as without a command
    QUIET = "quiet"  # finish running jobs, and claim no more
    STOP = "stop"  # finish running jobs within the grace period, and end


class Beat(msgspec.Struct, frozen=True, kw_only=True):
    """A heartbeat of a session. `nonces`, when given, lists all nonces up to `newest` that the
    child knows. The engine releases claims under other nonces up to `newest`: their replies were
    lost. Later claims stay, so that a late heartbeat does no harm.

    `held`, when given, lists all jobs that the worker has, for a worker that does not track nonces.
    The engine releases, without a charge, other jobs of the session that were claimed more than
    `UNKNOWN_NONCE_MS` ago under nonces up to `newest`: the reply to their claim was lost. Without
    `newest` it releases none. At most `MAX_HELD_BEAT` ids.

    The engine stores `info`, when given, and `sessions` returns it, even for a session that has not
    claimed anything yet. Engines do not decode `info`."""

    session: str
    nonces: tuple[str, ...] | None = None
    newest: str = ""
    held: tuple[str, ...] | None = None
    info: bytes = b""


def check_held(beats: Sequence[Beat]) -> None:
    """Refuse heartbeats that list too many jobs. Every engine calls this function."""
    for beat in beats:
        if beat.held is not None and len(beat.held) > MAX_HELD_BEAT:
            raise EngineError(
                f"The heartbeat of session {beat.session} lists {len(beat.held)} jobs, and may "
                f"list at most {MAX_HELD_BEAT}. Claim fewer jobs in one session."
            )


class Pulse(msgspec.Struct, frozen=True, kw_only=True):
    session: str
    alive: bool
    cancel: tuple[str, ...] = ()  # jobs of this session with a requested cancellation
    #: Ids in `Beat.held` that this session does not hold. Empty for a dead session, which must drop
    #: all its jobs.
    lost: tuple[str, ...] = ()
    command: SessionCommand = SessionCommand.RUN


class Closed(msgspec.Struct, frozen=True, kw_only=True):
    """Result of `close`: the number of jobs per outcome."""

    crashed: int = 0
    suspected: int = 0
    released: int = 0


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A session that was not declared dead. Its lease may have expired."""

    session: str
    expires_in_ms: int
    jobs: int
    held: tuple[str, ...] = ()  # the ids of its jobs, sorted; at most MAX_HELD
    info: bytes = b""  # the last `info` that a heartbeat sent
    command: SessionCommand = SessionCommand.RUN


class Introductions(msgspec.Struct, frozen=True):
    """One batch of `introductions`: session -> info, and the next cursor, None at the end."""

    infos: dict[str, bytes]
    cursor: str | None


class SessionVerbs(Protocol):
    """Keep sessions alive, end them, and list them."""

    def beat(self, beats: Sequence[Beat]) -> list[Pulse]:
        """Extend the leases of live sessions. A session that was declared dead stays dead."""

    def close(self, session: str, suspects: Sequence[str], cause: str) -> Closed:
        """End a session after its process died. A single suspect is charged a crash. Several
        suspects are each marked to run alone. All other jobs return to their old place: their
        attempt is refunded and an interruption counted. Such a job may have ended, unreported, and
        killed its process afterwards; the count limits how often this can happen."""

    def lose(self, session: str, cause: str) -> int:
        """End a session after its whole worker died, as if the lease had expired; return the number
        of its jobs. The jobs return to their line, each charged a loss with the cause in its
        history. The engine does not know which job killed the worker, so a job that does so
        repeatedly must run out of losses."""

    def sessions(self) -> list[SessionRecord]:
        """List the sessions that hold jobs or have sent `info`."""

    def infos(self, sessions: Sequence[str]) -> list[bytes | None]:
        """Read the `info` of sessions; None for a session that is dead, unknown or sent none. Costs
        the same with any number of other sessions."""

    def command(self, sessions: Sequence[str], command: SessionCommand) -> list[bool]:
        """Set the command that heartbeats of these sessions return from now on. False for a session
        that is dead or unknown. Repeating is harmless."""

    def introductions(self, prefix: str, cursor: str | None = None) -> Introductions:
        """Read one bounded batch of the `info` of live sessions with names that begin with
        `prefix`. Call again with the returned cursor. A session that exists during all calls is
        returned at least once."""
