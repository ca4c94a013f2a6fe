"""The kinds of protection that stored bytes can have: signatures and encryption.

The cryptography itself is in `encryption.py`. An app without a secret does not load it, because it
loads OpenSSL.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from windlass.core.distribution import install_command

#: The shortest secret, in characters.
SHORTEST: Final = 32
HOW_TO_MAKE_ONE: Final = 'python -c "import secrets; print(secrets.token_urlsafe(32))"'


class Seal(StrEnum):
    """The protection of stored bytes."""

    NONE = ""
    SIGNED = "hmac-sha256"
    ENCRYPTED = "chacha20-poly1305"


def describe_sealed(seal: str, name: str) -> str:
    """The description of sealed bytes for a reader without the key."""
    return f"{'signed' if seal == Seal.SIGNED else 'encrypted'} with key {name}"


def why_not_encrypting() -> str:
    """Why this installation cannot encrypt, or ""."""
    try:
        import cryptography.hazmat.primitives.ciphers.aead  # noqa: F401  # only whether it is there
    except ImportError:
        return (
            "encryption needs the package cryptography, which is not installed; install it with: "
            f"{install_command('encryption')}"
        )
    return ""
