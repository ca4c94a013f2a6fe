"""The retry loop around every call to a Redis server.

1. `Server.run` sends commands in Redis's protocol and returns their replies. It retries transient
   failures (a broken connection, a server that loads, fails over or is busy) until the deadline;
   then the call fails as unavailable. All commands may be repeated. Every moved piece extends the
   deadline: a large call may take long, and only a link that stands still fails.
2. A large call that was cut off twice is split into halves, if it supports that.
3. A pooled connection gets half of the time: the network may have dropped it silently, and the
   other half is left for a new connection.
4. A server whose memory is full is sent another form of scripts that need no memory.
5. A connection that may still receive a reply is closed and never reused.
"""

from __future__ import annotations

import os
import random
import ssl
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
    TimeBudget,
    own_pool,
    pool_of,
)
from windlass.engine.redis.client.scripts import Prefix, Prefixes, pack
from windlass.engine.redis.url import RedisAddress
from windlass.errors import EngineError, EngineUnavailable, PayloadTooLarge

_FIRST_PAUSE_S: Final = 0.01
_MOST_PAUSE_S: Final = 0.25
#: Transient error replies, with the advice to print if they persist.
_TRANSIENT: Final[dict[type[Exception], str]] = {
    redis.exceptions.ReadOnlyError: "Give the address of the primary, or make this server one.",
    redis.exceptions.BusyLoadingError: "Wait until it has read its data.",
    redis.exceptions.MasterDownError: "Wait until it has found its primary, or give its address.",
    redis.exceptions.ClusterDownError: "Wait until the cluster has a new owner for these slots.",
    redis.exceptions.TryAgainError: "Wait until the slot has moved.",
    redis.exceptions.OutOfMemoryError: "Its memory is full: raise maxmemory, or remove jobs.",
    redis.exceptions.AuthenticationError: "It drops logins: check its users and its ACL.",
    redis.exceptions.NoScriptError: "It loses scripts at once: find the client that flushes them.",
}
#: Transient replies that have no class in the driver, by first word, with the advice.
_TRANSIENT_CODES: Final = {
    "BUSY": "Another client's script has run for long: wait for it, or end it with SCRIPT KILL.",
    "NOREPLICAS": "Too few replicas follow it: wait for them, or lower min-replicas-to-write.",
    "MISCONF": "It cannot write to its disk: fix the disk; its log shows the error.",
}
#: Sent before a call that may wake a waiter. Redis first writes to clients without pending output.
#: With the reply to this command pending, Redis sends the job to the waiting worker before it
#: replies to the producer, and the worker does not wait for the producer. A busy connection skips
#: this command.
_PREAMBLE: Final = pack(b"TIME")
#: What OpenSSL says of a client certificate that cannot be used, and what a server says of one
#: that is missing or that it refuses.
_UNUSABLE: Final = ("pem lib", "key values mismatch", "bad decrypt", "no start line")
_REFUSED: Final = (
    *("certificate required", "alert handshake failure", "alert unknown ca"),
    *("alert bad certificate", "alert certificate expired", "alert certificate unknown"),
)
#: What the driver and the system say of a connection that the server has ended.
_ENDED: Final = ("Connection reset by peer", "Connection closed by server")
_UNREACHED: Final = "Check that it runs and can be reached from here."

Reply = Any


class RedisCall(msgspec.Struct, frozen=True):
    """A command for the server. A script is named by its digest; the client sends its text only
    when the server asks for it. For a large call with several items, `halves` splits it into two
    calls, and `join` combines their replies."""

    command: bytes
    prefixes: Prefixes | None = None
    arguments: Sequence[bytes] = ()
    halves: Callable[[], tuple[RedisCall, RedisCall]] | None = None
    join: Callable[[Reply, Reply], Reply] = add


_command_of: Final = attrgetter("command")
_with_text: Final[Callable[[Prefixes], Prefix]] = attrgetter("whole")


