"""The digest of calls and of derived ids: BLAKE2b.

It is imported from `_blake2`, the source of `hashlib`: `hashlib` also loads OpenSSL, which takes as
long as a dozen modules of windlass. A lazy import is no alternative: a fork during the import,
which any enqueue with a key may start, leaves a child that waits forever for the import lock.
"""

try:
    from _blake2 import blake2b
except ImportError:  # a Python built without it
    from hashlib import blake2b

__all__ = ["blake2b"]
