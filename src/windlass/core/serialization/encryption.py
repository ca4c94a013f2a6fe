"""Signatures, encryption and keyed digests from the secrets of an app.

1. A `Key` derives three keys from one secret by HKDF with SHA-256, one for each purpose, and a name
   that identifies the secret without revealing it.
2. A `Keyring` holds the secrets of an app. The first secret writes and all secrets read: to replace
   a secret, put the new one before it.
3. `seal` signs or encrypts bytes together with their owner, a task or a job. `open` refuses bytes
   that were changed or moved to another owner.

Signatures are HMAC with SHA-256, compared in constant time. Encryption is ChaCha20-Poly1305 of the
package `cryptography`, imported on use, with a random nonce of 96 bits. Where the same value must
give the same bytes (a schedule that is declared again), the nonce is a keyed digest of the
plaintext, so a nonce repeats only with the whole message.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from windlass.core.serialization.frame import Seal, describe_sealed, why_not_encrypting
from windlass.errors import DecodeError, MissingDecoder

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

_SALT: Final = b"windlass"
_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 32


class Key:
    """The keys derived from one secret."""

    __slots__ = ("_cipher", "_digesting", "_encrypting", "_signing", "name")

    def __init__(self, secret: str) -> None:
        extracted = hmac.digest(_SALT, secret.encode(), "sha256")
        self.name = _expand(extracted, b"name").hex()[:8]
        self._signing = _expand(extracted, b"signing")
        self._encrypting = _expand(extracted, b"encryption")
        self._digesting = _expand(extracted, b"digests")
        self._cipher: ChaCha20Poly1305 | None = None

    def __repr__(self) -> str:
        return f"<Key {self.name}>"

    def sign(self, body: bytes, bound: bytes) -> bytes:
        return hmac.digest(self._signing, _joined(bound, body), "sha256")

    def digest(self, data: bytes) -> str:
        """A digest of 32 hexadecimal characters. Computing it needs the secret."""
        return hashlib.blake2b(data, digest_size=16, key=self._digesting).hexdigest()

    def nonce_for(self, body: bytes, bound: bytes) -> bytes:
        return hmac.digest(self._digesting, _joined(bound, body), "sha256")[:_NONCE_BYTES]

    @property
    def cipher(self) -> ChaCha20Poly1305:
        if self._cipher is None:
            from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

            self._cipher = ChaCha20Poly1305(self._encrypting)
        return self._cipher


class Keyring:
    """The secrets of an app: the first secret writes, all secrets read."""

    def __init__(self, secrets: Sequence[str]) -> None:
        self._keys = {key.name: key for key in map(Key, secrets)}
        self._writing = next(iter(self._keys.values()))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._keys)

    @property
    def writing(self) -> Key:
        return self._writing

    @property
    def reading(self) -> tuple[Key, ...]:
        """The keys that only read: all except the first."""
        return tuple(self._keys.values())[1:]

    def seal(self, seal: Seal, body: bytes, bound: bytes, *, repeatable: bool = False) -> bytes:
        """Seal the body with the first key, bound to its owner."""
        key = self._writing
        if seal is Seal.SIGNED:
            return key.sign(body, bound) + body
        nonce = key.nonce_for(body, bound) if repeatable else os.urandom(_NONCE_BYTES)
        return nonce + key.cipher.encrypt(nonce, body, bound)

    def open(self, seal: str, name: str, sealed: bytes, bound: bytes) -> bytes:
        """Open a body. Raises `DecodeError` if it was changed, or sealed for another owner."""
        key = self._keys.get(name)
        if key is None:
            raise MissingDecoder(
                f"{describe_sealed(seal, name)}, which this app does not have: give it that secret "
                "too, after its own, with Windlass(secret=[...]) or in WINDLASS_SECRET"
            )
        if seal == Seal.SIGNED:
            return _verified(key, sealed, bound)
        if seal == Seal.ENCRYPTED:
            return _decrypted(key, sealed, bound)
        raise MissingDecoder(f"sealed by a method that this windlass does not know: {seal}")


def _verified(key: Key, sealed: bytes, bound: bytes) -> bytes:
    tag, body = sealed[:_TAG_BYTES], sealed[_TAG_BYTES:]
    if not hmac.compare_digest(tag, key.sign(body, bound)):
        raise DecodeError(_NOT_GENUINE.format("signature", key.name))
    return body


def _decrypted(key: Key, sealed: bytes, bound: bytes) -> bytes:
    missing = why_not_encrypting()
    if missing:
        raise MissingDecoder(missing)
    from cryptography.exceptions import InvalidTag

    nonce, ciphertext = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
    try:
        return key.cipher.decrypt(nonce, ciphertext, bound)
    except (InvalidTag, ValueError):
        raise DecodeError(_NOT_GENUINE.format("seal", key.name)) from None


_NOT_GENUINE: Final = (
    "the {} by key {} is invalid: the stored bytes were changed, or belong to another task or job"
)


def _joined(bound: bytes, body: bytes) -> bytes:
    """Join two byte strings, with a length first, so that no other pair gives the same bytes."""
    return len(bound).to_bytes(8, "big") + bound + body


def _expand(extracted: bytes, purpose: bytes) -> bytes:
    """Derive a key: the second step of HKDF (RFC 5869) for one block."""
    return hmac.digest(extracted, b"windlass " + purpose + b"\x01", "sha256")
