"""Job ids, nonces and session names, generated without a central service.

A job id has 26 characters of lower-case Crockford base32, and sorts by creation time:

    01jd3v7k2q 0a 9f2m4x8k1c7q3z
    time in ms | partition, 0 to 1023 | 70 random bits

A derived id has a digest of its origin in place of the random bits, so that every worker derives
the same id. The origin is, for example, an occurrence of a schedule.

The id contains the partition of a job. The time in an id is only a hint: the engine decides the
order in a queue.
"""

from __future__ import annotations

import os
import re
from typing import Final

# `hashlib` also loads OpenSSL, which takes as long as a dozen modules of windlass. A lazy import is
# no alternative: any enqueue with a key may start it, and a fork during the import leaves a process
# that waits forever for the import lock.
try:
    from _blake2 import blake2b as blake2b
except ImportError:  # a Python built without it
    from hashlib import blake2b as blake2b

#: The number of partitions that an id can name.
PARTITIONS: Final = 1024
#: The longest id, in characters, including ids that callers choose.
MAX_ID_LENGTH: Final = 64

_DIGITS: Final = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS: Final = tuple(high + low for high in _DIGITS for low in _DIGITS)
#: Five bits of every random byte become a digit. 256 is a multiple of 32, so all digits are equally
#: likely.
_NOISE: Final = (_DIGITS * 8).encode("ascii")
_VALUES: Final = {digit: value for value, digit in enumerate(_DIGITS)}
_TIME_BITS: Final = 50
_RANDOM_DIGITS: Final = 14
_GENERATED: Final = re.compile(f"[{_DIGITS}]{{26}}")
_ALLOWED: Final = rf"[A-Za-z0-9_-][A-Za-z0-9_.~-]{{0,{MAX_ID_LENGTH - 1}}}"
#: The characters of a release. Neither they nor a host contain the mark.
RELEASE: Final = r"[A-Za-z0-9._+-]{1,64}"
_RELEASE_MARK: Final = "@"
_UNSAFE_IN_HOST: Final = r"[^A-Za-z0-9-]+"


#: The namespace of the version 5 UUIDs that `outside_key` makes.
OUTSIDE_KEYS: Final = "5b0c6b1e-2f0f-4a5c-9d5e-6f6b6c1d7a34"


def outside_key(job_id: str) -> str:
    """Return the idempotency key of a job for calls of other services."""
    from uuid import UUID, uuid5  # loads OpenSSL

    return str(uuid5(UUID(OUTSIDE_KEYS), job_id))


def new_id(wall_ms: int, partition: int = 0) -> str:
    """Make a job id. The random part comes from the operating system, so a fork is safe."""
    noise = os.urandom(_RANDOM_DIGITS).translate(_NOISE)
    return _head(wall_ms, partition) + noise.decode("ascii")


def new_ids(number: int, wall_ms: int, partition: int = 0) -> list[str]:
    """Make this many job ids, with one call of the operating system."""
    head = _head(wall_ms, partition)
    noise = os.urandom(_RANDOM_DIGITS * number).translate(_NOISE).decode("ascii")
    return [head + noise[at : at + _RANDOM_DIGITS] for at in range(0, len(noise), _RANDOM_DIGITS)]


def random_digits(number: int) -> str:
    """Make this many random digits of lower-case base32, each with 5 bits."""
    return os.urandom(number).translate(_NOISE).decode("ascii")


def derived_id(wall_ms: int, origin: str, partition: int = 0) -> str:
    """Derive a job id from `origin` and `wall_ms`: the same arguments give the same id."""
    return f"{_head(wall_ms, partition)}{derived_digits(wall_ms, origin)}"


def derived_digits(wall_ms: int, origin: str) -> str:
    """The digest part of a derived id: 70 bits over time and origin, without the partition, which
    may be chosen later."""
    digest = blake2b(f"{wall_ms}:{origin}".encode(), digest_size=9).digest()
    return _digits(int.from_bytes(digest) >> 2, _RANDOM_DIGITS)


def moved_id(job_id: str, partition: int) -> str:
    """Replace the partition in an id from `new_id`."""
    return f"{_generated(job_id)[:10]}{_PAIRS[partition]}{job_id[12:]}"


def partition_of(job_id: str) -> int:
    """The partition in an id from `new_id`."""
    return _number(_generated(job_id)[10:12])


def created_ms_of(job_id: str) -> int:
    """The creation time in an id from `new_id`, in milliseconds since 1970."""
    return _number(_generated(job_id)[:10])


def check_id(text: str) -> str:
    """Raise `ValueError` if an id cannot be stored or put into a URL, and `TypeError` if it is not
    text."""
    if not isinstance(text, str):
        raise TypeError(f"an id must be text, found {text!r}")
    if not re.fullmatch(_ALLOWED, text):
        raise ValueError(
            f"an id must be 1 to {MAX_ID_LENGTH} characters out of letters, digits, '-', '_', '.' "
            f"and '~', and must not start with '.' or '~'; found {text[:80]!r} "
            f"({len(text)} characters)"
        )
    return text


def new_nonce(number: int) -> str:
    """Make an unguessable nonce: 8 hexadecimal characters for the number of the claim in its
    session, so that nonces sort by time, then 32 random ones (128 bits)."""
    return f"{number:08x}{os.urandom(16).hex()}"


def new_session(host: str, pid: int, release: str = "") -> str:
    """Make a readable and unique session name, for one start of one child. The name ends in the
    release of the code, if there is one: claims and failures store the session anyway."""
    name = f"{session_prefix(host)}{pid}.{os.urandom(8).hex()}"
    return f"{name}{_RELEASE_MARK}{release}" if release else name


def release_of(session: str | None) -> str | None:
    """The release in the name of a session."""
    return (session or "").partition(_RELEASE_MARK)[2] or None


def session_prefix(host: str) -> str:
    """The prefix of all session names of a host. Another host may have the same prefix."""
    safe_host = re.sub(_UNSAFE_IN_HOST, "-", host)[:24].strip("-") or "host"
    return f"{safe_host}."


def _head(wall_ms: int, partition: int) -> str:
    """The part of an id before its random digits."""
    if wall_ms >> _TIME_BITS or not 0 <= partition < PARTITIONS:
        raise ValueError(
            f"an id carries a time of 0 to {(1 << _TIME_BITS) - 1} ms and a partition of 0 to "
            f"{PARTITIONS - 1}; found {wall_ms} and {partition}"
        )
    pairs = _PAIRS
    # Unrolled for speed: this runs for every single enqueue.
    return (
        f"{pairs[wall_ms >> 40]}{pairs[wall_ms >> 30 & 1023]}{pairs[wall_ms >> 20 & 1023]}"
        f"{pairs[wall_ms >> 10 & 1023]}{pairs[wall_ms & 1023]}{pairs[partition]}"
    )


def _generated(job_id: str) -> str:
    if not _GENERATED.fullmatch(job_id):
        raise ValueError(
            f"expected a job id of 26 characters as windlass makes them, found {job_id[:80]!r}"
        )
    return job_id


def _digits(number: int, count: int) -> str:
    return "".join(_DIGITS[number >> 5 * place & 31] for place in reversed(range(count)))


def _number(digits: str) -> int:
    number = 0
    for digit in digits:
        number = number * 32 + _VALUES[digit]
    return number
