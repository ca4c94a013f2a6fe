"""`examine`: check whether a server is fit to store jobs, with one finding per subject.

1. The server: version, encoding, role, durability. `migrate` decides what a first use would refuse.
2. The tables: their format, whether all are there, and the rights of the user.
3. What makes claims slow: autovacuum, dead rows, and old transactions, which keep them alive.
4. The connection: number, encryption, poolers and notifications, clock and round trips.

`examine` changes nothing, and needs no rights beyond those to the tables. Only with the role
`pg_read_all_stats` does the server tell how long transactions of other users have run.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import psycopg

from windlass.core.durations import describe_ms
from windlass.core.quantities import count, describe_bytes
from windlass.engine.contract import Finding, Grade
from windlass.engine.postgres import migrate
from windlass.engine.postgres.connections import Connections, describe_failure
from windlass.engine.postgres.relations import Relation, declared_names, list_relations
from windlass.engine.postgres.statements import Connection, migrations
from windlass.engine.server_times import examine_times
from windlass.engine.sql.statements import Row
from windlass.errors import EngineError, EngineUnavailable

#: The first version on which windlass is tested.
TESTED: Final = 150_000
#: Give advice when more than this share of the connections is used.
MOST_USED: Final = 0.8
#: Advise about transactions that are older than this, in seconds.
OLD_S: Final = 300
#: The same in transactions of the server, where the age is not known otherwise.
OLD_TRANSACTIONS: Final = 1_000_000
#: Advise about a table with more dead rows than this, and more than live ones.
MANY_DEAD: Final = 1_000_000
#: How long another connection may take, in seconds.
_CONNECT_S: Final = 3.0
_UNLOGGED: Final = re.compile(r"CREATE UNLOGGED TABLE windlass\.(\w+)")
#: Transactions that keep old versions of rows alive: what holds them, for how long in seconds and
#: in transactions, how to end them, and whether the server hides from us since when they run.
_OLD_TRANSACTIONS: Final = """
SELECT format('process %s of %s (%s%s)', pid, coalesce(usename, '?'),
              coalesce(nullif(application_name, ''), 'unnamed'), ', ' || state),
       extract(epoch FROM clock_timestamp() - xact_start)::bigint,
       greatest(age(backend_xmin), age(backend_xid), 0),
       format('End it: SELECT pg_terminate_backend(%s)', pid), xact_start IS NULL
FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
      AND coalesce(backend_type, '') <> 'autovacuum worker'
      AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL
           OR state LIKE 'idle in transaction%')
UNION ALL
SELECT format('the prepared transaction %s of %s', gid, owner),
       extract(epoch FROM clock_timestamp() - prepared)::bigint, age(transaction),
       format('End it: ROLLBACK PREPARED %L', gid), false
FROM pg_prepared_xacts WHERE database = current_database()
UNION ALL
SELECT format('the replication slot %s', slot_name), NULL, age(xmin),
       format('Drop it if it is unused: SELECT pg_drop_replication_slot(%L)', slot_name::text),
       false
FROM pg_replication_slots WHERE xmin IS NOT NULL
UNION ALL
SELECT format('the standby %s, by its hot_standby_feedback', coalesce(application_name, '?')),
       NULL, age(backend_xmin), 'End its long queries', false
FROM pg_stat_replication WHERE backend_xmin IS NOT NULL
"""
_CONNECTIONS: Final = """
SELECT (SELECT sum(numbackends)::bigint FROM pg_stat_database),
       current_setting('max_connections')::bigint
           - current_setting('superuser_reserved_connections')::bigint
