"""Labels that jobs require, and the sub-queues (lines) of a queue by these labels.

Jobs without labels are in a line named like the queue. Jobs that require labels are in a separate
line, `default+gpu` or `default+gpu+large`, so that a worker never scans jobs that it cannot claim.
Engines see lines; users see queues and labels.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Final

#: The pattern of a valid label.
LABEL: Final = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,31}"
#: The largest number of labels that a job requires.
MAX_LABELS: Final = 4

#: The largest number of labels of a worker.
MAX_WORKER_LABELS: Final = 32

_MARK: Final = "+"


def read_labels(given: Sequence[object], *, most: int = MAX_LABELS) -> tuple[str, ...]:
    """Check, sort and deduplicate labels. Raises `ValueError`."""
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
    """The line for jobs of a queue that require these labels."""
    return _MARK.join([queue, *sorted(set(requires))])


def queue_of(line: str) -> str:
    return line.partition(_MARK)[0] if _MARK in line else line


def after_lines(queue: str) -> str:
    """The text that sorts after all lines of a queue. Lines of some other queues, whose names
    continue this one, may sort before it too."""
    return f"{queue},"


def labels_of(line: str) -> tuple[str, ...]:
    """The labels that a worker must have to claim from this line."""
    return tuple(line.split(_MARK)[1:])


def may_take(line: str, labels: Collection[str]) -> bool:
    """Whether a worker with these labels may claim from a line."""
    return _MARK not in line or set(labels_of(line)) <= set(labels)


def required_text(line: str) -> str:
    """The label part of a line, such as "+gpu+large", or "" without labels."""
    return line.removeprefix(queue_of(line))


def skip_labels(required: str, labels: Collection[str]) -> str | None:
    """The text where a sorted scan of lines continues after a line with the labels `required`.
    Skips lines that a worker with `labels` cannot claim from. None if the worker can claim from
    this line."""
    known = required.split(_MARK)[1:]
    for number, label in enumerate(known):
        if label not in labels:
            before = _MARK.join(["", *known[:number]])
            later = min((own for own in labels if own > label), default=None)
            return f"{before}," if later is None else f"{before}{_MARK}{later}"
    return None
