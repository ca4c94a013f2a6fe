"""What a child notes in shared memory, for its supervisor to read when the child cannot speak.

The memory is a file without a name whose descriptor the child inherits: a mapping without a file
does not survive the start of a fresh interpreter. It holds records:

- one header: when the supervisor's last beat was known to be good, whether nothing more is to be
  started, and when its waiter last waited for the child, which the supervisor writes and the child
  reads; when the child last ran Python, how
  many jobs have ended in it, when the engine answered it last, and since when its claims have found
  nothing, which the child writes;
- for each slot, the id of the job whose code runs in it: after a death these are the suspects;
- the nonces under which the child holds claims, or has asked for some, and the newest of all;
- for each slot whose job the supervisor has to look after, its limit. Each has a generation of its
  own: what is decided about one run is never done to another.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

#: An id has at most 64 characters.
RECORD_BYTES = 64
#: More claims than slots are held for look-ahead, each perhaps under a nonce of its own; one nonce
#: is on its way, and one is spare.
SPARE_NONCES = 202

NEVER: Final = float("inf")

_HEADER = struct.Struct("d")
_SHUT = struct.Struct("?")
_LIMIT = struct.Struct("=QdqqQ64s64s")
_GENERATION = struct.Struct("=Q")


class Limit(NamedTuple):
    """How far one run may go, and what becomes of its job when it goes further."""

    generation: int  # of this child, never 0
    ends_at: float  # by the monotonic clock, which the processes of a machine share
    timeout_ms: int
    delay_ms: int  # before the next attempt; negative for none
    id: str
    token: str


_PULSE = struct.Struct("dQ")
_PULSE_AT = 16
_ANSWER = struct.Struct("d")
_ANSWER_AT = 32
_IDLE = struct.Struct("dd")
_IDLE_AT = 40
_WAIT = struct.Struct("d")
_WAIT_AT = 56


class Records:
    """A run of fixed records. A write is a single copy: a death in it leaves at worst an id that
    nobody has."""

    def __init__(self, memory: mmap.mmap, offset: int, count: int) -> None:
        self._memory = memory
        self._offset = offset
        self.count = count

    def write(self, index: int, text: str) -> None:
        start = self._offset + index * RECORD_BYTES
        self._memory[start : start + RECORD_BYTES] = text.encode("ascii").ljust(RECORD_BYTES, b"\0")

    def clear(self, index: int) -> None:
        self._memory[self._offset + index * RECORD_BYTES] = 0

    def clear_all(self) -> None:
        for index in range(self.count):
            self.clear(index)

    def read(self) -> list[str]:
        """All that are written and not cleared."""
        end = self._offset + self.count * RECORD_BYTES
        content = self._memory[self._offset : end]
        texts = (content[at : at + RECORD_BYTES] for at in range(0, len(content), RECORD_BYTES))
        return [text.rstrip(b"\0").decode("ascii", "replace") for text in texts if text[0]]


class SlotTable:
    """The shared memory of one child."""

    def __init__(self, descriptor: int, slots: int) -> None:
        self.descriptor = descriptor
        self.slots = slots
        self._memory = mmap.mmap(descriptor, _size(slots))
        jobs = self._jobs = Records(self._memory, RECORD_BYTES, slots)
        self.occupy, self.vacate, self.vacate_all = jobs.write, jobs.clear, jobs.clear_all
        self.nonces = Records(self._memory, RECORD_BYTES * (1 + slots), slots + SPARE_NONCES)
        self.newest_nonce = Records(self._memory, _limits_at(slots) - RECORD_BYTES, 1)
        self._limits_at = _limits_at(slots)

    @classmethod
    def create(cls, slots: int) -> SlotTable:
        descriptor = _open_nameless()
        try:
            os.ftruncate(descriptor, _size(slots))
            return cls(descriptor, slots)
        except BaseException:
            os.close(descriptor)
            raise

    @classmethod
    def attach(cls, descriptor: int, slots: int) -> SlotTable:
        os.set_inheritable(descriptor, False)
        return cls(descriptor, slots)

    def close_descriptor(self) -> None:
        """The mapping stays."""
        os.close(self.descriptor)

    def note_answer(self, monotonic: float) -> None:
        """The engine answered this child, or there was nothing to ask it for."""
        _ANSWER.pack_into(self._memory, _ANSWER_AT, monotonic)

    def answered_at(self) -> float:
        return float(_ANSWER.unpack_from(self._memory, _ANSWER_AT)[0])

    def note_idle(self, since: float, at: float) -> None:
        """A claim sent at `at` found nothing, and so did all since `since`; zeros when busy."""
        _IDLE.pack_into(self._memory, _IDLE_AT, since, at)

    def idle(self) -> tuple[float, float]:
        since, at = _IDLE.unpack_from(self._memory, _IDLE_AT)
        return since, at

    def note_wait(self, monotonic: float) -> None:
        """The waiter of the worker waits for this child, and the engine has answered it."""
        _WAIT.pack_into(self._memory, _WAIT_AT, monotonic)

    def waited_at(self) -> float:
        return float(_WAIT.unpack_from(self._memory, _WAIT_AT)[0])

    def occupied(self) -> list[str]:
        return self._jobs.read()

    def confirm_beat(self, monotonic: float) -> None:
        """Note that a beat sent at this moment was answered: the session lives."""
        _HEADER.pack_into(self._memory, 0, monotonic)

    def confirmed_beat(self) -> float:
        return float(_HEADER.unpack_from(self._memory, 0)[0])

    def note_pulse(self, monotonic: float, ended: int) -> None:
        """Note that the child runs Python at this moment, and how many jobs have ended in it."""
        _PULSE.pack_into(self._memory, _PULSE_AT, monotonic, ended)

    def pulse(self) -> float:
        """When the child last ran Python; 0 when nothing is known of that."""
        return float(_PULSE.unpack_from(self._memory, _PULSE_AT)[0])

    def ended(self) -> int:
        """How many jobs had ended then."""
        return int(_PULSE.unpack_from(self._memory, _PULSE_AT)[1])

    # --------------------------------------------------------------------------------- limits

    def limit(self, slot: int, limit: Limit) -> None:
        """Note how far the run in a slot may go."""
        generation, *others, id, token = limit
        _LIMIT.pack_into(
            self._memory,
            self._limits_at + slot * _LIMIT.size,
            generation,
            *others,
            generation,
            id.encode("ascii"),
            token.encode("ascii"),
        )

    def lift(self, slot: int) -> None:
        """The run in a slot has ended."""
        _GENERATION.pack_into(self._memory, self._limits_at + slot * _LIMIT.size, 0)

    def limits(self) -> Iterator[Limit]:
        """Of all runs that have one. What changes under the eyes of the reader is left out: it is
        another run, or none."""
        for slot in range(self.slots):
            at = self._limits_at + slot * _LIMIT.size
            content = self._memory[at : at + _LIMIT.size]
            generation, ends_at, timeout_ms, delay_ms, again, id, token = _LIMIT.unpack(content)
            if 0 < generation == again and content == self._memory[at : at + _LIMIT.size]:
                yield Limit(generation, ends_at, timeout_ms, delay_ms, _text(id), _text(token))

    def is_running(self, generation: int) -> bool:
        return any(limit.generation == generation for limit in self.limits())

    def shut(self, shut: bool) -> None:
        """Have nothing more started, or started again."""
        _SHUT.pack_into(self._memory, _HEADER.size, shut)

    def is_shut(self) -> bool:
        return bool(_SHUT.unpack_from(self._memory, _HEADER.size)[0])


def _limits_at(slots: int) -> int:
    return RECORD_BYTES * (1 + slots + slots + SPARE_NONCES + 1)


def _size(slots: int) -> int:
    return _limits_at(slots) + slots * _LIMIT.size


def _text(field: bytes) -> str:
    return field.rstrip(b"\0").decode("ascii", "replace")


def _open_nameless() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("windlass-slots")
    import tempfile  # for macOS; with it comes what reads and writes archives

    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
