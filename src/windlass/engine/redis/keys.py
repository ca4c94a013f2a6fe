"""The names of everything that is stored, and nothing else: no other module spells a key.

A partition is a small, fixed set of keys that share a hash tag, so that a cluster keeps them in one
slot. No name contains a queue, a task or a session: those are members and fields. Every key holds a
sentinel from the first use on and so is never empty: while a slot is being migrated, a script that
touches a key which does not exist is cut off in the middle, and what it wrote before stays.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Kind(StrEnum):
    """What a key is, and with that which sentinel it holds: the field or member ""."""

    HASH = "hash"
    LEXICAL = "lexical"  # a sorted set whose scores are all 0: the sentinel sorts first
    BY_TIME = "by_time"  # a sorted set by instant: the sentinel is never due


#: name -> kind. Scripts declare their keys by these names.
KINDS: Final[dict[str, Kind]] = {
    "meta": Kind.HASH,  # sequence, enqueued, last_seen, reap_after, queues, format, born ...
    "job": Kind.HASH,  # id -> record
    "body": Kind.HASH,  # id -> envelope
    "extra": Kind.HASH,  # r:id result, p:id progress, f:number:id an entry of the history,
    # k:id its idempotency key, s:id the put whose call it has now, w:put the job that has its call
    "ids": Kind.LEXICAL,  # every id
    "ready": Kind.LEXICAL,  # who may be claimed: suspect, queue, rank, place, id
    "due": Kind.BY_TIME,  # who waits for an instant: row, id
    "parked": Kind.LEXICAL,  # who is held as unroutable: task, row, id
    "held": Kind.LEXICAL,  # who runs: session, nonce, id
    "asked": Kind.LEXICAL,  # who runs and was asked to stop: session, id
    "keep": Kind.BY_TIME,  # who has ended, by the next visit of the purge: id
    "dead": Kind.LEXICAL,  # who is dead: id
    "lease": Kind.BY_TIME,  # until when a session lives; -1 when it is dead and has to be emptied
    "sessions": Kind.HASH,  # session -> 0 (lives) or 1 (dead), latest nonce; session\0 -> info
    "forget": Kind.BY_TIME,  # sessions without a lease, by when they are forgotten
    "keys": Kind.HASH,  # idempotency key -> job, fingerprint, until
    "key_expiry": Kind.BY_TIME,  # idempotency keys, by when they are forgotten
    "count": Kind.HASH,  # queue and state -> number of records
    "total": Kind.HASH,  # what else happened -> how often
    "unique": Kind.LEXICAL,  # who was stored last under a unique key: task, key, id
    "idle": Kind.LEXICAL,  # registrations of idle sessions: suspects, queue and label, name
    "waiters": Kind.HASH,  # name of a registration -> who waits there, until when
    "schedule": Kind.HASH,  # r:name record, n:name note, b:name body
    "schedule_names": Kind.LEXICAL,  # every schedule
    "schedule_due": Kind.BY_TIME,  # schedules, by when to look at them again
}

#: kind -> score of the sentinel; a hash has none.
_SCORES: Final = {
    Kind.LEXICAL: b"0",
    Kind.BY_TIME: b"+inf",
}


def key(namespace: str, partition: int, name: str) -> str:
    return f"{{{namespace}:p{partition}}}:{name}"


def channel(namespace: str, waiter: str) -> str:
    """Where one waiter is woken. No hash tag: a cluster carries messages to all of its nodes."""
    return f"{namespace}:wake:{waiter}"


def sentinel_scores() -> list[bytes]:
    """For each key in the order of `KINDS`, the score of its sentinel, or nothing for a hash."""
    return [_SCORES.get(kind, b"") for kind in KINDS.values()]
