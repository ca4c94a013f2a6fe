"""The tables of an outbox: statements, and migrations.

The folder `migrations` has the SQL of each version, as files that other migration tools can run
too; `sql` has all other statements (`-- name: insert`). The files have the names of the default
namespace, and this module replaces them by those of the url.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final

from windlass.core.named_statements import split_statements
from windlass.outbox.url import DEFAULT_NAMESPACE, OutboxUrl

_FOLDER: Final = Path(__file__).parent


@lru_cache(maxsize=8)
def statements(url: OutboxUrl) -> Mapping[str, str]:
    """The statements for an outbox, by name, without comments."""
    text = (_FOLDER / "sql" / f"{url.dialect}.sql").read_text(encoding="utf-8")
    return dict(split_statements(_for(url, text)))


def migrations(url: OutboxUrl) -> Iterator[tuple[int, str]]:
    """Each version and its SQL, the oldest first."""
    folder = _FOLDER / "migrations" / url.dialect
    for file in sorted(folder.glob("*.sql"), key=lambda file: file.name):
        yield int(file.name.split("_")[0]), _for(url, file.read_text(encoding="utf-8"))


def newest(url: OutboxUrl) -> int:
    """The version of the tables that this windlass needs."""
    return max(version for version, _ in migrations(url))


def full_sql(url: OutboxUrl) -> str:
    """The SQL of all versions, for other migration tools."""
    return "\n".join(sql for _, sql in migrations(url))


def _for(url: OutboxUrl, sql: str) -> str:
    return sql.replace(DEFAULT_NAMESPACE, url.namespace)
