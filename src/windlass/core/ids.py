"""Names that nobody hands out centrally: job ids, nonces and session names.

A job id has 26 characters of lower-case Crockford base32, which sort as they were made:

    01jd3v7k2q 0a 9f2m4x8k1c7q3z
    time in ms | partition, 0 to 1023 | 70 random bits

What follows from something else, as an occurrence follows from its schedule, has a digest of that
in place of the random bits: whoever derives it, and however often, it is the same job.

Any node finds a job's partition from its id alone. The time in it is only a hint of when the job
was made: the order inside a queue is the engine's.
"""

from __future__ import annotations

import os
import re
from typing import Final

from windlass.core.digest import blake2b

#: One more than the highest partition an id can carry.
PARTITIONS: Final = 1024
#: The longest id, in characters; ids that callers choose are held to it as well.
MAX_ID_LENGTH: Final = 64

_DIGITS: Final = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS: Final = tuple(high + low for high in _DIGITS for low in _DIGITS)
#: Five bits of every random byte become a digit; 256 is a multiple of 32, so all are as likely.
_NOISE: Final = (_DIGITS * 8).encode("ascii")
_VALUES: Final = {digit: value for value, digit in enumerate(_DIGITS)}
_TIME_BITS: Final = 50
_GENERATED: Final = re.compile(f"[{_DIGITS}]{{26}}")
_ALLOWED: Final = rf"[A-Za-z0-9_-][A-Za-z0-9_.~-]{{0,{MAX_ID_LENGTH - 1}}}"
_UNSAFE_IN_HOST: Final = r"[^A-Za-z0-9-]+"


def new_id(wall_ms: int, partition: int = 0) -> str:
    """A fresh job id. The random part is read from the system each time, so a fork is harmless."""
    if wall_ms >> _TIME_BITS or not 0 <= partition < PARTITIONS:
        raise _unfit(wall_ms, partition)
    pairs = _PAIRS
    noise = os.urandom(14).translate(_NOISE).decode("ascii")
    # Written out pair by pair: this runs for every job that is enqueued.
    return (
        f"{pairs[wall_ms >> 40]}{pairs[wall_ms >> 30 & 1023]}{pairs[wall_ms >> 20 & 1023]}"
        f"{pairs[wall_ms >> 10 & 1023]}{pairs[wall_ms & 1023]}{pairs[partition]}{noise}"
    )


def derived_id(wall_ms: int, origin: str, partition: int = 0) -> str:
    """The id of the job that follows from `origin` at `wall_ms`: always the same one."""
    if wall_ms >> _TIME_BITS or not 0 <= partition < PARTITIONS:
        raise _unfit(wall_ms, partition)
    return f"{_digits(wall_ms, 10)}{_PAIRS[partition]}{derived_digits(wall_ms, origin)}"


def derived_digits(wall_ms: int, origin: str) -> str:
    """What stands in a derived id for the random part: 70 bits of a digest of all the rest, save
    for the partition, which may be chosen later."""
    digest = blake2b(f"{wall_ms}:{origin}".encode(), digest_size=9).digest()
    return _digits(int.from_bytes(digest) >> 2, 14)


def moved_id(job_id: str, partition: int) -> str:
    """An id from `new_id`, in another partition."""
    return f"{_generated(job_id)[:10]}{_PAIRS[partition]}{job_id[12:]}"


def partition_of(job_id: str) -> int:
    """The partition that an id from `new_id` carries."""
    return _number(_generated(job_id)[10:12])


def created_ms_of(job_id: str) -> int:
    """The time that an id from `new_id` carries, in milliseconds since 1970."""
    return _number(_generated(job_id)[:10])


def check_id(text: str) -> str:
    """The id itself if it may be stored and put into a URL; otherwise a ValueError."""
    if not re.fullmatch(_ALLOWED, text):
        raise ValueError(
            f"an id must be 1 to {MAX_ID_LENGTH} characters out of letters, digits, '-', '_', '.' "
            f"and '~', and must not start with '.' or '~'; found {text[:80]!r} "
            f"({len(text)} characters)"
        )
    return text


def new_nonce(number: int) -> str:
    """A token that nobody can guess: 8 hexadecimal characters of the number of the claim in its
    session, so that later ones sort after earlier ones, and 32 of randomness (128 bits)."""
    return f"{number:08x}{os.urandom(16).hex()}"


def new_session(host: str, pid: int) -> str:
    """The name of one start of one child: readable, and never the same twice."""
    return f"{session_prefix(host)}{pid}.{os.urandom(8).hex()}"


def session_prefix(host: str) -> str:
    """With what the names of all sessions of a host begin; those of other hosts may, too."""
    safe_host = re.sub(_UNSAFE_IN_HOST, "-", host)[:24].strip("-") or "host"
    return f"{safe_host}."


def _unfit(wall_ms: int, partition: int) -> ValueError:
    return ValueError(
        f"an id carries a time of 0 to {(1 << _TIME_BITS) - 1} ms and a partition of 0 to "
        f"{PARTITIONS - 1}; found {wall_ms} and {partition}"
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
