"""The `windlass` command, and `windlass health` without loading `windlass`.

A probe runs every few seconds for as long as a worker lives, so it must be cheap: it needs no app,
no engine and only the standard library. An import of any module of `windlass` loads its public
names, which takes several times longer than the probe. So this is a separate package.

1. Every supervisor listens on a socket in `folder()`, and answers each connection with one JSON
   document about itself.
2. `check` asks all of them, and reports whether they are live and ready.
3. `command` is the console script: `health` runs here, every other command in `windlass.cli`.
   Ctrl-C during the import of `windlass.cli` ends the command without a traceback.
"""

from __future__ import annotations

import os
import socket
import stat
import sys

TYPE_CHECKING = False  # as in `typing`, which takes as long to import as all the rest here
if TYPE_CHECKING:
    from typing import Any

#: How long a supervisor may take to answer, in seconds.
TIMEOUT_S = 2.0
#: The folder of the sockets, if not in the folder for temporary files.
VARIABLE = "WINDLASS_RUNTIME_DIR"
#: The app whose workers to check, unless `check` gets one.
APP_VARIABLE = "WINDLASS_APP"
_PREFIX = "worker-"
_SUFFIX = ".sock"
_FLAGS = {"--live", "--json"}
#: The exit code that shells use for a program that Ctrl-C has ended.
_INTERRUPTED = 130


def command() -> None:
    try:
        _run(sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


def _run(arguments: list[str]) -> None:
    if arguments[:1] == ["health"] and _FLAGS.issuperset(arguments[1:]):
        sys.exit(check(is_live="--live" in arguments, as_json="--json" in arguments))
    from windlass.cli import main

    main()


# ------------------------------------------------------------------------------------- the folder


def folder() -> str:
    """The folder of the sockets, the same for a worker and a probe of the same user."""
    given = os.environ.get(VARIABLE)
    if given:
        return given
    return os.path.join(os.environ.get("TMPDIR") or "/tmp", f"windlass-{os.geteuid()}")


def require_own_folder(path: str) -> None:
    """Raise `OSError` if other users could have created files in the folder."""
    found = os.lstat(path)
    is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    if not is_own or found.st_mode & 0o022:
        raise PermissionError(
            f"{path} must be a folder that only this user can write to. Remove it, or "
            f"name another one in {VARIABLE}."
        )


def name_socket() -> str:
    """Name a socket by pid and a random part: workers in other containers may share the pid."""
    return f"{_PREFIX}{os.getpid()}-{os.urandom(4).hex()}{_SUFFIX}"


def _find_sockets(path: str) -> list[str]:
    """The sockets of workers. Other programs may use the same folder."""
    names = [name for name in os.listdir(path) if name.endswith(_SUFFIX) and _pid_of(name)]
    return sorted(os.path.join(path, name) for name in names)


def _pid_of(name: str) -> int:
    """The pid in the name of a socket; 0 for a socket of another program."""
    pid = name.removeprefix(_PREFIX).partition("-")[0]
    return int(pid) if name.startswith(_PREFIX) and pid.isdecimal() else 0


# ----------------------------------------------------------------------------------------- asking


def check(*, app: str | None = None, is_live: bool = False, as_json: bool = False) -> int:
    """Ask all workers, print their answers, and return the exit code."""
    if not hasattr(socket, "AF_UNIX"):
        sys.stderr.write("Error: workers answer on Unix sockets, and this system has none.\n")
        return 1
    try:
        found = ask_all()
    except OSError as error:
        sys.stderr.write(f"Error: {error}\n")
        return 1
    app = app or os.environ.get(APP_VARIABLE)
    workers = [one for one in found if not app or one.get("app", app) == app]
    what = "live" if is_live else "ready"
    is_well = bool(workers) and all(one[what] for one in workers)
    if as_json:
        import json

        print(json.dumps({what: is_well, "workers": workers}, indent=2))
    else:
        _print(workers, what, _explain_missing(app, found))
    return 0 if is_well else 1


def _explain_missing(app: str | None, found: list[dict[str, Any]]) -> str:
    if not app:
        return f"No worker of this user was found in {folder()}."
    others = ", ".join(sorted({str(one["app"]) for one in found}))
    there = f"There are workers of {others}." if others else "There is none of any app."
    return f"No worker of the app {app} was found in {folder()}. {there}"


def _print(workers: list[dict[str, Any]], what: str, missing: str) -> None:
    if not workers:
        sys.stderr.write(f"{missing}\n")
    for one in workers:
        known = ", ".join(one[key] for key in ("app", "engine") if one.get(key))
        name = f"worker {one['pid']} ({known})" if known else f"worker {one['pid']}"
        if one[what]:
            print(f"{name}: {what}")
        else:
            print(f"{name}: not {what}: {one['why']}")


def ask_all() -> list[dict[str, Any]]:
    """The answers of all workers of this user. No answer counts as neither live nor ready."""
    path = folder()
    if not os.path.isdir(path):
        return []
    require_own_folder(path)
    answers = [_ask(place) for place in _find_sockets(path)]
    return [answer for answer in answers if answer is not None]


def prune(path: str) -> None:
    """Remove the sockets of workers that were killed."""
    for place in _find_sockets(path):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.setblocking(False)
            try:
                connection.connect(place)
            except ConnectionRefusedError:
                remove(place)
            except OSError:
                continue  # busy, or gone meanwhile


def _ask(path: str) -> dict[str, Any] | None:
    """Ask one worker. If it is gone, remove its socket and return None."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(TIMEOUT_S)
        try:
            connection.connect(path)
            return _decode(_read(connection))
        except (ConnectionRefusedError, FileNotFoundError):
            remove(path)
            return None
        except (OSError, ValueError):
            pid, why = _pid_of(os.path.basename(path)), f"it did not answer within {TIMEOUT_S:g} s"
            return {"pid": pid, "live": False, "ready": False, "why": why}


def _read(connection: socket.socket) -> bytes:
    parts = []
    while part := connection.recv(65536):
        parts.append(part)
    return b"".join(parts)


def _decode(answer: bytes) -> dict[str, Any]:
    import json

    decoded: dict[str, Any] = json.loads(answer)
    return decoded


def remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return
