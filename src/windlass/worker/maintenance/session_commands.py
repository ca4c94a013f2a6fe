"""The commands of operators, which arrive with the replies to heartbeats.

1. A command for one session applies to the whole worker. `CommandWatch` passes a changed command
   on, once.
2. The engine gets the command for all other sessions of the worker too. So `windlass workers` shows
   it, a child that starts later has it, and the next command for any session is a change.
3. A worker that is stopping keeps stopping. The engine gets that state too.

The engine is called only if a session has another command than its worker.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from logging import getLogger
from typing import Final

from windlass.engine.contract import Engine, Pulse, SessionCommand
from windlass.worker.logs.events import LogEvent

log = getLogger("windlass.worker")

#: Of two commands at the same time, the later in this list counts.
_STRENGTH: Final = (SessionCommand.RUN, SessionCommand.QUIET, SessionCommand.STOP)


class CommandWatch:
    """The command of one worker. Used by the heartbeat's thread, except for `note_stop`."""

    def __init__(self, engine: Engine, on_command: Callable[[SessionCommand], None]) -> None:
        self._engine = engine
        self._on_command = on_command
        self._command = SessionCommand.RUN
        self._is_stopping = False
        self._stored: dict[str, SessionCommand] = {}  # session -> its command in the engine

    def note_stop(self) -> None:
        """Note that the worker is stopping for another reason than a command. Thread-safe."""
        self._is_stopping = True

    def note(self, sessions: Collection[str], pulses: Iterable[Pulse]) -> None:
        """Note the replies to heartbeats. `sessions` are all sessions of this worker, including
        those of children without a heartbeat, which a signal has stopped."""
        found = {pulse.session: pulse.command for pulse in pulses if pulse.alive}
        changed = [
            command
            for session, command in found.items()
            if command is not self._stored.get(session, SessionCommand.RUN)
        ]
        stored = {**self._stored, **found}
        self._stored = {one: command for one, command in stored.items() if one in sessions}
        if changed:
            self._change(max(changed, key=_STRENGTH.index))
        self._store(found)

    def _change(self, command: SessionCommand) -> None:
        if self._command not in (command, SessionCommand.STOP):
            self._command = command
            self._on_command(command)

    def _store(self, sessions: Iterable[str]) -> None:
        """Give the engine the command of the worker, for sessions that have another one."""
        command = SessionCommand.STOP if self._is_stopping else self._command
        behind = [session for session in sessions if self._stored.get(session, command) != command]
        if behind:
            for session, is_stored in zip(
                behind, self._engine.command(behind, command), strict=True
            ):
                if is_stored:
                    self._stored[session] = command


def log_quiet(is_quiet: bool) -> None:
    """Log that a worker claims no more jobs, or claims them again."""
    if is_quiet:
        log.info(LogEvent.WORKER_QUIET)
    else:
        log.info(LogEvent.WORKER_RESUMED)
