"""Lists of bytes as binary arrays. psycopg writes every list as text, in which a byte takes two."""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Any, Final

from psycopg import pq
from psycopg.adapt import PyFormat
from psycopg.types.array import BaseListDumper, ListDumper

_BYTEA: Final = 17
_BYTEA_ARRAY: Final = 1001
#: Dimensions, whether there are NULLs, the type; length and first index of the only dimension.
_HEAD: Final = Struct(">iIIii")
_SIZE: Final = Struct(">i")
_NULL: Final = _SIZE.pack(-1)


class ListWriter(ListDumper):
    """Writes lists as psycopg does, apart from those of bytes."""

    def upgrade(self, obj: list[Any], format: PyFormat) -> BaseListDumper:
        if any(isinstance(value, bytes) for value in obj):
            return _BlobsWriter(self.cls)
        return super().upgrade(obj, format)


class _BlobsWriter(ListDumper):
    """Writes bytes, and None for NULL."""

    format = pq.Format.BINARY
    oid = _BYTEA_ARRAY

    def dump(self, obj: list[Any]) -> bytes:
        head = _HEAD.pack(1, None in obj, _BYTEA, len(obj), 1)
        return b"".join([head, *_elements(obj)])


def _elements(values: Iterable[bytes | None]) -> Iterable[bytes]:
    for value in values:
        if value is None:
            yield _NULL
        else:
            yield _SIZE.pack(len(value))
            yield value