class Server:
    """Client of one server, for one engine object."""

    def __init__(self, address: RedisAddress, options: EngineOptions) -> None:
        self.address = address
        self.has_forgotten = False  # the server lost its scripts: it restarted, or was replaced
        self.timeout_s = options.timeout_ms / 1000
        if options.has_own_connections:
            self._pool = own_pool(address)
        else:
            self._pool = pool_of(address, options.most_calls)

    @property
    def location(self) -> str:
        return f"redis {self.address.with_namespace}"

    def deadline(self) -> float:
        """Return the deadline of a call that begins now."""
        return time.monotonic() + self.timeout_s

    def ask(self, commands: Sequence[bytes], deadline: float) -> list[Reply]:
        """Run plain commands and return their replies."""
        return self.run(list(map(RedisCall, commands)), deadline)

    def connect(self, timeout_s: float) -> Link:
        """Open a connection that belongs to the caller."""
        return self._pool.connect(timeout_s)

    def close(self) -> None:
        """Close idle connections; the next call opens new ones."""
        self._pool.close()

    # ------------------------------------------------------------------------------- the retry loop

    def run(self, calls: Sequence[RedisCall], deadline: float) -> list[Reply]:
        """Send all calls to the server together and return their replies."""
        commands = list(map(_command_of, calls))
        replies: dict[int, Reply] = {}
        pause_s = 0.0  # retry at once: most connections break while idle
        cause: Exception | None = None
        failures = 0
        no_effect: list[Exception] = []
        left = list(range(len(commands)))
        budget = TimeBudget(self._pool, deadline, self.timeout_s)
        # Most scripts that add data add jobs, and so may wake waiters.
        prefixes = calls[0].prefixes if len(calls) == 1 else None
        may_wake = prefixes is not None and prefixes.adds
        while True:
            failure = self._attempt(commands, left, replies, budget, no_effect, may_wake)
            if failure is None:
                return list(map(replies.__getitem__, range(len(commands))))
            failures += 1
            left = [number for number in left if number not in replies]
            is_forgotten = isinstance(failure, redis.exceptions.NoScriptError)
            if is_forgotten and _change_scripts(commands, calls, left, _with_text):
                self.has_forgotten = True
                continue
            is_full = isinstance(failure, redis.exceptions.OutOfMemoryError)
            if is_full and _change_scripts(commands, calls, left, _for_full_server):
                continue
            if cause is None or not isinstance(failure, redis.exceptions.TimeoutError):
                cause = failure  # perhaps the last attempt only had too little time
            if time.monotonic() + pause_s >= budget.ends_at:
                began_at = max(deadline - self.timeout_s, budget.moved_at)
                raise self._unavailable(cause, began_at, len(no_effect) == failures) from cause
            if failures > 1 and _advice(failure) is None and _may_halve(calls, left):
                self._run_in_halves(calls, left, replies, budget.ends_at)
                return list(map(replies.__getitem__, range(len(commands))))
            time.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(pause_s * 2 or _FIRST_PAUSE_S, _MOST_PAUSE_S)

    def _run_in_halves(
        self,
        calls: Sequence[RedisCall],
        left: Sequence[int],
        replies: dict[int, Reply],
        deadline: float,
    ) -> None:
        """Run the halves of each call in turn. Each reply shows that the server is alive."""
        for number in left:
            call = calls[number]
            parts = (call,) if call.halves is None else call.halves()
            answers: list[Reply] = []
            for part in parts:
                try:
                    answers += self.run([part], deadline)
                except EngineUnavailable as error:
                    error.unsent = False  # the whole call was sent before
                    raise
                deadline = self.deadline()
            replies[number] = answers[0] if len(answers) == 1 else call.join(*answers)

    def _attempt(
        self,
        commands: list[bytes],
        left: list[int],
        replies: dict[int, Reply],
        budget: TimeBudget,
        no_effect: list[Exception],
        may_wake: bool,
    ) -> Exception | None:
        """Send the calls that have no reply yet. Return a transient failure, or None when all
        replies have come. `no_effect` collects failures without effect: nothing was sent, or the
        server refused the only call."""
        pool = self._pool
        kept: Link | None = None
        budget.begin()
        began_at = time.monotonic()
        try:
            link = pool.acquire(budget.ends_at - began_at)
        except TimeoutError as error:
            no_effect.append(error)
            return error
        if pool.moved_at > began_at:
            budget.extend()  # other calls on the busy connections have moved bytes
        deadline = budget.ends_at
        try:
            if link is not None:
                deadline = min(deadline, time.monotonic() + self.timeout_s / 2)
            else:
                link = pool.connect(min(self.timeout_s / 2, deadline - time.monotonic()))
            allowed_s = max(deadline - time.monotonic(), LEAST_S)
            sent = commands if len(left) == len(commands) else [commands[at] for at in left]
            if may_wake and link.was_idle and len(sent[0]) < PIECE - len(_PREAMBLE):
                link.send([_PREAMBLE + sent[0]], allowed_s, budget)
                link.read(budget)
            else:
                link.send(sent, allowed_s, budget)
            failure = self._read(link, left, replies, deadline, allowed_s, budget)
            if failure is not None and len(commands) == 1:
                no_effect.append(failure)
            if failure is None or isinstance(failure, redis.exceptions.NoScriptError):
                kept, link = link, None  # after other errors, reconnect: perhaps to another server
        except (redis.exceptions.RedisError, OSError) as error:
            pool.close()  # other idle connections are most likely broken too
            if link is None:
                no_effect.append(error)
            elif isinstance(error, redis.exceptions.ConnectionError):
                error = link.read_final_error(budget) or error
            is_silent = link is None or not link.has_answered
            return self._transient_or_raise(self._suggest_tls(error) if is_silent else error)
        finally:
            try:
                if link is not None:
                    link.disconnect()  # a late reply must not reach another caller
            finally:
                pool.release(kept)
        return failure

    def _read(
        self,
        link: Link,
        left: list[int],
        replies: dict[int, Reply],
        deadline: float,
        allowed_s: float,
        budget: TimeBudget,
    ) -> Exception | None:
        failure: Exception | None = None
        for number in left:
            left_s = max(deadline, budget.moved_at + allowed_s) - time.monotonic()
            if left_s < 0.9 * allowed_s:  # replies came, but slowly
                link.allow(left_s)
            reply = link.read(budget)
            if isinstance(reply, redis.exceptions.RedisError):
                failure = self._transient_or_raise(reply)
            else:
                replies[number] = reply
        return failure

    # ------------------------------------------------------------------------------- errors

    def _transient_or_raise(self, error: Exception) -> Exception:
        """Return a transient error; raise any other as an error of windlass."""
        text = str(error)
        # Before the login, Redis refuses long commands with a different message.
        is_unknown = "unauthenticated" in text
        if is_unknown or isinstance(error, redis.exceptions.AuthenticationError):
            if self.address.password is None:
                raise EngineError(
                    f"The Redis server at {self.address} asks for a password ({text}), and there "
                    "is none in the url. Write redis://:PASSWORD@HOST, or redis://USER:PASSWORD@HOST.",
                    location=self.location,
                ) from error
            # A connection that has not logged in yet is transient: a new one logs in.
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
                "Give a lower number in the url (0 is always there), or raise `databases` in its "
                "configuration.",
                location=self.location,
            ) from error
        if self.address.is_encrypted and _speaks_no_tls(error):
            return redis.exceptions.TimeoutError(
                f"{text}; if it does not speak TLS on this port, write redis:// in the url"
            )
        if self.address.is_encrypted:
            self._refuse_certificates(error, text)
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

    def _suggest_tls(self, error: Exception) -> Exception:
        """Add a hint to the error of a connection that ended without a reply. A server that expects
        TLS ends connections without it."""
        text = str(error)
        is_plain = not self.address.is_encrypted and not self.address.path
        if is_plain and any(words in text for words in _ENDED):
            return redis.exceptions.ConnectionError(
                f"{text}; if it speaks TLS on this port, write rediss:// in the url"
            )
        return error

    def _refuse_certificates(self, error: Exception, text: str) -> None:
        """Raise an error of TLS that stays until the url, a file or a certificate is changed."""
        if "certificate verify failed" in text.lower():
            raise EngineError(
                f"The certificate of the Redis server at {self.address} is not trusted "
                f"({text}). Use the host name of the certificate, or give its CA with ?ca_file=.",
                location=self.location,
            ) from error
        for name, file in self.address.files.items():
            if isinstance(error, OSError) and error.filename == file:
                raise EngineError(
                    f"The file {file} of the option {name} in the url of the Redis server at "
                    f"{self.address} cannot be read ({error.strerror}). Check the path, which "
                    f"starts from {os.getcwd()} unless it is absolute, and the rights of the file.",
                    location=self.location,
                ) from error
        if isinstance(error.__context__, ssl.SSLError) and (why := _ca_fault(self.address)):
            raise EngineError(
                f"The file {self.address.ca_file} of the option ca_file in the url of the Redis "
                f"server at {self.address} has no certificate that can be read ({why}). Expected "
                "PEM, with the certificate of the server, or of the CA that signed it; a key "
                "belongs in key_file.",
                location=self.location,
            ) from error
        if advice := _certificate_advice(text, self.address):
            raise EngineError(
                f"TLS with the Redis server at {self.address} failed ({text}). {advice}",
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


def _may_halve(calls: Sequence[RedisCall], left: Sequence[int]) -> bool:
    return any(calls[number].halves is not None for number in left)


def _change_scripts(
    commands: list[bytes],
    calls: Sequence[RedisCall],
    left: Sequence[int],
    form: Callable[[Prefixes], Prefix | None],
) -> bool:
    """Send another form of the scripts; return whether any command changed."""
    found = False
    for number in left:
        call = calls[number]
        prefix = None if call.prefixes is None else form(call.prefixes)
        if prefix is not None:
            command = prefix.command(call.arguments)
            found = found or command != commands[number]
            commands[number] = command
    return found


def _for_full_server(prefixes: Prefixes) -> Prefix | None:
    return None if prefixes.when_full is None else Prefix(prefixes.when_full)


def _advice(error: Exception) -> str | None:
    """Return the advice for a transient error; None for any other error."""
    for kind, advice in _TRANSIENT.items():
        if isinstance(error, kind):
            return advice
    return _TRANSIENT_CODES.get(str(error).partition(" ")[0])


def _ca_fault(address: RedisAddress) -> str:
    """Say why the file of ca_file has no certificates; nothing if it has some. The driver has read
    the file, but its error names neither the file nor the option."""
    if address.ca_file is None:
        return ""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(address.ca_file)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _certificate_advice(text: str, address: RedisAddress) -> str:
    """The advice for a client certificate that is missing, invalid or refused; else nothing."""
    text = text.lower().replace("_", " ")
    if any(words in text for words in _UNUSABLE):
        return "Check cert_file and key_file in the url: PEM, a key without a password, and a pair."
    if not any(words in text for words in _REFUSED):
        return ""
    if address.cert_file is None:
        asks = "It asks" if "required" in text else "Perhaps it asks"
        return f"{asks} for a client certificate: give ?cert_file= and &key_file= in the url."
    return "It does not accept the certificate of cert_file: check its CA and its dates."


def _speaks_no_tls(error: Exception) -> bool:
    """Guess whether the server lacks TLS. Such a server takes the handshake for a command: the
    server waits for more, or replies with an error."""
    text = str(error).lower()
    return "timeout connecting" in text or "wrong version number" in text
