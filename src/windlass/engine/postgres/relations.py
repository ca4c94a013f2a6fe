"""The tables, indexes and sequences of windlass in the catalog of a server, for `doctor`."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from windlass.engine.postgres.statements import Connection, migrations

_MADE: Final = re.compile(
    r"^\s*(CREATE|DROP) (?:UNIQUE |UNLOGGED )?(TABLE|INDEX|SEQUENCE)(?: IF EXISTS)? "
    r"(?:windlass\.)?(\w+)",
    re.MULTILINE,
)


class Relation(NamedTuple):
    """A table, index or sequence; a row of `_RELATIONS`."""

    name: str
    kind: str  # as pg_class has it
    is_logged: bool
    is_valid: bool
    parent: str  # of a partition, or ""
    size: int
    missing_rights: str
    has_autovacuum: bool
    live: int
    dead: int


_RELATIONS: Final = """
SELECT c.relname::text, c.relkind::text, c.relpersistence <> 'u', coalesce(i.indisvalid, true),
       coalesce((SELECT p.relname::text FROM pg_inherits JOIN pg_class AS p ON p.oid = inhparent
                 WHERE inhrelid = c.oid), ''),
       CASE WHEN c.relkind = 'r' THEN pg_total_relation_size(c.oid) ELSE 0 END,
       CASE WHEN c.relkind = 'S' THEN (
           SELECT coalesce(string_agg(name, ', '), '') FROM unnest(ARRAY['USAGE', 'SELECT'])
           AS name WHERE NOT has_sequence_privilege(c.oid, name))
       WHEN c.relkind IN ('r', 'p') THEN (
           SELECT coalesce(string_agg(name, ', '), '')
           FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE']) AS name
           WHERE NOT has_table_privilege(c.oid, name)
           AND (name <> 'TRUNCATE' OR c.relname ~ '^ended_[0-9]+$'))
       ELSE '' END,
       NOT EXISTS (SELECT 1 FROM pg_options_to_table(c.reloptions)
                   WHERE option_name = 'autovacuum_enabled' AND NOT option_value::boolean),
       coalesce(pg_stat_get_live_tuples(c.oid), 0), coalesce(pg_stat_get_dead_tuples(c.oid), 0)
FROM pg_class AS c LEFT JOIN pg_index AS i ON i.indexrelid = c.oid
WHERE c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1)
"""


def list_relations(db: Connection, schema: str) -> list[Relation]:
    """List the relations of windlass. The schema may also have tables of others."""
    known = declared_names()
    found = (Relation(*row) for row in db.execute(_RELATIONS.encode(), [schema]).fetchall())
    return [one for one in found if known & {one.name, one.parent, one.name.rsplit("_", 2)[0]}]


def declared_names() -> set[str]:
    """The names of tables, indexes and sequences that the migrations make."""
    names: set[str] = set()
    for _, text in migrations():
        for verb, _, name in _MADE.findall(text):
            (names.add if verb == "CREATE" else names.discard)(name)
    return names
