"""Lines: where jobs of one queue that any worker may run stand apart from those that not all may.

The jobs of a queue stand in one line, named like the queue. Those that need a worker with certain
labels stand in a line of their own beside it, `default+gpu` or `default+gpu+large`, so that nobody
has to look past jobs that he cannot take. Engines see lines; people see queues and labels.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Final

#: How a label is written.
LABEL: Final = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,31}"
#: A job requires at most so many.
MAX_LABELS: Final = 4

#: A worker has at most so many.
MAX_WORKER_LABELS: Final = 32

_MARK: Final = "+"


def read_labels(given: Sequence[object], *, most: int = MAX_LABELS) -> tuple[str, ...]:
    """The same labels, each once and in order. Raises `ValueError` with a sentence."""
    labels: set[str] = set()
    for label in given:
        if not isinstance(label, str) or not re.fullmatch(LABEL, label):
            raise ValueError(
                "a label is 1 to 32 letters, digits, '_', '.' and '-', the first one a letter or a "
                f"digit, found {label!r}"
            )
        labels.add(label)
    if len(labels) > most:
        raise ValueError(f"at most {most} labels can be given, found {len(labels)}")
    return tuple(sorted(labels))


def line_of(queue: str, requires: Iterable[str] = ()) -> str:
    """Where jobs of a queue stand that require these labels."""
    return _MARK.join([queue, *sorted(set(requires))])


def queue_of(line: str) -> str:
    return line.partition(_MARK)[0]


def labels_of(line: str) -> tuple[str, ...]:
    """The labels that a worker must have to take jobs from this line."""
    return tuple(line.split(_MARK)[1:])


def may_take(line: str, labels: Collection[str]) -> bool:
    """Whether a worker with these labels may take jobs from a line."""
    return _MARK not in line or set(labels_of(line)) <= set(labels)


def required_text(line: str) -> str:
    """The labels that a line requires, each with a plus before it; "" where it requires none."""
    return line.removeprefix(queue_of(line))


def skip_labels(required: str, labels: Collection[str]) -> str | None:
    """In the order of such texts, where those go on that a worker with these labels may take from,
    behind one that it may not; None when it may."""
    known = required.split(_MARK)[1:]
    for number, label in enumerate(known):
        if label not in labels:
            before = _MARK.join(["", *known[:number]])
            later = min((own for own in labels if own > label), default=None)
            return f"{before}," if later is None else f"{before}{_MARK}{later}"
    return None