"""
_CLOCK: Final = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::float8"
_PROCESS: Final = "SELECT pg_backend_pid(), pg_postmaster_start_time()::text"


def examine(connections: Connections, clock_offset_ms: int) -> list[Finding]:
    def look(db: Connection) -> list[Finding]:
        return list(_Doctor(connections, db, clock_offset_ms).examine())

    try:
        return connections.run(look)
    except EngineUnavailable:
        raise
    except EngineError as error:
        return [Finding(Grade.PROBLEM, "connection", str(error))]


class _Doctor:
    def __init__(self, connections: Connections, db: Connection, clock_offset_ms: int) -> None:
        self._connections = connections
        self._schema = connections.address.schema
        self._db = db
        self._clock_offset_ms = clock_offset_ms
        self._facts = migrate.read_facts(db, self._schema)

    def _rows(self, query: str, *values: Any) -> list[Row]:
        return self._db.execute(query.encode(), values).fetchall()

    def _quoted(self, name: str) -> str:
        """A name as SQL writes it."""
        [(quoted,)] = self._rows("SELECT quote_ident($1)", name)
        return str(quoted)

    def _setting(self, name: str) -> str:
        [(value,)] = self._rows("SELECT current_setting($1)", name)
        return str(value)

    def examine(self) -> Iterator[Finding]:
        relations = list_relations(self._db, self._schema)
        yield _version(self._facts)
        yield _encoding(self._facts)
        yield self._role()
        yield self._durability(relations)
        yield from self._tables(relations)
        yield self._autovacuum(relations)
        yield _bloat(relations, self._quoted(self._schema))
        yield self._transactions()
        yield self._number_of_connections()
        yield self._access()
        yield self._wakeups()
        yield from examine_times(self._ask_ms)
        yield _size(relations)

    # -------------------------------------------------------------------------------- the server

    def _role(self) -> Finding:
        [(is_standby,)] = self._rows("SELECT pg_is_in_recovery()")
        if is_standby:
            return Finding(
                Grade.PROBLEM,
                "role",
                "a standby server, which takes no writes. Give the primary in the url, or all "
                "servers and target_session_attrs=read-write",
            )
        if self._setting("transaction_read_only") == "on":
            return Finding(
                Grade.PROBLEM,
                "role",
                "default_transaction_read_only is on, so nothing can be stored. Set it off for "
                "this server, database or user",
            )
        [(standbys,)] = self._rows("SELECT count(*) FROM pg_stat_replication")
        return Finding(Grade.OK, "role", f"primary, {count(standbys, 'standby', 'standbys')}")

    def _durability(self, relations: Sequence[Relation]) -> Finding:
        declared = {name for _, text in migrations() for name in _UNLOGGED.findall(text)}
        unlogged = [
            one.name
            for one in relations
            if one.kind == "r" and not one.is_logged and one.name not in declared
        ]
        commit = self._setting("synchronous_commit")
        problems = [
            f"{name} is unlogged: a crash of the server empties it. Run "
            f"ALTER TABLE {self._quoted(self._schema)}.{name} SET LOGGED"
            for name in unlogged
        ]
        advice = []
        if self._setting("fsync") == "off":
            problems.append(
                "fsync is off: a crash of the machine can destroy the whole database. Set it on"
            )
        if self._setting("full_page_writes") == "off":
            advice.append(
                "full_page_writes is off: a crash of the machine can damage tables. Set it on, "
                "unless the file system never writes a page in part"
            )
        if commit == "off":
            advice.append(
                "synchronous_commit is off: a crash of the server loses the last commits, and the "
                "jobs in them. Set it on"
            )
        if problems or advice:
            grade = Grade.PROBLEM if problems else Grade.ADVICE
            return Finding(grade, "durability", ". ".join(problems + advice))
        has_standby = bool(self._setting("synchronous_standby_names")) and commit != "local"
        where = "the disks of this server and a standby" if has_standby else "the disk"
        return Finding(
            Grade.OK, "durability", f"a commit is on {where} (synchronous_commit {commit})"
        )

    # -------------------------------------------------------------------------------- the tables

    def _tables(self, relations: Sequence[Relation]) -> Iterator[Finding]:
        if not any(one.name == "meta" for one in relations):
            why = migrate.why_no_tables(self._facts, self._schema)
            if relations:
                why = str(migrate.of_another_program(self._schema))
            text = why or f"the schema {self._schema} has none yet: the first use makes them"
            yield Finding(Grade.PROBLEM if why else Grade.OK, "tables", text)
            return
        [(may_enter,)] = self._rows("SELECT has_schema_privilege($1, 'USAGE')", self._schema)
        rights = self._rights(_missing_rights(relations, self._schema, may_enter=may_enter))
        if rights.grade is Grade.OK:
            yield self._format(relations)
        yield rights

    def _rights(self, missing: Sequence[str]) -> Finding:
        role = self._facts.role
        if not missing:
            return Finding(Grade.OK, "rights", f"the role {role} has all rights that are needed")
        grants = _grants(self._quoted(role), self._quoted(self._schema))
        return Finding(
            Grade.PROBLEM,
            "rights",
            f"the role {role} has no right to {'; '.join(missing)}. As the owner of the tables, "
            f"run: {grants}",
        )

    def _format(self, relations: Sequence[Relation]) -> Finding:
        try:
            number = migrate.stored_format(self._db, self._schema)
            if number != migrate.NEWEST_FORMAT:
                migrate.refuse_format(number, self._schema)
        except EngineError as error:
            return Finding(Grade.PROBLEM, "tables", str(error))
        valid = {one.name for one in relations if one.is_valid}
        if missing := sorted(declared_names() - valid):
            return Finding(
                Grade.PROBLEM,
                "tables",
                f"missing or not valid: {', '.join(missing)}. `windlass migrate --sql --after 0` "
                "prints how each of them is made; REINDEX INDEX makes an index valid",
            )
        text = f"the schema {self._schema} has format {number}, which this version reads"
        return Finding(Grade.OK, "tables", text)

    # ----------------------------------------------------------------------- what makes claims slow

    def _autovacuum(self, relations: Sequence[Relation]) -> Finding:
        off = [name for name in ("autovacuum", "track_counts") if self._setting(name) == "off"]
        tables = [one.name for one in relations if not one.has_autovacuum]
        if off or tables:
            where = " and ".join(
                [*off, *([f"autovacuum of {', '.join(tables)}"] if tables else [])]
            )
            return Finding(
                Grade.ADVICE,
                "autovacuum",
                f"{where} is off: old versions of rows stay, and claims become slower and slower. "
                "Set it on",
            )
        return Finding(Grade.OK, "autovacuum", "on")

    def _transactions(self) -> Finding:
        rows = self._rows(_OLD_TRANSACTIONS)
        found = [
            (seconds or 0, transactions or 0, holder, remedy)
            for holder, seconds, transactions, remedy, _ in rows
            if (seconds is not None and seconds > OLD_S)
            or (seconds is None and (transactions or 0) > OLD_TRANSACTIONS)
        ]
        if not found:
            text = f"none is older than {describe_ms(OLD_S * 1000)}"
            if hidden := sum(is_hidden for *_, is_hidden in rows):
                role = self._facts.role
                text += (
                    f", as far as {role} can see: the age of {count(hidden, 'other')} is hidden. "
                    f"GRANT pg_read_all_stats TO {self._quoted(role)} shows it"
                )
            return Finding(Grade.OK, "transactions", text)
        seconds, transactions, holder, remedy = max(found)
        age = describe_ms(seconds * 1000) if seconds else f"{transactions:,} transactions"
        others = f", and {count(len(found) - 1, 'other')} are old too" if len(found) > 1 else ""
        return Finding(
            Grade.ADVICE,
            "transactions",
            f"{holder} began {age} ago{others}: old versions of rows stay meanwhile, and claims "
            f"become slower. {remedy}",
        )

    # ---------------------------------------------------------------------------- the connection

    def _number_of_connections(self) -> Finding:
        [(used, most)] = self._rows(_CONNECTIONS)
        described = f"{used} of {most} in use"
        if used >= MOST_USED * most:
            return Finding(
                Grade.ADVICE,
                "connections",
                f"{described}, and the server refuses others beyond the limit. Raise "
                "max_connections, or put PgBouncer in front",
            )
        return Finding(Grade.OK, "connections", described)

    def _access(self) -> Finding:
        parameters = self._db.info.get_parameters()
        return examine_access(
            self._db.info.host,
            is_encrypted=bool(self._db.pgconn.ssl_in_use),
            is_verified=parameters.get("sslmode", "").startswith("verify-"),
        )

    def _wakeups(self) -> Finding:
        address = self._connections.address
        if not address.is_pooled:
            return self._examine_pooler()
        polls = "workers look for new jobs every 250 ms"
        if address.listen_conninfo is None:
            text = (
                f"none comes through a pooler: {polls}. Add listen=HOST:PORT of the server itself "
                "to the url"
            )
            return Finding(Grade.ADVICE, "wake-ups", text)
        try:
            with self._connect(address.listen_conninfo) as other:
                other.execute("LISTEN windlass_doctor")
                [(process, there)] = other.execute(_PROCESS.encode()).fetchall()
                is_pooler = process != other.info.backend_pid
        except (psycopg.Error, TimeoutError) as error:
            text = (
                f"the server of listen= does not answer ({describe_failure(error)}): {polls}. "
                "Correct it in the url"
            )
            return Finding(Grade.ADVICE, "wake-ups", text)
        if is_pooler:
            text = (
                f"listen= leads to a pooler, through which no wake-up comes: {polls}. Give host "
                "and port of the server itself"
            )
            return Finding(Grade.ADVICE, "wake-ups", text)
        [(_, here)] = self._rows(_PROCESS)
        if here != there:
            text = (
                f"listen= is another server than that of the pooler: {polls}. Correct it in the url"
            )
            return Finding(Grade.ADVICE, "wake-ups", text)
        return Finding(Grade.OK, "wake-ups", "notifications of the server, around the pooler")

    def _examine_pooler(self) -> Finding:
        """Look whether the process of the server is the one to which the connection was made, and
        whether another connection gets the same process."""
        [(process, _)] = self._rows(_PROCESS)
        if process == self._db.info.backend_pid:
            return Finding(Grade.OK, "wake-ups", "notifications of the server")
        with self._connect(self._connections.address.conninfo) as other:
            [(others, _)] = other.execute(_PROCESS.encode()).fetchall()
            [(again, _)] = self._rows(_PROCESS)
        if others == process or again != process:
            return Finding(
                Grade.PROBLEM,
                "wake-ups",
                "a pooler gives each transaction another connection to the server: settings and "
                "wake-ups get lost. Add pooler=transaction to the url",
            )
        return Finding(Grade.OK, "wake-ups", "notifications, through a pooler in session mode")

    def _connect(self, conninfo: str) -> Connection:
        """Make another connection, without settings: a pooler would give them to others."""
        other: Connection = psycopg.connect(
            conninfo,
            autocommit=True,
            connect_timeout=round(_CONNECT_S),
            cursor_factory=psycopg.RawCursor,
        )
        return other

    def _ask_ms(self) -> float:
        [(now_ms,)] = self._rows(_CLOCK)
        return float(now_ms) + self._clock_offset_ms


# ----------------------------------------------------------------------------------- the server


def _version(facts: migrate.ServerFacts) -> Finding:
    if why := migrate.why_too_old(facts):
        return Finding(Grade.PROBLEM, "version", why)
    name = f"PostgreSQL {facts.version_text}"
    if facts.version < TESTED:
        text = f"{name}: windlass is tested from {TESTED // 10_000} on. Upgrade the server"
        return Finding(Grade.ADVICE, "version", text)
    return Finding(Grade.OK, "version", name)


def _encoding(facts: migrate.ServerFacts) -> Finding:
    if why := migrate.why_wrong_encoding(facts):
        return Finding(Grade.PROBLEM, "encoding", why)
    return Finding(Grade.OK, "encoding", facts.encoding)


# ----------------------------------------------------------------------------------- the tables


def _missing_rights(relations: Sequence[Relation], schema: str, *, may_enter: bool) -> list[str]:
    missing: dict[str, list[str]] = {}
    for one in relations:
        for right in filter(None, one.missing_rights.split(", ")):
            missing.setdefault(right, []).append(one.name)
    lists = [] if may_enter else [f"USAGE on the schema {schema}"]
    for right, names in missing.items():
        number = count(len(names), "table or sequence", "tables or sequences")
        lists.append(f"{right} on {', '.join(sorted(names)) if len(names) < 4 else number}")
    return lists


def _grants(role: str, schema: str) -> str:
    """The statements that give a role all rights of a running program. Both names are quoted."""
    return (
        f"GRANT USAGE ON SCHEMA {schema} TO {role}; "
        f"GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON ALL TABLES IN SCHEMA {schema} "
        f"TO {role}; GRANT USAGE, SELECT, UPDATE ON ALL SEQUENCES IN SCHEMA {schema} TO {role}"
    )


def _bloat(relations: Sequence[Relation], schema: str) -> Finding:
    worst = max(relations, key=lambda one: one.dead, default=None)
    if worst is None or worst.dead <= max(MANY_DEAD, worst.live):
        dead = sum(one.dead for one in relations)
        return Finding(Grade.OK, "dead rows", f"{dead:,} in all tables")
    return Finding(
        Grade.ADVICE,
        "dead rows",
        f"{worst.name} has {worst.dead:,}, and {worst.live:,} live ones: claims read past them. "
        f"End old transactions, see that autovacuum runs, then VACUUM {schema}.{worst.name}",
    )


def _size(relations: Sequence[Relation]) -> Finding:
    sizes: dict[str, int] = {}
    for one in relations:
        name = one.parent or one.name
        sizes[name] = sizes.get(name, 0) + one.size
    largest = sorted(sizes, key=lambda name: -sizes[name])[:3]
    shown = ", ".join(f"{name} {describe_bytes(sizes[name])}" for name in largest if sizes[name])
    total = describe_bytes(sum(sizes.values()))
    return Finding(Grade.OK, "size", f"{total}: {shown}" if shown else total)


# -------------------------------------------------------------------------------- the connection


def examine_access(host: str, *, is_encrypted: bool, is_verified: bool) -> Finding:
    if host.startswith("/") or not host:
        return Finding(Grade.OK, "access", "through a socket on this machine")
    if _is_this_machine(host):
        return Finding(Grade.OK, "access", "on this machine")
    if not is_encrypted:
        text = "over the network, not encrypted. Add sslmode=verify-full to the url"
        return Finding(Grade.ADVICE, "access", text)
    if not is_verified:
        text = (
            "over the network, encrypted, and any server may pose as this one. Add "
            "sslmode=verify-full and sslrootcert to the url"
        )
        return Finding(Grade.ADVICE, "access", text)
    return Finding(Grade.OK, "access", "over the network, encrypted, with a verified server")


def _is_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
