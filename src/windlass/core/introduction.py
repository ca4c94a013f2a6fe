"""The description of a session, for operators and for other workers.

The engine stores it, and other versions read it: unknown fields are ignored, and every field has a
default. It must not contain secrets.
"""

from __future__ import annotations

import msgspec


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
    dead_alert: int = 0  # the threshold of its worker; 0 is never
    dead_alert_growth: int = 0
    keys: tuple[str, ...] = ()  # the names of the keys of its app
    lease_ms: int = 0  # it sends three heartbeats in this time; 0 if it does not say

    def pack(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def unpack(cls, data: bytes) -> Introduction:
        """Decode a description; damaged bytes give an empty one."""
        try:
            return msgspec.json.decode(data, type=cls)
        except msgspec.MsgspecError:
            return cls()
