"""The messages between a supervisor and its children, and their channel.

Messages are lines of JSON on one socket pair for each child. They are few: running jobs and nonces
are in shared memory (`shared_memory`), which the supervisor can read even when the child is
stopped, hangs or is dead.

The supervisor never waits for a child that does not read. It buffers messages that the socket does
not take, up to a limit, and sends them when there is room. A message beyond the limit is refused as
a whole, because a partial line would corrupt the next one.
"""

from __future__ import annotations

import os
import socket
from threading import Lock
from typing import Generic, TypeVar

import msgspec

from windlass.core.alerts.rules import Alert, AlertEvent
from windlass.core.redaction import ParameterNames
from windlass.engine.contract import Measure
from windlass.worker.options import WorkerOptions

# ------------------------------------------------------------------------------ supervisor to child


class Start(msgspec.Struct, frozen=True, tag="start"):
    """The first message, with all options of the child."""

    options: WorkerOptions
    slots: int
    is_solo: bool  # run only jobs that must run alone, one at a time; end when there are none
    worker_started_ms: int = 0  # by the clock of this machine


class DrainChild(msgspec.Struct, frozen=True, tag="drain"):
    """Claim nothing more, finish running jobs, then end."""


class SetQuiet(msgspec.Struct, frozen=True, tag="set_quiet"):
    """Claim nothing more and finish running jobs, but stay; or claim again."""

    is_quiet: bool


class HandBack(msgspec.Struct, frozen=True, tag="hand_back"):
    """Hand back running jobs, and end now."""


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    """Interrupt these jobs: their cancellation was requested."""

    ids: tuple[str, ...]


class Disown(msgspec.Struct, frozen=True, tag="disown"):
    """Drop the outcome of a run: it exceeded its limit and lost its job."""

    id: str
    token: str


class CallAlertHooks(msgspec.Struct, frozen=True, tag="call_alert_hooks"):
    """An alert fires or clears: call the alert hooks of the app."""

    event: AlertEvent


class EndedByForce(msgspec.Struct, frozen=True, tag="ended_by_force"):
    """The supervisor has ended a run of this job, and reported it: call the hooks of its task."""

    id: str
    retry_in_ms: int | None = None  # None if the job is dead


class SessionGone(msgspec.Struct, frozen=True, tag="session_gone"):
    """The engine has declared this session dead."""

    session: str


Command = (
    Start
    | DrainChild
    | SetQuiet
    | HandBack
    | Cancel
    | Disown
    | CallAlertHooks
    | EndedByForce
    | SessionGone
)

# ------------------------------------------------------------------------------ child to supervisor


class AppDeclaration(msgspec.Struct, frozen=True):
    """A schedule that the app declares in code, as it is stored."""

    name: str
    body: bytes
    version: int = 0


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The app is loaded. Contains the settings that the supervisor needs."""

    url: str
    lease_ms: int
    shutdown_grace_ms: int
    kill_after_ms: int
    dead_ttl_ms: int
    alerts: tuple[Alert, ...]  # all rules, also those of `dead_alert`
    alert_webhook: str
    tasks: tuple[str, ...]
    log_level: str
    log_format: str
    unusual: dict[str, str]  # settings that differ from the default, for the log
    overruled: dict[str, str]  # settings in code that override the environment
    schedules: tuple[AppDeclaration, ...] = ()
    idle_routes: tuple[str, ...] = ()  # patterns that match no task
    queues: tuple[str, ...] = ()  # the default queues of the tasks
    introduction: bytes = b""  # the description of the child's sessions
    redact: tuple[str, ...] = ()  # names of arguments that the log does not show
    parameters: dict[str, ParameterNames] = {}  # of tasks with such a positional parameter
    outbox: str = ""  # the url of the outbox to relay


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The app cannot be loaded, or its engine cannot be used; the text is for the log."""

    text: str


class ChildSessionStarted(msgspec.Struct, frozen=True, tag="session_started"):
    """Keep this session alive from now on, and no earlier session of this child."""

    session: str


class Resting(msgspec.Struct, frozen=True, tag="resting"):
    """The child is idle, or busy if the nonce is None. The waiter waits on behalf of an idle child.
    A put may claim for it under a nonce that is not empty."""

    session: str
    nonce: str | None


