"""The one loop that outlasts the troubles of a server.

1. `Server.run` sends commands in Redis's protocol and gives their replies. Every failure that may
   pass (a connection that breaks, a server that loads, fails over or is busy) is tried again until
   the deadline; then the call fails as unavailable. All commands may be repeated. The deadline
   moves on while bytes do: what is large may take long, and only a stand-still is a failure.
2. A large call that was cut off twice on its way is made in halves, if it says how.
3. A connection that was used before is given half of the time: it may have been cut on the way
   without a word, and then the other half is left for a new one.
4. A server whose memory is full is told again, in other words, what needs none of it.
5. A connection that may still have a reply under way is closed, and never used again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from operator import add, attrgetter
from typing import Any, Final

import msgspec
import redis

from windlass.engine.contract import EngineOptions
from windlass.engine.redis.client.pool import (
    LEAST_S,
    PIECE,
    Link,
    Patience,
    allow,
    last_words,
    own_pool,
    pool_of,
    read,
    send,
)
from windlass.engine.redis.client.scripts import Prefix, Prefixes, pack
from windlass.engine.redis.url import Address
from windlass.errors import EngineError, EngineUnavailable, PayloadTooLarge

_FIRST_PAUSE_S: Final = 0.01
_MOST_PAUSE_S: Final = 0.25
#: Replies that may be different in a moment, and what helps if they never are.
_PASSING: Final[dict[type[Exception], str]] = {
    redis.exceptions.ReadOnlyError: "Give the address of the primary, or make this server one.",
    redis.exceptions.BusyLoadingError: "Wait until it has read its data.",
    redis.exceptions.MasterDownError: "Wait until it has found its primary, or name that one.",
    redis.exceptions.ClusterDownError: "Wait until the cluster has a new owner for these slots.",
    redis.exceptions.TryAgainError: "Wait until the slot has moved.",
    redis.exceptions.OutOfMemoryError: "Its memory is full: raise maxmemory, or remove jobs.",
    redis.exceptions.AuthenticationError: "It forgets logins: see what is wrong with its users.",
    redis.exceptions.NoScriptError: "It forgets scripts at once: find out who flushes them.",
}
#: The same for replies that the driver has no class for, by their first word.
_PASSING_WORDS: Final = {
    "BUSY": "Somebody's script runs for long: wait for it, or end it with SCRIPT KILL.",
    "NOREPLICAS": "Too few replicas follow it: wait for them, or lower min-replicas-to-write.",
    "MISCONF": "It cannot write to its disk: mend that; its log says what is wrong.",
}
#: A server writes first to whom it had nothing to write before: so whoever waits hears of a job
#: before the one who enqueued it hears of that, and need not wait until that one has gone on. The
#: answer to this is the earlier thing. In a hurry there is no time for it.
_GREETING: Final = pack(b"TIME")
_UNREACHED: Final = "Check that it runs and can be reached from here."

Reply = Any


class Call(msgspec.Struct, frozen=True):
    """A command. That of a script names it by its digest, and can be made again of what is beside
    it: the text goes along only when the server asks for it. `halves`, if it is large and has
    several items, makes two calls of it, and `join` one reply of theirs."""

    command: bytes
    prefixes: Prefixes | None = None
    arguments: Sequence[bytes] = ()
    halves: Callable[[], tuple[Call, Call]] | None = None
    join: Callable[[Reply, Reply], Reply] = add


_command_of: Final = attrgetter("command")


class Server:
    """One server, as one engine object sees it."""

    def __init__(self, address: Address, options: EngineOptions) -> None:
        self.address = address
        self.has_forgotten = False  # a script: so it was restarted, or is another server
        self.timeout_s = options.timeout_ms / 1000
        if options.has_own_connections:
            self._pool = own_pool(address)
        else:
            self._pool = pool_of(address, options.most_calls)

    @property
    def location(self) -> str:
        return f"redis {self.address.with_namespace}"

    def deadline(self) -> float:
        """Of a call that begins now."""
        return time.monotonic() + self.timeout_s

    def ask(self, commands: Sequence[bytes], deadline: float) -> list[Reply]:
        """The replies to plain commands."""
        return self.run(list(map(Call, commands)), deadline)

    def connect(self, timeout_s: float) -> Link:
        """A connection that belongs to the caller."""
        return self._pool.connect(timeout_s)

    def close(self) -> None:
        """Let go of the connections that are not in use; the next call opens new ones."""
        self._pool.close()

    # ------------------------------------------------------------------------------- the loop

    def run(self, calls: Sequence[Call], deadline: float) -> list[Reply]:
        """The replies to all calls, which go to the server together."""
        commands = list(map(_command_of, calls))
        replies: dict[int, Reply] = {}
        pause_s = 0.0  # most connections break while nobody uses them
        cause: Exception | None = None
        troubles = 0
        in_vain: list[Exception] = []
        left = list(range(len(commands)))
        patience = Patience(self._pool, deadline, self.timeout_s)
        # By somebody who waits for a job. Of what adds anything only `open` adds none.
        prefixes = calls[0].prefixes if len(calls) == 1 else None
        may_be_heard = prefixes is not None and prefixes.adds
        while True:
            trouble = self._attempt(commands, left, replies, patience, in_vain, may_be_heard)
            if trouble is None:
                return list(map(replies.__getitem__, range(len(commands))))
            troubles += 1
            left = [number for number in left if number not in replies]
            is_forgotten = isinstance(trouble, redis.exceptions.NoScriptError)
            if is_forgotten and _tell_whole(commands, calls, left):
                self.has_forgotten = True
                continue
            is_full = isinstance(trouble, redis.exceptions.OutOfMemoryError)
            if is_full and _insist(commands, calls, left):
                continue
            if cause is None or not isinstance(trouble, redis.exceptions.TimeoutError):
                cause = trouble  # the last try may only have had too little time
            if time.monotonic() + pause_s >= patience.ends_at:
                began_at = max(deadline - self.timeout_s, patience.moved_at)
                raise self._unavailable(cause, began_at, len(in_vain) == troubles) from cause
            if troubles > 1 and _advice(trouble) is None and _may_halve(calls, left):
                self._run_in_halves(calls, left, replies, patience.ends_at)
                return list(map(replies.__getitem__, range(len(commands))))
            time.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(pause_s * 2 or _FIRST_PAUSE_S, _MOST_PAUSE_S)

    def _run_in_halves(
        self, calls: Sequence[Call], left: Sequence[int], replies: dict[int, Reply], deadline: float
    ) -> None:
        """One after the other. Each that is answered shows that the server is there."""
        for number in left:
            call = calls[number]
            parts = (call,) if call.halves is None else call.halves()
            answers: list[Reply] = []
            for part in parts:
                try:
                    answers += self.run([part], deadline)
                except EngineUnavailable as error:
                    error.unsent = False  # the whole was sent before
                    raise
                deadline = self.deadline()
            replies[number] = answers[0] if len(answers) == 1 else call.join(*answers)

    def _attempt(
        self,
        commands: list[bytes],
        left: list[int],
        replies: dict[int, Reply],
        patience: Patience,
        in_vain: list[Exception],
        may_be_heard: bool,
    ) -> Exception | None:
        """Send what has no reply yet; the trouble that may pass, or None when all is answered.
        Trouble by which nothing was done is noted: nothing was sent, or the one call refused."""
        pool = self._pool
        kept: Link | None = None
        patience.begin()
        began_at = time.monotonic()
        try:
            link = pool.begin_turn(patience.ends_at - began_at)
        except TimeoutError as error:
            in_vain.append(error)
            return error
        if pool.moved_at > began_at:
            patience.extend()  # it has waited for calls that moved
        deadline = patience.ends_at
        try:
            if link is not None:
                deadline = min(deadline, time.monotonic() + self.timeout_s / 2)
            else:
                link = pool.connect(min(self.timeout_s / 2, deadline - time.monotonic()))
            allowed_s = max(deadline - time.monotonic(), LEAST_S)
            sent = commands if len(left) == len(commands) else [commands[at] for at in left]
            if may_be_heard and link.has_rested and len(sent[0]) < PIECE - len(_GREETING):
                send(link, [_GREETING + sent[0]], allowed_s, patience)
                read(link, patience)
            else:
                send(link, sent, allowed_s, patience)
            trouble = self._read(link, left, replies, deadline, allowed_s, patience)
            if trouble is not None and len(commands) == 1:
                in_vain.append(trouble)
            if trouble is None or isinstance(trouble, redis.exceptions.NoScriptError):
                kept, link = link, None  # otherwise a new one may lead to another server
        except (redis.exceptions.RedisError, OSError) as error:
            pool.close()  # the others have most likely broken with this one
            if link is None:
                in_vain.append(error)
            elif isinstance(error, redis.exceptions.ConnectionError):
                error = last_words(link, patience) or error
            return self._passing_or_raise(error)
        finally:
            try:
                if link is not None:
                    link.disconnect()  # a reply may be under way, which nobody else must get
            finally:
                pool.end_turn(kept)
        return trouble

    def _read(
        self,
        link: Link,
        left: list[int],
        replies: dict[int, Reply],
        deadline: float,
        allowed_s: float,
        patience: Patience,
    ) -> Exception | None:
        trouble: Exception | None = None
        for number in left:
            left_s = max(deadline, patience.moved_at + allowed_s) - time.monotonic()
            if left_s < 0.9 * allowed_s:  # replies came, but slowly
                allow(link, left_s)
            reply = read(link, patience)
            if isinstance(reply, redis.exceptions.RedisError):
                trouble = self._passing_or_raise(reply)
            else:
                replies[number] = reply
        return trouble

    # ------------------------------------------------------------------------------- troubles

    def _passing_or_raise(self, error: Exception) -> Exception:
        """The error itself if it may pass; otherwise it is raised in our words."""
        text = str(error)
        # Before it is known who asks, long commands are refused in words of their own.
        is_unknown = "unauthenticated" in text
        if is_unknown or isinstance(error, redis.exceptions.AuthenticationError):
            if self.address.password is None:
                raise EngineError(
                    f"The Redis server at {self.address} asks for a password ({text}), and there "
                    "is none in the url. Write redis://:PASSWORD@HOST, or redis://USER:PASSWORD@HOST.",
                    location=self.location,
                ) from error
            # Where nobody has logged in, that passes: a new connection does.
            if not is_unknown and "required" not in text.lower():
                raise EngineError(
                    f"The Redis server at {self.address} refused the login ({text}). "
                    "Check user name and password in the url.",
                    location=self.location,
                ) from error
            return error
        if "DB index is out of range" in text:
            raise EngineError(
                f"The Redis server at {self.address} has no database {self.address.database}. "
                "Give a lower number in the url (0 is always there), or raise databases on it.",
                location=self.location,
            ) from error
        if self.address.is_encrypted and _speaks_no_tls(error):
            return redis.exceptions.TimeoutError(
                f"{text}; if it does not speak TLS on this port, write redis:// in the url"
            )
        if "certificate verify failed" in text.lower():
            raise EngineError(
                f"The certificate of the Redis server at {self.address} is not to be trusted "
                f"({text}). Use the name that is in it, or name who signed it with ?ca_file=.",
                location=self.location,
            ) from error
        if "invalid bulk length" in text:
            raise PayloadTooLarge(
                f"The Redis server at {self.address} cannot take a call or result of this size "
                f"({text}), and never will: its limit is proto-max-bulk-len. Store the value "
                "elsewhere and pass its key, or raise the limit; set max_payload below it."
            ) from error
        if not isinstance(error, redis.exceptions.ResponseError) or _advice(error) is not None:
            return error
        raise EngineError(
            f"The Redis server at {self.address} refused a command ({text}). Check the rights of "
            "the user in the url; otherwise this is a bug in windlass: run `windlass check`.",
            location=self.location,
        ) from error

    def _unavailable(self, cause: Exception, began_at: float, unsent: bool) -> EngineUnavailable:
        seconds = time.monotonic() - began_at
        advice = _advice(cause)
        did = "did not answer" if advice is None else "did no work"
        return EngineUnavailable(
            f"The Redis server at {self.address} {did} for {seconds:.1f} s "
            f"({str(cause) or type(cause).__name__}). {advice or _UNREACHED}",
            location=self.location,
            seconds=round(seconds, 3),
            unsent=unsent,
        )


def _may_halve(calls: Sequence[Call], left: Sequence[int]) -> bool:
    return any(calls[number].halves is not None for number in left)


def _tell_whole(commands: list[bytes], calls: Sequence[Call], left: Sequence[int]) -> bool:
    """Let the texts of scripts go along; whether there are any."""
    found = False
    for number in left:
        call = calls[number]
        if call.prefixes is not None:
            found = True
            commands[number] = call.prefixes.whole.command(call.arguments)
    return found


def _insist(commands: list[bytes], calls: Sequence[Call], left: Sequence[int]) -> bool:
    """Let those calls go on that a full server need not refuse; whether there is a new one."""
    found = False
    for number in left:
        call = calls[number]
        if call.prefixes is not None and call.prefixes.when_full is not None:
            command = Prefix(call.prefixes.when_full).command(call.arguments)
            found = found or command != commands[number]
            commands[number] = command
    return found


def _advice(error: Exception) -> str | None:
    """What helps against a reply that may pass; None for any other error."""
    for kind, advice in _PASSING.items():
        if isinstance(error, kind):
            return advice
    return _PASSING_WORDS.get(str(error).partition(" ")[0])


def _speaks_no_tls(error: Exception) -> bool:
    """Perhaps: a server that takes our greeting for a command waits for its end, or answers it."""
    text = str(error).lower()
    return "timeout connecting" in text or "wrong version number" in text
