"""Shared memory of a child and its supervisor, readable also when the child hangs or is dead.

The memory is a file without a name. The child inherits its descriptor, because an anonymous mapping
does not survive the start of a fresh interpreter. It contains these records:

- a header. The supervisor writes when its last confirmed heartbeat was sent, whether the child may
  start jobs, and when the waiter last waited for the child. The child writes when it last ran
  Python, how many jobs have ended in it, when the engine last answered it, and since when its
  claims have been empty;
- for each slot, the id of the running job: after a death these jobs are the suspects;
- the nonces of claims that the child holds or has requested, and the newest nonce;
- for each slot with a run that the supervisor has to watch, its limit. Each run has its own
  generation, so that a decision about one run never hits another;
- for metrics, when the child last claimed a job, and the times of its engine calls.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from windlass.worker.ipc.call_times import CALL_BYTES, CallTimes

#: An id has at most 64 characters.
RECORD_BYTES = 64
#: The most nonces: with prefetch a child holds more claims than slots, each perhaps under its own
#: nonce. One more is for a call under way, and one is spare.
SPARE_NONCES = 202

NEVER: Final = float("inf")

#: The positions of numbers in the header.
_BEAT, _SHUT, _PULSE, _ENDED, _ANSWER, _IDLE_SINCE, _IDLE_AT, _WAIT = range(8)
_LIMIT = struct.Struct("=QdqqQ64s64s")
_GENERATION = struct.Struct("=Q")


class Limit(NamedTuple):
    """When to end a run by force, and the outcome of its job in that case."""

    generation: int  # of this child, never 0
    ends_at: float  # by the monotonic clock, which the processes of a machine share
    timeout_ms: int
    delay_ms: int  # before the next attempt; negative for none
    id: str
    token: str


class Records:
    """A sequence of fixed-size records. A write is one copy: a crash during a write leaves at worst
    an id without a job."""

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
        """Return all records that are not cleared."""
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
        self._header = memoryview(self._memory)[:RECORD_BYTES].cast("d")
        jobs = self._jobs = Records(self._memory, RECORD_BYTES, slots)
        self.occupy, self.vacate, self.vacate_all = jobs.write, jobs.clear, jobs.clear_all
        self.nonces = Records(self._memory, RECORD_BYTES * (1 + slots), slots + SPARE_NONCES)
        self.newest_nonce = Records(self._memory, _limits_at(slots) - RECORD_BYTES, 1)
        self._limits_at = _limits_at(slots)
        metrics = memoryview(self._memory)[_metrics_at(slots) :]
        self._last_claim = metrics[:8].cast("d")
        self.call_times = CallTimes(metrics[8:])

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
        """Close the descriptor. The mapping stays."""
        os.close(self.descriptor)

    def note_answer(self, monotonic: float) -> None:
        """Note that the engine answered this child, or that the child had nothing to ask."""
        self._header[_ANSWER] = monotonic

    def answered_at(self) -> float:
        return self._header[_ANSWER]

    def note_idle(self, since: float, at: float) -> None:
        """Note that all claims from `since` to `at` were empty; zeros for a busy child."""
        self._header[_IDLE_SINCE] = since
        self._header[_IDLE_AT] = at

    def idle(self) -> tuple[float, float]:
        return self._header[_IDLE_SINCE], self._header[_IDLE_AT]

    def note_wait(self, monotonic: float) -> None:
        """Note that the waiter waits for this child, and gets answers of the engine."""
        self._header[_WAIT] = monotonic

    def waited_at(self) -> float:
        return self._header[_WAIT]

    def occupied(self) -> list[str]:
        return self._jobs.read()

    def confirm_beat(self, monotonic: float) -> None:
        """Note that a heartbeat sent at this moment was confirmed: the session is alive."""
        self._header[_BEAT] = monotonic

    def confirmed_beat(self) -> float:
        return self._header[_BEAT]

    def note_pulse(self, monotonic: float, ended: int) -> None:
        """Note that the child runs Python at this moment, and how many jobs have ended in it."""
        self._header[_PULSE] = monotonic
        self._header[_ENDED] = ended

    def pulse(self) -> float:
        """Return when the child last ran Python; 0 if unknown."""
        return self._header[_PULSE]

    def ended(self) -> int:
        """Return how many jobs had ended at the last pulse."""
        return int(self._header[_ENDED])

    def note_claim(self, at: float) -> None:
        """Note when this child claimed a job, in Unix time."""
        self._last_claim[0] = at

    def last_claim_at(self) -> float:
        """Return when the child last claimed a job; 0 if never."""
        return self._last_claim[0]

    # --------------------------------------------------------------------------------- limits

    def limit(self, slot: int, limit: Limit) -> None:
        """Set the limit of the run in a slot."""
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
        """Remove the limit of a slot: its run has ended."""
        _GENERATION.pack_into(self._memory, self._limits_at + slot * _LIMIT.size, 0)

    def limits(self) -> Iterator[Limit]:
        """Return all limits. Skip a record that changes during the read: its run has ended."""
        for slot in range(self.slots):
            at = self._limits_at + slot * _LIMIT.size
            content = self._memory[at : at + _LIMIT.size]
            generation, ends_at, timeout_ms, delay_ms, again, id, token = _LIMIT.unpack(content)
            if 0 < generation == again and content == self._memory[at : at + _LIMIT.size]:
                yield Limit(generation, ends_at, timeout_ms, delay_ms, _text(id), _text(token))

    def is_running(self, generation: int) -> bool:
        return any(limit.generation == generation for limit in self.limits())

    def shut(self, shut: bool) -> None:
        """Forbid the child to start jobs, or allow it again."""
        self._header[_SHUT] = shut

    def is_shut(self) -> bool:
        return bool(self._header[_SHUT])


def _limits_at(slots: int) -> int:
    return RECORD_BYTES * (1 + slots + slots + SPARE_NONCES + 1)


def _metrics_at(slots: int) -> int:
    return _limits_at(slots) + slots * _LIMIT.size


def _size(slots: int) -> int:
    return _metrics_at(slots) + 8 + CALL_BYTES


def _text(field: bytes) -> str:
    return field.rstrip(b"\0").decode("ascii", "replace")


def _open_nameless() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("windlass-slots")
    import tempfile  # for macOS; the import is slow

    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