class SuspectsSeen(msgspec.Struct, frozen=True, tag="suspects_seen"):
    """Jobs that must run alone are waiting."""


class Limited(msgspec.Struct, frozen=True, tag="limited"):
    """From now on the slot table may contain runs with a limit."""


class Draining(msgspec.Struct, frozen=True, tag="draining"):
    """The child has received `DrainChild`."""


class Wedged(msgspec.Struct, frozen=True, tag="wedged"):
    """The fetcher of the child is stuck; the text says where."""

    text: str


class RunsMeasured(msgspec.Struct, frozen=True, tag="measured", omit_defaults=True):
    """The measures of runs that ended since the last of these messages."""

    measures: tuple[Measure, ...] = ()
    stale: dict[str, int] = {}  # the number of rejected outcomes by verb


Report = (
    Ready
    | Failed
    | ChildSessionStarted
    | Resting
    | SuspectsSeen
    | Limited
    | Draining
    | Wedged
    | RunsMeasured
)

# ------------------------------------------------------------------------------------------ channel

Incoming = TypeVar("Incoming")

#: The most bytes of one read.
_CHUNK = 65536
#: The most bytes to buffer for a child that does not read.
MOST_UNSENT = 1024 * 1024
#: The most ids in one message.
MOST_IDS = 1000


class Channel(Generic[Incoming]):
    """One end of the channel between a supervisor and a child."""

    def __init__(self, connection: socket.socket, decoder: msgspec.json.Decoder[Incoming]) -> None:
        self._connection = connection
        self._decoder = decoder
        self._sending = Lock()
        self._partial = b""

    def fileno(self) -> int:
        return self._connection.fileno()

    def send(self, message: msgspec.Struct) -> None:
        """Send a message. Raises `OSError` when the other side is gone, or has not read for very
        long."""
        with self._sending:
            self._connection.sendall(msgspec.json.encode(message) + b"\n")

    def receive(self) -> list[Incoming]:
        """Read once, and return the complete messages. Raises `EOFError` on a closed channel."""
        try:
            chunk = self._connection.recv(_CHUNK)
        except ConnectionResetError:
            chunk = b""
        if not chunk:
            raise EOFError("The other side closed the channel.")
        *lines, self._partial = (self._partial + chunk).split(b"\n")
        return [self._decoder.decode(line) for line in lines]

    def close(self) -> None:
        self._connection.close()


class BufferedChannel(Channel[Incoming]):
    """The supervisor's end, which never blocks: a child that does not read must not block it."""

    def __init__(self, connection: socket.socket, decoder: msgspec.json.Decoder[Incoming]) -> None:
        super().__init__(connection, decoder)
        connection.setblocking(False)
        self._unsent = bytearray()

    def send(self, message: msgspec.Struct) -> None:
        """Send a message, or buffer the part that the socket does not take. Raises `OSError` if the
        child is gone. Raises `BlockingIOError` if the buffer is full, and then sends no part of the
        message: half a line would corrupt the next message."""
        line = msgspec.json.encode(message) + b"\n"
        if len(self._unsent) + len(line) > MOST_UNSENT:
            self.flush()
            if len(self._unsent) + len(line) > MOST_UNSENT:
                raise BlockingIOError("The buffer is full: the child does not read.")
        self._unsent += line
        self.flush()

    def flush(self) -> None:
        """Send as many buffered bytes as fit. Raises `OSError` when the other side is gone."""
        try:
            while self._unsent:
                del self._unsent[: self._connection.send(self._unsent)]
        except BlockingIOError:
            return

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent)


def open_pair() -> tuple[BufferedChannel[Report], socket.socket]:
    """Return the supervisor's end, and the socket that the child inherits."""
    ours, theirs = socket.socketpair()
    return BufferedChannel(ours, msgspec.json.Decoder(Report)), theirs


def join_pair(descriptor: int) -> Channel[Command]:
    """Open the child's end, from an inherited descriptor that the child does not pass on."""
    os.set_inheritable(descriptor, False)
    return Channel(socket.socket(fileno=descriptor), msgspec.json.Decoder(Command))
