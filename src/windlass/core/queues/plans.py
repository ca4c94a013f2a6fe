"""Queue plans: which queues a worker serves, in strict tiers, and by weight inside a tier.

1. `read_tiers` reads the notation: each text is a tier, `critical` or `default:5,low:1`;
   `describe_tiers` shows it.
2. `Turns` picks the next queue inside a tier (weighted fair queueing). For each queue it keeps the
   lag behind its share of the started jobs. The next queue is the one whose share is due first
   among the queues that are not ahead of theirs. So every queue is within one job of its share
   after every start, and the turns of a light queue are spread evenly between those of a heavy one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

#: The largest number of queues in a tier: a turn is stored in one byte.
MAX_QUEUES: Final = 100
#: The largest weight.
MAX_WEIGHT: Final = 1000

QUEUE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
#: The limit of the lag of a queue, in both directions, in jobs.
_MAX_LAG: Final = 16.0
#: The tolerance for rounding errors in sums of fractions.
_SLIGHTLY: Final = 1e-9


class Tier(msgspec.Struct, frozen=True):
    """Queues that share the slots of a worker by their weights."""

    queues: tuple[str, ...]
    weights: tuple[int, ...]

    @property
    def is_shared(self) -> bool:
        return len(self.queues) > 1


def read_tiers(texts: Sequence[str]) -> tuple[Tier, ...]:
    """Parse tiers such as ["critical", "default:5,low:1"]. The first tier is served first.

    Raises `ValueError`."""
    tiers = tuple(_read_tier(text) for text in texts)
    named = Counter(queue for tier in tiers for queue in tier.queues)
    for queue, number in named.items():
        if number > 1:
            raise ValueError(f"the queue {queue} is named twice; name each one once")
    return tiers


def queue_names(texts: Sequence[str]) -> tuple[str, ...]:
    """The queues of tiers, in order. Tiers that cannot be read, of another version, name none."""
    try:
        return tuple(queue for tier in read_tiers(texts) for queue in tier.queues)
    except ValueError:
        return ()


def describe_tiers(texts: Sequence[str]) -> str:
    """The tiers in one line, the first one served first: `critical > default:5, low:1`."""
    tiers = ([queue.strip() for queue in text.split(",")] for text in texts)
    return " > ".join(map(", ".join, tiers))


def _read_tier(text: str) -> Tier:
    pairs = [_read_queue(part) for part in text.split(",")]
    if len(pairs) > MAX_QUEUES:
        raise ValueError(f"a tier has at most {MAX_QUEUES} queues, found {len(pairs)}")
    return Tier(tuple(queue for queue, _ in pairs), tuple(weight for _, weight in pairs))


def _read_queue(text: str) -> tuple[str, int]:
    queue, colon, weight = text.strip().partition(":")
    if not QUEUE_NAME.fullmatch(queue):
        raise ValueError(
            "a queue name has 1 to 64 letters, digits, '_', '.' and '-', and starts with a letter "
            f"or digit, found {text!r}: write for example critical, or default:5,low:1"
        )
    if not colon:
        return queue, 1
    if not weight.isascii() or not weight.isdigit() or not 1 <= int(weight) <= MAX_WEIGHT:
        raise ValueError(
            f"a weight is a whole number from 1 to {MAX_WEIGHT}, found {weight!r} for the queue "
            f"{queue}: write for example default:5,low:1"
        )
    return queue, int(weight)


def allot(turns: bytes, waiting: Sequence[int], room: int) -> list[int]:
    """The number of jobs to claim from each queue of a tier, given the number of waiting jobs.

    Each queue first gets its turns among the next `room` turns. The rest of the room goes to the
    queues in the order of the tier."""
    asked = Counter(turns[:room])
    taken = [min(asked[queue], number) for queue, number in enumerate(waiting)]
    for queue, number in enumerate(waiting):
        taken[queue] += min(room - sum(taken), number - taken[queue])
    return taken


class Turns:
    """The turns of the queues in one tier. A queue is identified by its position."""

    def __init__(self, weights: Sequence[int]) -> None:
        self._weights = tuple(weights)
        self._lags = [0.0] * len(weights)  # how far each queue is behind its share

    def ahead(self, number: int) -> bytes:
        """The next turns, if no queue is empty. Each byte is the position of a queue."""
        lags, every = list(self._lags), range(len(self._weights))
        return bytes(self._step(lags, every, every) for _ in range(number))

    def take(self, taken: Sequence[int], asked: Sequence[int]) -> bytes:
        """Record how many jobs were claimed from each queue, and return the order to start them.

        A queue with fewer jobs than asked for is empty. The other queues share its turns, and the
        empty queue gets no credit for these turns."""
        left = list(taken)
        turns = bytearray()
        for _ in range(sum(taken)):
            here = [queue for queue, number in enumerate(left) if number]
            served = [
                queue for queue in range(len(left)) if left[queue] or taken[queue] >= asked[queue]
            ]
            turn = self._step(self._lags, served, here)
            left[turn] -= 1
            turns.append(turn)
        for queue, lag in enumerate(self._lags):
            most = _MAX_LAG if taken[queue] >= asked[queue] else 1.0
            self._lags[queue] = max(-_MAX_LAG, min(lag, most))
        return bytes(turns)

    def _step(self, lags: list[float], served: Sequence[int], here: Sequence[int]) -> int:
        """Take one turn: add its share to the lag of each served queue, and give the turn to a
        queue in `here`."""
        weights = self._weights
        total = sum(weights[queue] for queue in served)
        for queue in served:
            lags[queue] += weights[queue] / total
        behind = [queue for queue in here if lags[queue] > _SLIGHTLY] or here
        turn = min(behind, key=lambda queue: ((1 - lags[queue]) / weights[queue], queue))
        lags[turn] -= 1
        return turn
