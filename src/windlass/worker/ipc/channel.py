"""What a supervisor and its children say to each other, and the channel on which they say it.

Messages are lines of JSON on a socket pair of their own for each child. They are few: which job
runs where, and which nonces are known, is in shared memory (`slots`), where it can be read even
when the child is stopped, hangs or is dead.

The supervisor never waits for a child that does not read: what the socket does not take is kept, up
to a bound, and sent when there is room. A message beyond the bound is refused as a whole. A line
that was cut would make nonsense of the next one.
"""

from __future__ import annotations

import os
import socket
from threading import Lock
from typing import Generic, TypeVar

import msgspec

from windlass.dead_letter import DeadAlert
from windlass.worker.options import WorkerOptions

# ------------------------------------------------------------------------------ supervisor to child


class Start(msgspec.Struct, frozen=True, tag="start"):
    """The first message: what to serve."""

    options: WorkerOptions
    slots: int
    is_solo: bool  # run what must run alone, one at a time, and end when there is nothing
    introduction: bytes  # what its sessions say of themselves, before the app is loaded


class Drain(msgspec.Struct, frozen=True, tag="drain"):
    """Claim nothing more, finish what runs, then end."""


class HandBack(msgspec.Struct, frozen=True, tag="hand_back"):
    """Give back what runs, and end now."""


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    """Interrupt these jobs: their cancellation was requested."""

    ids: tuple[str, ...]


class Disown(msgspec.Struct, frozen=True, tag="disown"):
    """This run went too far, and its job was taken from it."""

    id: str
    token: str


class Alert(msgspec.Struct, frozen=True, tag="alert"):
    """Dead jobs pile up: the app may want to know."""

    alert: DeadAlert


class SessionGone(msgspec.Struct, frozen=True, tag="session_gone"):
    """The engine has declared this session dead."""

    session: str


Command = Start | Drain | HandBack | Cancel | Disown | Alert | SessionGone

# ------------------------------------------------------------------------------ child to supervisor


class Declaration(msgspec.Struct, frozen=True):
    """A schedule that the app declares in code, as it is stored."""

    name: str
    body: bytes
    version: int = 0


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The app is loaded. Tells the supervisor what it needs of the settings."""

    url: str
    lease_ms: int
    shutdown_grace_ms: int
    kill_after_ms: int
    dead_ttl_ms: int
    dead_alert: int
    dead_alert_growth: int
    tasks: tuple[str, ...]
    log_level: str
    log_format: str
    unusual: dict[str, str]  # settings that are not the default, for people
    overruled: dict[str, str]  # settings that the code gives otherwise than the environment
    schedules: tuple[Declaration, ...] = ()
    idle_routes: tuple[str, ...] = ()  # patterns that fit none of the tasks
    queues: tuple[str, ...] = ()  # that the tasks go to, unless a caller says otherwise
    keys: tuple[str, ...] = ()  # names of the keys that it has


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The app cannot be loaded, or its engine cannot be used; the text is for a person."""

    text: str


class SessionStarted(msgspec.Struct, frozen=True, tag="session_started"):
    """From now on this session is to be kept alive, and no earlier one of this child."""

    session: str


class Resting(msgspec.Struct, frozen=True, tag="resting"):
    """It is idle: the waiter waits for it, and a put may claim for it under the nonce unless that
    is empty. With None it is not idle any more."""

    session: str
    nonce: str | None


class SuspectsSeen(msgspec.Struct, frozen=True, tag="suspects_seen"):
    """Jobs are waiting that must run alone."""


class Limited(msgspec.Struct, frozen=True, tag="limited"):
    """From now on there may be runs in its slot table that go too far."""


class Draining(msgspec.Struct, frozen=True, tag="draining"):
    """It has heard that it is to drain."""


class Wedged(msgspec.Struct, frozen=True, tag="wedged"):
    """It can report nothing any more; the text says where it stands still."""

    text: str


Report = Ready | Failed | SessionStarted | Resting | SuspectsSeen | Limited | Draining | Wedged

# ------------------------------------------------------------------------------------------ channel

Incoming = TypeVar("Incoming")

#: How much is read at once.
_CHUNK = 65536
#: So many bytes are kept for a child that does not read.
MOST_UNSENT = 1024 * 1024
#: So many ids are named by one message; further ones need further messages.
MOST_IDS = 1000


class Channel(Generic[Incoming]):
    """One end of the line between a supervisor and a child."""

    def __init__(self, connection: socket.socket, decoder: msgspec.json.Decoder[Incoming]) -> None:
        self._connection = connection
        self._decoder = decoder
        self._sending = Lock()
        self._partial = b""

    def fileno(self) -> int:
        return self._connection.fileno()

    def send(self, message: msgspec.Struct) -> None:
        """Raises `OSError` when the other side is gone, or has not read for very long."""
        with self._sending:
            self._connection.sendall(msgspec.json.encode(message) + b"\n")

    def receive(self) -> list[Incoming]:
        """The whole messages that one read completed; `EOFError` when there will be no more."""
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
    """The end that never waits: a child that does not read must not hold up the signals of all."""

    def __init__(self, connection: socket.socket, decoder: msgspec.json.Decoder[Incoming]) -> None:
        super().__init__(connection, decoder)
        connection.setblocking(False)
        self._unsent = bytearray()

    def send(self, message: msgspec.Struct) -> None:
        """Raises `OSError` when the other side is gone, and when it has not read for so long that
        the message would be too much to keep: then nothing of it is sent."""
        line = msgspec.json.encode(message) + b"\n"
        if len(self._unsent) + len(line) > MOST_UNSENT:
            self.flush()
            if len(self._unsent) + len(line) > MOST_UNSENT:
                raise BlockingIOError("The other side does not read.")
        self._unsent += line
        self.flush()

    def flush(self) -> None:
        """Send as much as there is room for. Raises `OSError` when the other side is gone."""
        try:
            while self._unsent:
                del self._unsent[: self._connection.send(self._unsent)]
        except BlockingIOError:
            return

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent)


def open_pair() -> tuple[BufferedChannel[Report], socket.socket]:
    """The supervisor's end, and the socket for the child to inherit."""
    ours, theirs = socket.socketpair()
    return BufferedChannel(ours, msgspec.json.Decoder(Report)), theirs


def join_pair(descriptor: int) -> Channel[Command]:
    """The child's end, from the descriptor it inherited and does not pass on."""
    os.set_inheritable(descriptor, False)
    return Channel(socket.socket(fileno=descriptor), msgspec.json.Decoder(Command))
