"""The beginning of a copy: which places may be its source and its target, and the state in which an
earlier run has left them."""

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
    """Read the state of an earlier run, or make one. Raises `CopyRefused`, and changes nothing, if
    this source must not be copied to this target now."""
    stored = StoredState.load(source)
    is_opening = stored is not None and stored.state.phase is Phase.OPENING
    if not drains and not is_opening:
        refuse_workers(source)
    _check_places(source, target, stored)
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
    """Read the state of a copy that can still be undone. Raises `CopyRefused`."""
    stored = StoredState.load(source)
    if stored is None:
        raise CopyRefused(f"Nothing is copied from {source.location}: there is nothing to undo.")
    if stored.state.phase in (Phase.OPENING, Phase.DONE):
        raise CopyRefused(
            f"The copy to {stored.state.target} is complete, and its jobs may have run there. It "
            "cannot be undone."
        )
    # That place may have been emptied. Before the lists of names, nothing was changed anywhere.
    if target.location != stored.state.target and stored.state.phase is not Phase.NAMING:
        _check_own_mark(source, target, stored)
    return stored


def _check_places(source: Engine, target: Engine, stored: StoredState | None) -> None:
    """Refuse places that belong to another copy."""
    if StoredState.load(target) is not None:
        raise CopyRefused(
            f"{target.location} is or was the source of a copy, and has jobs that were copied from "
            "there: they would run twice. Copy to a new place."
        )
    for place in (source, target):
        for copy_id, mark in read_marks(place).items():
            if not mark.is_done and (stored is None or copy_id != stored.state.id):
                raise CopyRefused(
                    f"The copy from {mark.source} to {place.location} is not complete. Finish it "
                    "first, or end it with --undo."
                )
    if stored is not None and (_is_over(stored) or target.location != stored.state.target):
        _check_own_mark(source, target, stored)


def _is_over(stored: StoredState) -> bool:
    """Whether all was copied once: then it is not copied again to a place that was emptied."""
    return stored.state.is_late or stored.state.phase in (Phase.OPENING, Phase.DONE)


def _check_own_mark(source: Engine, target: Engine, stored: StoredState) -> None:
    if stored.state.id in read_marks(target):
        return
    advice = (
        "Jobs that were copied once may have run there, and are not copied again. Give the url of "
        "that place."
        if _is_over(stored)
        else "Give the url of that place, or end that copy with --undo."
    )
    raise CopyRefused(
        f"{source.location} is copied to {stored.state.target}, and {target.location} has nothing "
        f"of that copy. {advice}"
    )


def _mark(source: Engine, target: Engine, stored: StoredState) -> None:
    """Mark the target as that of this copy, unless it is the source under another name."""
    write_mark(target, stored.state.id, Mark(source=source.location))
    if stored.state.id in read_marks(source):
        write_mark(target, stored.state.id, None)
        stored.remove()
        raise CopyRefused(
            f"{source.location} and {target.location} are the same place. Copy to another one."
        )
