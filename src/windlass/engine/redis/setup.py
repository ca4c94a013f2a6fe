"""Checks of a server at its first use: whether it is fit to store jobs and has the partitions that
the URL asks for. Later checks detect that stored data was lost.

`doctor` reports the same and more, without refusing anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from windlass.core.quantities import count
from windlass.engine.redis.url import RedisAddress
from windlass.errors import EngineError, FormatTooNew

#: The stored format that this windlass writes and reads.
FORMAT: Final = 4
OLDEST_VERSION: Final = (6, 2)


def read_info(text: bytes) -> dict[str, str]:
    """Parse a reply to INFO."""
    lines = (line.partition(":") for line in text.decode("utf-8", "replace").splitlines())
    return {name: value for name, colon, value in lines if colon}


def check_fit(info: Mapping[str, str], address: RedisAddress) -> None:
    """Refuse a server that is too old, or that may drop keys when its memory is full."""
    for refusal in (why_too_old(info, address), why_dropping(info, address)):
        if refusal is not None:
            raise EngineError(refusal)


def why_too_old(info: Mapping[str, str], address: RedisAddress) -> str | None:
    version = info.get("redis_version", "0")
    if version_numbers(version) >= OLDEST_VERSION:
        return None
    return (
        f"windlass needs Redis 6.2 or newer, or Valkey; {address} runs {version}. "
        "Upgrade the server, or give another one in the url."
    )


def why_dropping(info: Mapping[str, str], address: RedisAddress) -> str | None:
    """Say why a policy that drops any key is unfit. Policies for keys with a TTL are fit."""
    if not drops_keys(info) or address.allow_eviction:
        return None
    return (
        f"The Redis server at {address} drops keys when its memory is full (maxmemory-policy "
        f"{eviction_policy(info)}): jobs would be lost without a trace. Set maxmemory-policy "
        "noeviction, or accept the loss with ?allow_eviction=1 in the url."
    )


def drops_keys(info: Mapping[str, str]) -> bool:
    return eviction_policy(info).startswith("allkeys")


def eviction_policy(info: Mapping[str, str]) -> str:
    return info.get("maxmemory_policy", "unknown")


def has_append_only_file(info: Mapping[str, str]) -> bool:
    return info.get("aof_enabled") == "1"


def describe_persistence(info: Mapping[str, str], fsync: str | None) -> str:
    """Describe what a crash loses; `fsync` is the server's setting, None if it may not be read."""
    if not has_append_only_file(info):
        return (
            "snapshots at most: jobs confirmed since the last snapshot are lost when the server "
            "stops for any reason"
        )
    return f"append-only file, {_SYNCED.get(fsync or '', _SYNCED_SOMEHOW)}"


def check_stored(stored: Sequence[Any], address: RedisAddress) -> None:
    """Check the format and the number of partitions that the first use fixed."""
    stored_format, partitions = stored[:2]
    if stored_format > FORMAT:
        raise FormatTooNew(
            f"The jobs in {address} were stored by a newer windlass (format {stored_format}; this "
            f"one knows up to {FORMAT}). Upgrade windlass here, or give another namespace."
        )
    if stored_format < FORMAT:
        raise EngineError(
            f"The jobs in {address} were stored by an older windlass (format {stored_format}; this "
            f"one stores format {FORMAT}). Run `windlass migrate`, which moves them."
        )
    if partitions != address.partitions:
        raise EngineError(
            f"The namespace {address.namespace} at {address} was set up with "
            f"{count(partitions, 'partition')}, and the url asks for {address.partitions}. The "
            f"number cannot be changed later: write ?partitions={partitions} in the url, or choose "
            "another namespace."
        )


class PartitionIds:
    """Ids of the partitions of a server, made at their first use. Changed ids mean that the stored
    data is lost."""

    def __init__(self) -> None:
        self._known: list[bytes] = []
        self._has_unreported_loss = False

    def note(self, found: list[bytes]) -> None:
        """Remember the current ids."""
        self._has_unreported_loss |= bool(self._known) and self._known != found
        self._known = found

    def have_changed(self, found: Sequence[bytes | None]) -> bool:
        return bool(self._known) and self._known != found

    def take_data_loss(self) -> bool:
        """Return whether data was lost; each loss is reported once."""
        is_untold, self._has_unreported_loss = self._has_unreported_loss, False
        return is_untold


def version_numbers(version: str) -> tuple[int, ...]:
    parts = version.split(".")[:3]
    return tuple(int(part) if part.isdecimal() else 0 for part in parts)


#: appendfsync setting -> which data survives a crash
_SYNCED: Final = {
    "always": (
        "synced before every reply (appendfsync always): confirmed jobs survive a crash of the "
        "server and a power failure"
    ),
    "everysec": (
        "synced every second (appendfsync everysec): up to about 2 s of confirmed jobs are lost "
        "when the power fails, and when the server crashes while its disk is slow"
    ),
    "no": (
        "synced by the operating system (appendfsync no): jobs confirmed in the last 30 s or so "
        "are lost when the power fails"
    ),
}
_SYNCED_SOMEHOW: Final = (
    "appendfsync unknown, because this user may not ask for it: with always, no confirmed job is "
    "lost; with everysec, up to about 2 s of them when the power fails"
)
