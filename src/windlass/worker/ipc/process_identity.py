"""Identify a process across machines, so that its end is known for sure.

A pid alone is not enough: other machines and containers have the same pids, and the system reuses a
pid after its process has ended. Together these values identify a process:

1. `machine()`: the boot id of the machine, and the namespaces of pids and start times. Containers
   of one machine have different namespaces.
2. The pid, and `start_of(pid)`: when the process was started, in ticks since the boot.

`has_ended` is true only for a process that has certainly ended, and `has_died` for a session whose
processes both have. Where there is no /proc, as on
macOS, or where /proc shows the processes of another namespace, `machine()` is empty, and callers
must not use the other functions.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from windlass.core.introduction import Introduction

_PROC: Final = Path("/proc")
#: The namespaces of pids and of start times. Older systems do not have the last one.
_NAMESPACES: Final = ("pid", "time")
#: The positions in /proc/PID/stat, counted from the state, which follows the name.
STATE, _START = 0, 19
_ENDED: Final = (b"Z", b"X")


def machine() -> str:
    """Return the boot id and the namespaces of this process; empty if unknown."""
    try:
        boot = _PROC.joinpath("sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        own = int(_PROC.joinpath("self/stat").read_bytes().split(maxsplit=1)[0])
    except (OSError, ValueError):
        return ""
    names = [_namespace(name) for name in _NAMESPACES]
    if own != os.getpid() or not boot or not names[0]:
        return ""  # /proc shows another namespace, with other pids
    return " ".join([boot, *names]).strip()


def _namespace(name: str) -> str:
    try:
        return os.readlink(_PROC / "self" / "ns" / name)
    except OSError:
        return ""


def start_of(pid: int) -> int:
    """Return when a process was started, in ticks since the boot; 0 if unknown."""
    fields = stat_of(pid)
    return 0 if fields is None else int(fields[_START])


def has_ended(pid: int, start: int) -> bool:
    """Return whether the process with this pid and start has ended on this `machine()`. False when
    in doubt."""
    if pid <= 0 or start <= 0:
        return False
    try:
        os.kill(pid, 0)  # finds processes of other users, which /proc may hide
    except ProcessLookupError:
        return True
    except OverflowError:
        return False  # no system has this pid: the value is damaged
    except OSError:  # the process exists, and belongs to another user
        pass
    fields = stat_of(pid)
    if fields is None:
        return False
    return int(fields[_START]) != start or (fields[STATE] in _ENDED and _is_alone(pid))


def has_died(said: Introduction, here: str) -> bool:
    """Return whether supervisor and child of a session have ended on the machine `here`, which is
    `machine()`. False when in doubt."""
    return (
        bool(here)
        and said.machine == here
        and has_ended(said.worker, said.worker_start)
        and has_ended(said.child, said.child_start)
    )


def _is_alone(pid: int) -> bool:
    """Return whether only the first thread is left. The system shows a process as ended when its
    first thread has ended, although other threads may still run."""
    with suppress(OSError):
        return len(os.listdir(_PROC / str(pid) / "task")) <= 1
    return False


def stat_of(pid: int) -> list[bytes] | None:
    """Return the fields of /proc/PID/stat from the state on. The name before them may be any
    text."""
    with suppress(OSError):
        fields = _PROC.joinpath(str(pid), "stat").read_bytes().rpartition(b")")[2].split()
        return fields if len(fields) > _START else None
    return None
