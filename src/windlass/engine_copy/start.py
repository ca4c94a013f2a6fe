"""The start of a copy: check that source and target may be used, and load what an earlier run
stored.

1. `begin` starts a run, or continues an earlier one.
2. `find_unfinished` finds the copy that `--undo` ends.
"""

from __future__ import annotations

from windlass.core.ids import random_digits
from windlass.engine.contract import Engine
from windlass.engine_copy.documents import (
    CopyState,
    Mark,
    Phase,
    StoredState,
    read_marks,
    write_mark,
)
from windlass.engine_copy.source import refuse_workers
from windlass.errors import CopyRefused


def begin(source: Engine, target: Engine, *, drains: bool) -> StoredState:
    """Load the state of an earlier run, or store a new one. Raises `CopyRefused`, before any
    change, if this source must not be copied to this target now."""
    stored = StoredState.load(source)
    is_opening = stored is not None and stored.state.phase is Phase.OPENING
    if not drains and not is_opening:
        refuse_workers(source)
    _check_engines(source, target, stored)
    if stored is None:
        state = CopyState(id=random_digits(26), target=target.location)
        stored = StoredState.create(source, state)
    elif stored.state.phase is Phase.DONE:
        done = stored.state
        stored.replace(
            CopyState(
                id=done.id,
                target=target.location,
                is_late=True,
                since_ms=done.since_ms,
                left=done.left,
            )
        )
    _mark(source, target, stored)
    return stored


def find_unfinished(source: Engine, target: Engine) -> StoredState:
    """Load the state of a copy that can still be undone. Raises `CopyRefused` if there is none."""
    stored = StoredState.load(source)
    if stored is None:
        raise CopyRefused(f"Nothing is copied from {source.location}: there is nothing to undo.")
    if stored.state.phase in (Phase.OPENING, Phase.DONE):
        raise CopyRefused(
            f"The copy to {stored.state.target} is complete, and its jobs may have run there. It "
            "cannot be undone."
        )
    # The target of the copy may have been emptied since. In the phase NAMING nothing was changed
    # yet.
    if target.location != stored.state.target and stored.state.phase is not Phase.NAMING:
        _check_own_mark(source, target, stored)
    return stored


def _check_engines(source: Engine, target: Engine, stored: StoredState | None) -> None:
    """Refuse engines that belong to another copy."""
    if StoredState.load(target) is not None:
        raise CopyRefused(
            f"{target.location} is or was the source of a copy. It still has the copied jobs: "
            "they would run twice. Copy to another file, namespace or schema."
        )
    for engine in (source, target):
        for copy_id, mark in read_marks(engine).items():
            if not mark.is_done and (stored is None or copy_id != stored.state.id):
                raise CopyRefused(
                    f"The copy from {mark.source} to {engine.location} is not complete. Finish it "
                    "first, or end it with --undo."
                )
    if stored is not None and (_is_over(stored) or target.location != stored.state.target):
        _check_own_mark(source, target, stored)


def _is_over(stored: StoredState) -> bool:
    """Whether the copy was complete once. Then the same jobs are not copied again, even if the
    target was emptied."""
    return stored.state.is_late or stored.state.phase in (Phase.OPENING, Phase.DONE)


def _check_own_mark(source: Engine, target: Engine, stored: StoredState) -> None:
    if stored.state.id in read_marks(target):
        return
    advice = (
        "Jobs that were copied once may have run there, and are not copied again. Give the url "
        "that has them."
        if _is_over(stored)
        else "Give the url of that target, or end that copy with --undo."
    )
    raise CopyRefused(
        f"{source.location} is copied to {stored.state.target}, and {target.location} has nothing "
        f"of that copy. {advice}"
    )


def _mark(source: Engine, target: Engine, stored: StoredState) -> None:
    """Store the mark of this copy in the target. Refuse a target that is the source under another
    url: the mark then appears in the source too."""
    write_mark(target, stored.state.id, Mark(source=source.location))
    if stored.state.id in read_marks(source):
        write_mark(target, stored.state.id, None)
        stored.remove()
        raise CopyRefused(
            f"{source.location} and {target.location} are the same place. Copy to another "
            "file, namespace or schema."
        )
