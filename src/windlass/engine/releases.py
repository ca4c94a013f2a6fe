"""The releases of the code, each with the instant at which its first worker started.

A release is a document of the engine, so that all processes agree which of two releases came first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from windlass.core.ids import random_digits
from windlass.engine.clock import read_clock
from windlass.engine.contract import Document, DocumentChange, Engine

KIND: Final = "release"
#: The oldest releases are forgotten when there are more.
MAX_RELEASES: Final = 500


class _ReleaseBody(msgspec.Struct, frozen=True):
    began_ms: int


def note_release(engine: Engine, release: str) -> None:
    """Store that a worker of a release has started. The first one counts."""
    if engine.get_documents(KIND, [release])[0] is not None:
        return
    body = msgspec.json.encode(_ReleaseBody(read_clock(engine)))
    engine.change_documents([_change(release, "", body)])
    known = engine.list_documents(KIND, limit=MAX_RELEASES + 100)
    oldest = sorted(known, key=_began_ms)[: max(0, len(known) - MAX_RELEASES)]
    if oldest:
        engine.change_documents([_change(one.key, one.revision, None) for one in oldest[:100]])


def read_releases(engine: Engine) -> Mapping[str, int]:
    """Release -> the instant at which its first worker started, in that order."""
    known = engine.list_documents(KIND, limit=MAX_RELEASES + 100)
    return {one.key: _began_ms(one) for one in sorted(known, key=_began_ms)}


def _began_ms(document: Document) -> int:
    return msgspec.json.decode(document.body, type=_ReleaseBody).began_ms


def _change(release: str, expected: str, body: bytes | None) -> DocumentChange:
    revision = random_digits(26)
    return DocumentChange(kind=KIND, key=release, expected=expected, revision=revision, body=body)
