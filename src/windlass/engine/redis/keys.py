"""The names of all keys. No other module spells a key.

A partition is a small, fixed set of keys that share a hash tag, so that a cluster keeps them in one
slot. No name contains a queue, a task or a session: those are members and fields. Every key holds a
sentinel from the first use on and so is never empty. While a slot is being migrated, Redis aborts a
script in the middle when it touches a key that does not exist, and earlier writes stay.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from windlass.engine.redis.partition_tags import tag_of


class KeyKind(StrEnum):
    """The type of a key, which decides its sentinel: the field or member ""."""

    HASH = "hash"
    LEXICAL = "lexical"  # a sorted set with all scores 0: the sentinel sorts first
    BY_NUMBER = "by_number"  # a sorted set by a number above 0: the sentinel sorts first
    BY_TIME = "by_time"  # a sorted set by instant: the sentinel is never due


#: name -> kind. Scripts declare their keys by these names.
KINDS: Final[dict[str, KeyKind]] = {
    "meta": KeyKind.HASH,  # sequence, last_seen, reap_after, queues, format, born ...;
    # e:queue\0task number of enqueued jobs
    "job": KeyKind.HASH,  # id -> record
    "body": KeyKind.HASH,  # id -> envelope
    "extra": KeyKind.HASH,  # r:id result, p:id progress, f:number:id an entry of the history,
    # k:id its idempotency key, s:id the put that replaced its call, w:put the job with its call
    "ready": KeyKind.LEXICAL,  # jobs that may be claimed: suspect, queue, rank, place, id
    "lines": KeyKind.LEXICAL,  # lines with ready jobs: suspect, labels, ageing of the queue,
    # rank and place of the first in line, queue
    "due": KeyKind.BY_TIME,  # jobs that wait for an instant: row, id
    "parked": KeyKind.LEXICAL,  # jobs that are held: task, row, id
    "held": KeyKind.LEXICAL,  # jobs that run: session, nonce, id
    "asked": KeyKind.LEXICAL,  # running jobs with a cancel request: session, id
    "keep": KeyKind.BY_TIME,  # jobs that have succeeded, by the next visit of the purge: id
    "cancelled": KeyKind.BY_TIME,  # the same of cancelled jobs
    "dead": KeyKind.BY_TIME,  # the same of dead jobs
    "lease": KeyKind.BY_TIME,  # until when a session lives; -1 when it is dead and still holds jobs
    "sessions": KeyKind.HASH,  # session -> 0 (lives) or 1 (dead), latest nonce; session\0 -> info;
    # session\0command -> what an operator asks of it
    "forget": KeyKind.BY_TIME,  # sessions without a lease, by when they are forgotten
    "keys": KeyKind.HASH,  # idempotency key -> job, fingerprint, until
    "key_expiry": KeyKind.BY_TIME,  # idempotency keys, by when they are forgotten
    "count": KeyKind.HASH,  # queue and state -> number of records
    "total": KeyKind.HASH,  # other events -> how often
    "unique": KeyKind.LEXICAL,  # the latest job under a unique key: task, key, id
    "idle": KeyKind.LEXICAL,  # registrations of idle sessions: suspects, queue and label, name; or
    # suspects, two zeros, task, name
    "waiters": KeyKind.HASH,  # name of a registration -> the waiting sessions, until when
    "watch": KeyKind.HASH,  # id -> channels of callers that wait for its end
    "watch_until": KeyKind.BY_TIME,  # ids in `watch`, by when they are forgotten
    "schedule": KeyKind.HASH,  # r:name record, n:name note, b:name body
    "schedule_names": KeyKind.LEXICAL,  # every schedule
    "schedule_due": KeyKind.BY_TIME,  # schedules, by when to examine them again
    "document": KeyKind.LEXICAL,  # documents: kind, key, revision, body
    "audit": KeyKind.LEXICAL,  # entries of the audit trail: id, instant, body
    "deaths": KeyKind.LEXICAL,  # dead jobs: fingerprint, release, queue, task, instant, id
    "dead_groups": KeyKind.BY_NUMBER,  # groups of dead jobs, by how many they have: fingerprint,
    # release, queue, task
    "steps": KeyKind.LEXICAL,  # completed parts of jobs: id, name, value
    "history": KeyKind.LEXICAL,  # measures and samples: kind, begin, queue and task, numbers
}

#: kind -> score of the sentinel; a hash has none.
_SCORES: Final = {
    KeyKind.LEXICAL: b"0",
    KeyKind.BY_NUMBER: b"0",
    KeyKind.BY_TIME: b"+inf",
}


def key(namespace: str, partition: int, name: str) -> str:
    """Name a key. The part in braces decides the slot: without the namespace, the partitions of
    every namespace lie evenly on the nodes of a cluster."""
    return f"{namespace}:{{{tag_of(partition)}}}:{name}"


def channel(namespace: str, waiter: str) -> str:
    """Name a waiter's channel. No hash tag: a cluster forwards messages to all nodes."""
    return f"{namespace}:wake:{waiter}"


def sentinel_scores() -> list[bytes]:
    """List the sentinel's score for each key in the order of `KINDS`; empty for a hash."""
    return [_SCORES.get(kind, b"") for kind in KINDS.values()]
