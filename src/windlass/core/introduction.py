"""The description of a session, for operators and for other workers.

1. `Introduction` is for lists of workers. It must not contain secrets.
2. `RemoteIntroduction` has more about a session of the worker protocol, for the gateway alone.

The engine stores it, and other versions read it: unknown fields are ignored, and every field has a
default.
"""

from __future__ import annotations

from typing import Final, Self

import msgspec

#: The kind of a session of the worker protocol.
HTTP: Final = "http"


class Introduction(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The description of one child, or of an embedded worker."""

    host: str = ""
    worker: int = 0  # the pid of the supervisor
    child: int = 0  # and of the process in which jobs run
    #: Together with the pids these identify both processes: see `worker.ipc.process_identity`.
    machine: str = ""
    worker_start: int = 0
    child_start: int = 0
    app: str = ""
    queues: tuple[str, ...] = ()  # every queue when empty
    labels: tuple[str, ...] = ()
    slots: int = 0
    is_solo: bool = False
    started_ms: int = 0  # when the worker started, by the clock of its machine
    version: str = ""
    keys: tuple[str, ...] = ()  # the names of the keys of its app
    lease_ms: int = 0  # it sends three heartbeats in this time; 0 if it does not say
    kind: str = ""  # `HTTP` for a session of the worker protocol
    tasks: tuple[str, ...] = ()  # the tasks that a remote worker runs
    least_children: int = 0  # of a worker that scales their number; 0 if it is fixed
    most_children: int = 0

    def pack(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def unpack(cls, data: bytes) -> Self:
        """Decode a description; damaged bytes give an empty one."""
        try:
            return msgspec.json.decode(data, type=cls)
        except msgspec.MsgspecError:
            return cls()


class RemoteIntroduction(Introduction, frozen=True, kw_only=True, omit_defaults=True):
    """The description of a session of the worker protocol. Any instance of the gateway reads it."""

    principal: str = ""  # the caller that began the session; no other may use it
    #: Claims of the session are made under nonces that are derived from this secret.
    secret: str = ""
