"""The stored state of a schedule, and the decision when it is due.

1. `ScheduleEntry` holds the schedule and its call. Only a user or a deploy changes it.
2. `Note` holds the progress of the schedule. Every occurrence rewrites it.
3. `decide` applies `missed` and `overlap`. It returns the occurrences to enqueue, those to skip
   with the reason, and the next note.
4. The other functions return the note after a schedule was made, replaced, paused or resumed.

Engines store entries and notes as bytes: versioned JSON. A newer version is refused.
"""

from __future__ import annotations

from typing import Final, Literal, TypeVar

import msgspec

from windlass.core.schedules.declarations import Declared, is_abandoned
from windlass.core.schedules.occurrences import due, next_after_change
from windlass.core.schedules.triggers import Cron, Every, Schedule
from windlass.core.serialization.frame import is_framed, refuse_newer
from windlass.errors import DecodeError

#: The format of entries with an envelope in a frame.
VERSION: Final = 2
#: The format of all other entries and notes.
_PLAIN_VERSION: Final = 1
#: The interval of checks whether an earlier run has ended, while an occurrence waits for that.
WAITING_MS: Final = 1_000
#: Skipped occurrences are counted one by one only up to this number.
MOST_COUNTED: Final = 10_000

T = TypeVar("T")
Pause = Literal["", "paused", "abandoned"]


class ScheduleEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The schedule and the fields of its jobs, except their ids."""

    schedule: Cron | Every
    task: str
    queue: str
    envelope: bytes  # the payload of every job
    priority: int = 0
    expires_in_ms: int | None = None

    def pack(self) -> bytes:
        """The entry as bytes. The same entry always gives the same bytes."""
        fields = msgspec.structs.asdict(self)
        fields |= {"schedule": self.schedule.to_data(), "envelope": _to_json(self.envelope)}
        version = VERSION if is_framed(self.envelope) else _PLAIN_VERSION
        return _encode(_StoredEntry(version=version, **fields))

    @classmethod
    def unpack(cls, data: bytes) -> ScheduleEntry:
        """Read an entry from bytes. Raises `DecodeError` or `NewerFormat`."""
        stored = _decode(_entry_decoder, data, VERSION)
        fields = msgspec.structs.asdict(stored)
        del fields["version"]
        fields["schedule"] = Schedule.from_data(stored.schedule)
        return cls(**fields | {"envelope": _from_json(stored.envelope)})


class Note(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    # msgspec always writes a field with a default factory: stored bytes always have a version.
    version: int = msgspec.field(default_factory=lambda: _PLAIN_VERSION)
    next_ms: int | None = None  # the next occurrence; None when there is none
    waiting_ms: int | None = None  # a due occurrence that waits for the end of an earlier run
    last_ms: int | None = None  # the last occurrence that made a job
    fired_ms: int | None = None  # when it made the job; None if an earlier version did
    paused: Pause = ""
    skipped: int = 0  # the number of skipped occurrences
    declared: Declared | None = None  # for a schedule declared in code

    def pack(self) -> bytes:
        return _encode(self)

    @classmethod
    def unpack(cls, data: bytes) -> Note:
        return _decode(_note_decoder, data, _PLAIN_VERSION)

    def due_ms(self, now_ms: int) -> int | None:
        """When to check the schedule again."""
        if self.paused:
            return None
        waiting_ms = None if self.waiting_ms is None else now_ms + WAITING_MS
        return min((at for at in (self.next_ms, waiting_ms) if at is not None), default=None)

    def late_ms(self) -> int | None:
        """How long after its time the last occurrence made its job. None if that is not known."""
        if self.last_ms is None or self.fired_ms is None:
            return None
        return max(0, self.fired_ms - self.last_ms)


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """Skipped occurrences: no job is made for them."""

    why: Literal["missed", "overlap"]
    first_ms: int
    last_ms: int
    number: int


class ScheduleStep(msgspec.Struct, frozen=True, kw_only=True):
    """The decision for a schedule that is due."""

    note: Note
    run: tuple[int, ...] = ()  # occurrences to enqueue, in order
    cancels: bool = False  # cancel earlier runs that have not ended
    left_out: tuple[LeftOut, ...] = ()


def decide(schedule: Schedule, note: Note, now_ms: int, *, is_unfinished: bool) -> ScheduleStep:
    """Decide which occurrences run at `now_ms`. `is_unfinished`: an earlier run has not ended."""
    if note.declared is not None and is_abandoned(note.declared, now_ms):
        return ScheduleStep(note=msgspec.structs.replace(note, paused="abandoned"))
    if note.next_ms is None:
        occurrences, next_ms, missed = [], None, None
    else:
        found = due(schedule, note.next_ms, now_ms)
        occurrences, next_ms, missed = list(found.occurrences), found.next_ms, found.skipped_ms
    run, waiting_ms, overlapping = _sort(schedule, note.waiting_ms, occurrences, is_unfinished)
    left_out = (*_missed(schedule, missed), *_overlapping(overlapping))
    return ScheduleStep(
        note=msgspec.structs.replace(
            note,
            next_ms=next_ms,
            waiting_ms=waiting_ms,
            last_ms=run[-1] if run else note.last_ms,
            fired_ms=now_ms if run else note.fired_ms,
            skipped=note.skipped + sum(part.number for part in left_out),
        ),
        run=tuple(run),
        cancels=schedule.overlap == "cancel_previous" and is_unfinished and bool(run),
        left_out=left_out,
    )


def _sort(
    schedule: Schedule, waiting_ms: int | None, occurrences: list[int], is_unfinished: bool
) -> tuple[list[int], int | None, list[int]]:
    """Sort occurrences by `overlap` into those that run, one that waits, and those to skip."""
    line = occurrences if waiting_ms is None else [waiting_ms, *occurrences]
    free = 0 if is_unfinished else 1
    match schedule.overlap:
        case "allow":
            return line, None, []
        case "cancel_previous":
            return line[-1:], None, line[:-1]
        case "skip":
            return line[:free], None, line[free:]
        case "queue_one":
            return line[:free], next(iter(line[free:]), None), line[free + 1 :]


def _missed(schedule: Schedule, bounds: tuple[int, int] | None) -> list[LeftOut]:
    if bounds is None:
        return []
    number = schedule.count_between(*bounds, most=MOST_COUNTED)
    return [LeftOut(why="missed", first_ms=bounds[0], last_ms=bounds[1], number=number)]


def _overlapping(occurrences: list[int]) -> list[LeftOut]:
    if not occurrences:
        return []
    first_ms, last_ms = occurrences[0], occurrences[-1]
    number = len(occurrences)
    return [LeftOut(why="overlap", first_ms=first_ms, last_ms=last_ms, number=number)]


# ----------------------------------------------------------------------------------------- changing


def made(schedule: Schedule, now_ms: int) -> Note:
    return Note(next_ms=schedule.next_after(now_ms))


def replaced(note: Note, schedule: Schedule, now_ms: int) -> Note:
    """The note after `schedule` replaced the old one. The new schedule continues from the same
    occurrence and keeps a pause."""
    next_ms = next_after_change(schedule, note.next_ms, now_ms)
    waiting_ms = note.waiting_ms if schedule.overlap == "queue_one" else None
    return msgspec.structs.replace(note, next_ms=next_ms, waiting_ms=waiting_ms)


def paused(note: Note) -> Note:
    return msgspec.structs.replace(note, paused="paused", waiting_ms=None)


def resumed(note: Note, schedule: Schedule, now_ms: int) -> Note:
    """The note after a pause. Occurrences during the pause do not count as missed."""
    if note.paused == "paused":
        note = msgspec.structs.replace(note, next_ms=schedule.next_after(now_ms))
    return msgspec.structs.replace(note, paused="")


def declared_again(note: Note, declared: Declared) -> Note:
    """The note after a worker declared the schedule again. The declaration ends the pause of an
    abandoned schedule. Occurrences during that pause count as missed."""
    is_back = note.paused == "abandoned"
    return msgspec.structs.replace(note, declared=declared, paused="" if is_back else note.paused)


# ------------------------------------------------------------------------------------------ storing


class _StoredEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    version: int
    schedule: dict[str, object]
    task: str
    queue: str
    priority: int = 0
    expires_in_ms: int | None = None
    envelope: msgspec.Raw


def _to_json(envelope: bytes) -> msgspec.Raw:
    """Convert an envelope for storage in JSON: JSON unchanged, a frame as base64 text."""
    return msgspec.Raw(_encode(envelope) if is_framed(envelope) else envelope)


def _from_json(stored: msgspec.Raw) -> bytes:
    raw = bytes(stored)
    if not raw.startswith(b'"'):
        return raw
    try:
        return msgspec.json.decode(raw, type=bytes)
    except msgspec.DecodeError as error:
        raise DecodeError(f"this is no stored schedule of windlass: {error}") from error


class _StateVersion(msgspec.Struct):
    version: int


_encode: Final = msgspec.json.Encoder(order="deterministic").encode
#: Built at import: msgspec crashes when two threads inspect a class for the first time at once.
_entry_decoder: Final = msgspec.json.Decoder(_StoredEntry)
_note_decoder: Final = msgspec.json.Decoder(Note)
_version_decoder: Final = msgspec.json.Decoder(_StateVersion)


def _decode(decoder: msgspec.json.Decoder[T], data: bytes, newest: int) -> T:
    _refuse_newer(data, newest)
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(f"this is no stored schedule of windlass: {error}") from error


def _refuse_newer(data: bytes, newest: int) -> None:
    try:
        found = _version_decoder.decode(data).version
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return  # the full decoder reports the error
    refuse_newer("the stored schedule was", found, newest)
