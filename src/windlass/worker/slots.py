"""What a child notes in shared memory, for its supervisor to read when the child cannot speak.

The memory is a file without a name whose descriptor the child inherits: a mapping without a file
does not survive the start of a fresh interpreter. It holds records of 64 bytes:

- one header: until when the supervisor's last beat is known to have been good, when the engine
  answered the child last, and since when claims have found nothing;
- for each slot, the id of the job whose code runs in it: after a death these are the suspects;
- the nonces under which the child holds claims, or has asked for some, and the newest of all.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile

#: An id has at most 64 characters.
RECORD_BYTES = 64
#: More claims than slots are held for look-ahead, each perhaps under a nonce of its own; one nonce
#: is on its way, and one is spare.
SPARE_NONCES = 202

_HEADER = struct.Struct("d")
#: In the header too, and written by the child.
_PULSE, _PULSE_AT = struct.Struct("d"), 16
_IDLE, _IDLE_AT = struct.Struct("dd"), 24


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
        self._jobs = Records(self._memory, RECORD_BYTES, slots)
        self.nonces = Records(self._memory, RECORD_BYTES * (1 + slots), slots + SPARE_NONCES)
        self.newest_nonce = Records(self._memory, _size(slots) - RECORD_BYTES, 1)

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

    def occupy(self, index: int, job_id: str) -> None:
        self._jobs.write(index, job_id)

    def vacate(self, index: int) -> None:
        self._jobs.clear(index)

    def vacate_all(self) -> None:
        self._jobs.clear_all()

    def note_answer(self, monotonic: float) -> None:
        """The engine answered this child, or there was nothing to ask it for."""
        _PULSE.pack_into(self._memory, _PULSE_AT, monotonic)

    def answered_at(self) -> float:
        return float(_PULSE.unpack_from(self._memory, _PULSE_AT)[0])

    def note_idle(self, since: float, at: float) -> None:
        """A claim sent at `at` found nothing, and so did all since `since`; zeros when busy."""
        _IDLE.pack_into(self._memory, _IDLE_AT, since, at)

    def idle(self) -> tuple[float, float]:
        since, at = _IDLE.unpack_from(self._memory, _IDLE_AT)
        return since, at

    def occupied(self) -> list[str]:
        return self._jobs.read()

    def confirm_beat(self, monotonic: float) -> None:
        """Note that a beat sent at this moment was answered: the session lives."""
        _HEADER.pack_into(self._memory, 0, monotonic)

    def confirmed_beat(self) -> float:
        return float(_HEADER.unpack_from(self._memory, 0)[0])


def _size(slots: int) -> int:
    return RECORD_BYTES * (1 + slots + slots + SPARE_NONCES + 1)


def _open_nameless() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("windlass-slots")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
