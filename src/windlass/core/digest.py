"""The digest by which calls, and ids that follow from something, are told apart: BLAKE2b.

It is taken from where `hashlib` has it from: that one loads OpenSSL too, which takes as long as a
dozen modules of windlass. To import it only where it is needed would not do: a fork in the midst of
that import, which any enqueue with a key may begin, leaves a child that waits for ever.
"""

try:
    from _blake2 import blake2b
except ImportError:  # a Python that was built otherwise
    from hashlib import blake2b

__all__ = ["blake2b"]
