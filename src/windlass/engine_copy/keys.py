"""Copy the keys of a source that outlive their jobs: idempotency keys, and unique keys for a
period.

Keys are copied before jobs. So the copier knows which jobs it must not store, because another job
of the target has their idempotency key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from windlass.engine.contract import CopyCode, Engine, KeyCopy
from windlass.engine_copy.jobs import COPIED
from windlass.engine_copy.pages import read_pages

#: Jobs are read in batches of this size, to learn when they were created.
_READ: Final = 50


class KeyPass:
    """Copies all idempotency keys of a source.

    With `since_ms`, it copies only keys of jobs that were created since then. An earlier copy has
    stored the others, and the target may have freed some of these with their jobs."""

    def __init__(self, source: Engine, target: Engine, since_ms: int | None) -> None:
        self._source = source
        self._target = target
        self._since_ms = since_ms
        self.seen = 0
        self.refused: set[str] = set()  # waiting and dead jobs whose key another job has

    def run(self) -> Iterator[int]:
        """Copy all keys; after each batch yield the number of keys that were seen."""
        for keys in self._pages():
            self.seen += len(keys)
            codes = self._target.put_keys([self._fit(key) for key in keys])
            held = [key.id for key, code in zip(keys, codes, strict=True) if code is CopyCode.HELD]
            self.refused.update(self._still_to_run(held))
            yield self.seen

    def _pages(self) -> Iterator[Sequence[KeyCopy]]:
        for page in read_pages(self._source.list_keys):
            yield page.keys if self._since_ms is None else self._late(page.keys, self._since_ms)

    def _late(self, keys: Sequence[KeyCopy], since_ms: int) -> list[KeyCopy]:
        """The keys of jobs that were created at an instant or later."""
        created = {
            record.id: record.created_ms
            for at in range(0, len(keys), _READ)
            for record in self._source.get([key.id for key in keys[at : at + _READ]])
            if record is not None
        }
        return [key for key in keys if created.get(key.id, -1) >= since_ms]

    def _fit(self, key: KeyCopy) -> KeyCopy:
        """Let a key lead to the id that its job has in the target."""
        unique, zero, _ = key.key.partition("\0")
        id = self._target.copied_id(key.id, key.task, unique if zero else None)
        return key if id == key.id else replace(key, id=id)

    def _still_to_run(self, ids: Sequence[str]) -> Iterator[str]:
        ends = self._source.ends(ids) if ids else ()
        yield from (end.id for end in ends if end is not None and end.state in COPIED)


def holders(source: Engine) -> Iterator[Sequence[str]]:
    """Iterate over the ended jobs of a source that hold a unique key, batch by batch."""
    for page in read_pages(source.list_holders):
        if page.ids:
            yield page.ids
