"""Connections of Django: `django.db.connection`, or one of `django.db.connections`.

Django commits each statement by itself, except inside `transaction.atomic()`.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from django.db import transaction

from windlass.client.connections.connection import (
    BlockingConnection,
    CallerConnection,
    Execute,
    plain_rows,
)
from windlass.client.connections.parameters import with_percent
from windlass.engine.contract import SqlRows, SqlStatement, TransactionPlace


def adapt(value: object) -> CallerConnection | None:
    is_connection = hasattr(value, "in_atomic_block") and hasattr(value, "vendor")
    return DjangoConnection(value) if is_connection else None


class DjangoConnection(BlockingConnection):
    def __init__(self, connection: Any) -> None:
        super().__init__("connection of Django")
        self._connection = connection

    def begin(self, place: TransactionPlace) -> Execute:
        connection = self._connection
        self.check_dialect(connection.vendor, place)
        if connection.needs_rollback:
            raise self.refuse(
                "found an atomic block in which a statement failed before",
                "Let the error leave the block; or use an inner `transaction.atomic()` around "
                "statements that may fail.",
            )
        if connection.get_autocommit():  # off inside of an atomic block
            raise self.refuse_unbegun(
                "found one outside of an atomic block, where Django commits each statement",
                "Enqueue inside `with transaction.atomic():`, or leave out connection=.",
            )
        return self._execute

    def transaction(self, place: TransactionPlace) -> AbstractContextManager[Any]:
        self.check_dialect(self._connection.vendor, place)
        if self._connection.in_atomic_block:
            raise self.refuse_begun()
        block: AbstractContextManager[Any] = transaction.atomic(using=self._connection.alias)
        return block

    def _execute(self, statement: SqlStatement) -> SqlRows:
        with self._connection.cursor() as cursor:
            cursor.execute(*with_percent(statement))
            return plain_rows(cursor.fetchall() if cursor.description else ())
