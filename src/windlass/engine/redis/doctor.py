"""`examine`: check whether a server is fit to store jobs, with one finding per subject.

1. The server (INFO): version, eviction, persistence, role, memory, connections. `setup` decides
   what a first use would refuse.
2. The namespace: the number of partitions, and the permissions of the Redis user.
3. The connection: login, encryption, clock and round trips.

This changes nothing and needs only the documented permissions. It also tries CONFIG GET, which
shows how often the append-only file is synced.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from windlass.core.ids import created_ms_of
from windlass.core.quantities import describe_bytes
from windlass.engine.contract import Finding, Grade
from windlass.engine.redis import setup
from windlass.engine.redis.client import scripts
from windlass.engine.redis.url import RedisAddress
from windlass.engine.server_times import examine_times
from windlass.errors import EngineError, EngineUnavailable

PARTS: Final = (b"server", b"clients", b"memory", b"persistence", b"replication")
#: Commands that are sent outside of scripts. Commands with a channel are checked separately.
_PLAIN: Final = {b"INFO", b"EVALSHA", b"EVAL", b"SELECT"}
_OF_CHANNELS: Final = {b"PUBLISH"}
#: Commands that are checked together with their second word.
_OF_TWO_WORDS: Final = {b"PUBSUB"}
#: Give advice when more than this share of memory or connections is used.
MOST_USED: Final = 0.8
#: release -> its first version with a fix for CVE-2025-49844, which lets a client that may run
#: scripts run any code on the server. Later releases were published with the fix.
_FIXED_REDIS: Final = {(6, 2): 20, (7, 2): 11, (7, 4): 6, (8, 0): 4, (8, 2): 2}
_FIXED_VALKEY: Final = {(7, 2): 11, (8, 0): 6, (8, 1): 4}

#: Send plain commands to the server and return the replies.
Ask = Callable[[Sequence[bytes]], list[Any]]
#: Run `examine.lua` in each partition with commands to check, and return the replies.
Look = Callable[[Sequence[bytes]], list[Any]]
Info = Mapping[str, str]


def examine(ask: Ask, look: Look, address: RedisAddress, clock_offset_ms: int) -> Iterator[Finding]:
    replies = ask([scripts.pack(b"INFO", part) for part in PARTS])
    info = setup.read_info(b"\r\n".join(replies))
    yield _version(info, address)
    yield _eviction(info, address)
    yield _persistence(info, _setting(ask, b"appendfsync"))
    yield _role(info)
    yield _memory(info)
    yield _connections(info)
    try:
        seen = look(sorted({*scripts.commands(), *_PLAIN} - _OF_CHANNELS - _OF_TWO_WORDS))
    except EngineUnavailable:
        raise
    except EngineError as error:
        yield Finding(Grade.PROBLEM, "rights", str(error))
    else:
        yield _partitions(seen, address)
        yield _rights(seen, address)
    yield _access(address)
    yield from _times(ask, clock_offset_ms)


def _setting(ask: Ask, name: bytes) -> str | None:
    """Read a setting of the server; None without the permission to read it."""
    try:
        (reply,) = ask([scripts.pack(b"CONFIG", b"GET", name)])
    except EngineUnavailable:
        raise
    except EngineError:
        return None
    return reply[1].decode() if len(reply) == 2 else None


# ----------------------------------------------------------------------------------- the server


def _version(info: Info, address: RedisAddress) -> Finding:
    refusal = setup.why_too_old(info, address)
    if refusal is not None:
        return Finding(Grade.PROBLEM, "version", refusal)
    is_valkey = "valkey_version" in info
    version = info.get("valkey_version") or info["redis_version"]
    name = f"{'Valkey' if is_valkey else 'Redis'} {version}"
    fixed = _FIXED_VALKEY if is_valkey else _FIXED_REDIS
    if _is_fixed(setup.version_numbers(version), fixed):
        return Finding(Grade.OK, "version", name)
    first = ", ".join(f"{major}.{minor}.{patch}" for (major, minor), patch in fixed.items())
    return Finding(
        Grade.ADVICE,
        "version",
        f"{name} has CVE-2025-49844: a client that may run scripts can take over the server. Your "
        f"distribution may have fixed it under the old number: see its security notes, or install "
        f"one of {first} or newer",
    )


def _is_fixed(version: tuple[int, ...], fixed: Mapping[tuple[int, int], int]) -> bool:
    major, minor, patch = (*version, 0, 0, 0)[:3]
    if (major, minor) > max(fixed):
        return True
    return (major, minor) in fixed and patch >= fixed[major, minor]


def _eviction(info: Info, address: RedisAddress) -> Finding:
    policy = f"maxmemory-policy {setup.eviction_policy(info)}"
    refusal = setup.why_dropping(info, address)
    if refusal is not None:
        return Finding(Grade.PROBLEM, "eviction", refusal)
    if setup.drops_keys(info):
        return Finding(
            Grade.ADVICE,
            "eviction",
            f"{policy}, accepted by allow_eviction=1: jobs are lost without a trace when the "
            "memory is full. Set noeviction",
        )
    return Finding(Grade.OK, "eviction", f"{policy}: no job is dropped when the memory is full")


def _persistence(info: Info, fsync: str | None) -> Finding:
    broken = _broken_persistence(info)
    if broken:
        return Finding(Grade.PROBLEM, "persistence", broken)
    described = setup.describe_persistence(info, fsync)
    if not setup.has_append_only_file(info):
        return Finding(
            Grade.PROBLEM, "persistence", f"{described}. Set appendonly yes on the server"
        )
    if fsync == "always":
        return Finding(Grade.OK, "persistence", described)
    return Finding(
        Grade.ADVICE, "persistence", f"{described}. If that is too much, set appendfsync always"
    )


def _broken_persistence(info: Info) -> str:
    if info.get("aof_last_write_status", "ok") != "ok":
        return "the append-only file could not be written: look at the server's disk and log"
    if info.get("rdb_last_bgsave_status", "ok") != "ok":
        return (
            "the last snapshot failed, and until one succeeds the server may refuse all writes: "
            "look at its disk and log"
        )
    return ""


def _role(info: Info) -> Finding:
    if info.get("role", "master") != "master":
        return Finding(
            Grade.PROBLEM,
            "role",
            f"a replica of {info.get('master_host')}:{info.get('master_port')}, which takes no "
            "writes: give the primary in the url",
        )
    return Finding(Grade.OK, "role", f"primary, {info.get('connected_slaves', '0')} replicas")


def _memory(info: Info) -> Finding:
    used, limit = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    whole = limit or int(info.get("total_system_memory", 0))
    of_what = "maxmemory" if limit else "the machine's; maxmemory is not set"
    described = f"{describe_bytes(used)} used of {describe_bytes(whole)} ({of_what})"
    if limit and used >= limit:
        return Finding(
            Grade.PROBLEM,
            "memory",
            f"{described}: nothing can be enqueued. Raise maxmemory, or let workers catch up",
        )
    if whole and used >= MOST_USED * whole:
        return Finding(
            Grade.ADVICE,
            "memory",
            f"{described}: when it is full nothing can be enqueued. Raise it in time",
        )
    return Finding(Grade.OK, "memory", described)


def _connections(info: Info) -> Finding:
    used, most = int(info.get("connected_clients", 0)), int(info.get("maxclients", 0))
    if not most:
        return Finding(Grade.OK, "connections", f"{used} in use; the server hides its limit")
    described = f"{used} of {most} in use"
    if used >= MOST_USED * most:
        return Finding(
            Grade.ADVICE,
            "connections",
            f"{described}: a worker needs three, and two more for each child, and the server "
            "refuses clients beyond the limit. Raise maxclients",
        )
    return Finding(Grade.OK, "connections", described)


# --------------------------------------------------------------------------------- the namespace


def _partitions(seen: Sequence[Sequence[Any]], address: RedisAddress) -> Finding:
    where = f"namespace {address.namespace}"
    if any(partitions < 0 for _, partitions, *_ in seen):
        return Finding(
            Grade.OK,
            "partitions",
            f"{where} is not used yet; its first use fixes {address.partitions}, permanently",
        )
    try:
        for stored in seen:
            setup.check_stored(stored, address)
    except EngineError as error:
        return Finding(Grade.PROBLEM, "partitions", str(error))
    has = f"{where} has {address.partitions}, in format {setup.FORMAT}"
    births = [birth.decode() for _, _, birth, *_ in seen if birth]
    if births:  # a partition last used by an older version has no id
        at = datetime.fromtimestamp(created_ms_of(max(births)) // 1000, UTC)
        has = f"{has}; before {at:%Y-%m-%d %H:%M:%S} UTC nothing was stored in it"
    return Finding(Grade.OK, "partitions", has)


def _rights(seen: Sequence[Sequence[Any]], address: RedisAddress) -> Finding:
    user = f"the user {address.username or 'default'}"
    missing = dict.fromkeys(text.decode() for _, _, _, _, *texts in seen for text in texts)
    if missing:
        return Finding(
            Grade.PROBLEM,
            "rights",
            f"{user} is not allowed {', '.join(missing)}: Redis aborts a script that needs it in "
            "the middle. Grant the rights that the documentation lists",
        )
    if not all(was_asked for _, _, _, was_asked, *_ in seen):
        return Finding(
            Grade.OK, "rights", f"{user} may run scripts; a server before 7.0 reports no more"
        )
    return Finding(Grade.OK, "rights", f"{user} has all rights that are needed")


# -------------------------------------------------------------------------------- the connection


def _access(address: RedisAddress) -> Finding:
    if address.path:
        return Finding(Grade.OK, "access", "through a socket on this machine")
    if _is_this_machine(address.host):
        return Finding(Grade.OK, "access", "on this machine")
    advice = []
    if not address.is_encrypted:
        advice.append("the connection is not encrypted (use rediss://)")
    if address.password is None:
        advice.append("no password is set, so every client that reaches it can run your tasks")
    if advice:
        return Finding(Grade.ADVICE, "access", f"over the network: {'; '.join(advice)}")
    return Finding(Grade.OK, "access", "over the network, encrypted, with a password")


def _is_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _times(ask: Ask, clock_offset_ms: int) -> Iterator[Finding]:
    def ask_ms() -> float:
        ((seconds, microseconds),) = ask([scripts.pack(b"TIME")])
        return int(seconds) * 1000 + int(microseconds) / 1000 + clock_offset_ms

    return examine_times(ask_ms)
