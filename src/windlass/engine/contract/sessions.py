"""The engine contract for worker sessions: heartbeats (`Beat`, `Pulse`), their end, their records,
and the verbs with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

#: Claims under a nonce that their child does not know are released when older than this.
UNKNOWN_NONCE_MS: Final = 10_000
#: The engine remembers a dead session this long, so that it can answer its late heartbeats.
GONE_SESSION_MS: Final = 60 * 60 * 1000
#: A session record names at most this many of the jobs that the session holds.
MAX_HELD: Final = 100


class Beat(msgspec.Struct, frozen=True, kw_only=True):
    """A heartbeat of a session. `nonces`, when given, lists all nonces up to `newest` that its
    child knows. Claims under any other nonce up to `newest` were lost on their way, and the engine
    releases them. Later claims are left alone, so that a late heartbeat does no harm.

    The engine stores `info`, when given, for `sessions`. It makes a session known that has not
    claimed anything yet. Engines do not decode it."""

    session: str
    nonces: tuple[str, ...] | None = None
    newest: str = ""
    info: bytes = b""


class Pulse(msgspec.Struct, frozen=True, kw_only=True):
    session: str
    alive: bool
    cancel: tuple[str, ...] = ()  # jobs of this session whose cancellation was requested


class Closed(msgspec.Struct, frozen=True, kw_only=True):
    """The number of jobs of a closed session per outcome."""

    crashed: int = 0
    suspected: int = 0
    released: int = 0


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A session that was not declared dead. Its lease may have run out."""

    session: str
    expires_in_ms: int
    jobs: int
    held: tuple[str, ...] = ()  # the ids of its jobs, sorted; at most MAX_HELD
    info: bytes = b""  # the `info` of its last heartbeat that had one


class Introductions(msgspec.Struct, frozen=True):
    """One batch of `introductions`: session -> info, and the next cursor, None at the end."""

    infos: dict[str, bytes]
    cursor: str | None


class SessionVerbs(Protocol):
    """Keep sessions alive, end them, and list them."""

    def beat(self, beats: Sequence[Beat]) -> list[Pulse]:
        """Extend the leases of live sessions. A session that was declared dead stays dead."""

    def close(self, session: str, suspects: Sequence[str], cause: str) -> Closed:
        """End a session whose process is gone. A single suspect is charged a crash. Several
        suspects are each marked to run alone. All other jobs return to their old place: their
        attempt is refunded and an interruption counted. One of them may have ended, unreported, and
        killed its process afterwards; the count limits how often this can happen."""

    def lose(self, session: str, cause: str) -> int:
        """End a session whose whole worker is gone, as if its lease had run out, and return the
        number of its jobs. The jobs go back, each charged a loss with the cause in its history. It
        is unknown which job ended the worker, so a job that does so repeatedly must run out of
        losses."""

    def sessions(self) -> list[SessionRecord]:
        """List the sessions that hold jobs or have introduced themselves."""

    def introductions(self, prefix: str, cursor: str | None = None) -> Introductions:
        """Read one bounded batch of the `info` of live sessions whose names begin with `prefix`.
        Call again with the returned cursor. A session that exists throughout is returned at least
        once."""
