"""Queue plans: which queues a worker serves, in strict tiers, and by weight inside a tier.

1. `read_tiers` reads the notation: each text is a tier, `critical` or `default:5,low:1`.
2. `Turns` says whose turn it is inside a tier. It keeps, for each queue, how far it is behind its
   share of what was started. The next one is the queue whose share is fulfilled first among those
   that are not ahead of theirs: so every queue is within one job of its share after every start,
   and the turns of a light queue stand evenly between those of a heavy one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

#: At most so many queues share a tier: a turn is stored in one byte.
MAX_QUEUES: Final = 100
#: The largest weight.
MAX_WEIGHT: Final = 1000

QUEUE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
#: A queue that found nobody else to serve is never further ahead or behind than this.
_MAX_LAG: Final = 16.0
#: What adding up fractions may be wrong by.
_SLIGHTLY: Final = 1e-9


class Tier(msgspec.Struct, frozen=True):
    """Queues that are served side by side, each by its weight."""

    queues: tuple[str, ...]
    weights: tuple[int, ...]

    @property
    def is_shared(self) -> bool:
        return len(self.queues) > 1


def read_tiers(texts: Sequence[str]) -> tuple[Tier, ...]:
    """The tiers in a notation such as ["critical", "default:5,low:1"], the first one served first.

    Raises `ValueError` with a sentence."""
    tiers = tuple(_read_tier(text) for text in texts)
    named = Counter(queue for tier in tiers for queue in tier.queues)
    for queue, number in named.items():
        if number > 1:
            raise ValueError(f"the queue {queue} is named twice; name each one once")
    return tiers


def _read_tier(text: str) -> Tier:
    pairs = [_read_queue(part) for part in text.split(",")]
    if len(pairs) > MAX_QUEUES:
        raise ValueError(f"a tier has at most {MAX_QUEUES} queues, found {len(pairs)}")
    return Tier(tuple(queue for queue, _ in pairs), tuple(weight for _, weight in pairs))


def _read_queue(text: str) -> tuple[str, int]:
    queue, colon, weight = text.strip().partition(":")
    if not QUEUE_NAME.fullmatch(queue):
        raise ValueError(
            "a queue is named by 1 to 64 letters, digits, '_', '.' and '-', the first one a letter "
            f"or a digit, found {text!r}: write for example critical, or default:5,low:1"
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
    """How many to take of each queue of a tier, of which so many wait: first as many as each has
    turns among the first for which there is room, then what is left in their order."""
    asked = Counter(turns[:room])
    taken = [min(asked[queue], number) for queue, number in enumerate(waiting)]
    for queue, number in enumerate(waiting):
        taken[queue] += min(room - sum(taken), number - taken[queue])
    return taken


class Turns:
    """Whose turn it is among the queues of one tier, which are known here by their positions."""

    def __init__(self, weights: Sequence[int]) -> None:
        self._weights = tuple(weights)
        self._lags = [0.0] * len(weights)  # how far each is behind its share

    def ahead(self, number: int) -> bytes:
        """The next turns, as they come while no queue is empty: one position for each."""
        lags, everybody = list(self._lags), range(len(self._weights))
        return bytes(self._step(lags, everybody, everybody) for _ in range(number))

    def take(self, taken: Sequence[int], asked: Sequence[int]) -> bytes:
        """Note what was really taken of each queue, and say in which order to start it.

        A queue that gave less than it was asked for is empty: the others share its turns, and it is
        not owed anything for them."""
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
        """One start: everybody who is served is owed his share of it, and one of those here gets
        it."""
        weights = self._weights
        total = sum(weights[queue] for queue in served)
        for queue in served:
            lags[queue] += weights[queue] / total
        behind = [queue for queue in here if lags[queue] > _SLIGHTLY] or here
        turn = min(behind, key=lambda queue: ((1 - lags[queue]) / weights[queue], queue))
        lags[turn] -= 1
        return turn
