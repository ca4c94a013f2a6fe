"""The first use of a server: is it fit to keep jobs, and are its partitions those of the url."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from windlass.engine.redis.address import Address
from windlass.errors import EngineError, FormatTooNew

#: The stored format that this windlass writes, and the newest that it reads.
FORMAT: Final = 1
OLDEST_VERSION: Final = (6, 2)


class Fitness(msgspec.Struct, frozen=True, kw_only=True):
    """What a server says of itself, in words for people."""

    version: str
    eviction: str
    persistence: str


def read_info(text: bytes) -> dict[str, str]:
    """The fields of an answer to INFO."""
    lines = (line.partition(":") for line in text.decode("utf-8", "replace").splitlines())
    return {name: value for name, colon, value in lines if colon}


def judge(info: dict[str, str], address: Address) -> Fitness:
    """Refuse a server that is too old, or that may drop keys when its memory is full."""
    version = info.get("redis_version", "0")
    if _numbers(version) < OLDEST_VERSION:
        raise EngineError(
            f"windlass needs Redis 6.2 or newer, or Valkey; {address} runs {version}. "
            "Upgrade the server, or give another one in the url."
        )
    policy = info.get("maxmemory_policy", "unknown")
    if policy.startswith("allkeys") and not address.allow_eviction:
        raise EngineError(
            f"The Redis server at {address} drops keys when its memory is full (maxmemory-policy "
            f"{policy}): jobs would be lost without a trace. Set maxmemory-policy noeviction, or "
            "accept the loss with ?allow_eviction=1 in the url."
        )
    return Fitness(version=version, eviction=policy, persistence=_persistence(info))


def check_stored(stored: Sequence[int], address: Address) -> None:
    """The format and the number of partitions that were settled at the first use."""
    stored_format, partitions = stored
    if stored_format > FORMAT:
        raise FormatTooNew(
            f"The jobs in {address} were stored by a newer windlass (format {stored_format}; this "
            f"one knows up to {FORMAT}). Upgrade windlass here, or give another namespace."
        )
    if partitions != address.partitions:
        raise EngineError(
            f"The namespace {address.namespace} at {address} was set up with {partitions} "
            f"partitions, and the url asks for {address.partitions}. The number cannot be changed "
            f"later: write ?partitions={partitions} in the url, or choose another namespace."
        )


def _persistence(info: dict[str, str]) -> str:
    if info.get("aof_enabled") == "1":
        return "append-only file: what was put survives a restart, as far as it was synced to disk"
    return "snapshots at most: what was put since the last one is lost when the server ends"


def _numbers(version: str) -> tuple[int, ...]:
    parts = version.split(".")[:2]
    return tuple(int(part) if part.isdecimal() else 0 for part in parts)
