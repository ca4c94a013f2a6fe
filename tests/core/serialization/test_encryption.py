"""Signatures, encryption and the replacement of secrets."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.core.serialization.encryption import Keyring
from windlass.core.serialization.frame import Seal
from windlass.errors import DecodeError, MissingDecoder

OLD, NEW = "old-" + "o" * 40, "new-" + "n" * 40
SEALS = [Seal.SIGNED, Seal.ENCRYPTED]


def reopen(ring: Keyring, seal: Seal, sealed: bytes, bound: bytes = b"here") -> bytes:
    return ring.open(seal, ring.writing.name, sealed, bound)


@pytest.mark.parametrize("seal", SEALS)
@settings(max_examples=30)
@given(body=st.binary(), bound=st.binary())
def test_what_was_sealed_opens(seal: Seal, body: bytes, bound: bytes) -> None:
    ring = Keyring([NEW])
    assert reopen(ring, seal, ring.seal(seal, body, bound), bound) == body


@pytest.mark.parametrize("seal", SEALS)
def test_every_bit_counts(seal: Seal) -> None:
    ring = Keyring([NEW])
    sealed = ring.seal(seal, b'{"args":[1]}', b"here")
    for place in range(len(sealed) * 8):
        changed = bytearray(sealed)
        changed[place // 8] ^= 1 << place % 8
        with pytest.raises(DecodeError, match="were changed"):
            reopen(ring, seal, bytes(changed))
    for size in range(len(sealed)):
        with pytest.raises(DecodeError):
            reopen(ring, seal, sealed[:size])


@pytest.mark.parametrize("seal", SEALS)
def test_it_opens_only_where_it_belongs(seal: Seal) -> None:
    ring = Keyring([NEW])
    with pytest.raises(DecodeError, match="another task or job"):
        reopen(ring, seal, ring.seal(seal, b"body", b"here"), b"there")


def test_body_and_owner_cannot_be_shifted() -> None:
    ring = Keyring([NEW])
    sealed = ring.seal(Seal.SIGNED, b"body", b"owner")
    tag = sealed[:32]
    with pytest.raises(DecodeError):
        reopen(ring, Seal.SIGNED, tag + b"rbody", b"owne")


@pytest.mark.parametrize("seal", SEALS)
def test_a_secret_is_replaced(seal: Seal) -> None:
    before, between, after = Keyring([OLD]), Keyring([NEW, OLD]), Keyring([NEW])
    old, new = before.seal(seal, b"old", b""), between.seal(seal, b"new", b"")
    assert between.open(seal, before.writing.name, old, b"") == b"old"
    assert between.open(seal, after.writing.name, new, b"") == b"new"
    assert after.open(seal, after.writing.name, new, b"") == b"new"
    with pytest.raises(MissingDecoder, match=f"with key {before.writing.name}, which this app"):
        after.open(seal, before.writing.name, old, b"")
    assert [key.name for key in between.reading] == [before.writing.name]


def test_the_name_of_another_key_does_not_help() -> None:
    ring = Keyring([NEW, OLD])
    for seal in SEALS:
        with pytest.raises(DecodeError, match="were changed"):
            ring.open(seal, Keyring([OLD]).writing.name, ring.seal(seal, b"body", b""), b"")


def test_nonces_are_random_unless_they_must_repeat() -> None:
    ring = Keyring([NEW])
    sealed = {ring.seal(Seal.ENCRYPTED, b"body", b"")[:12] for _ in range(1_000)}
    assert len(sealed) == 1_000
    repeated = {ring.seal(Seal.ENCRYPTED, b"body", b"", repeatable=True) for _ in range(3)}
    assert len(repeated) == 1
    [same] = repeated
    others = [(b"body", b"x"), (b"bodz", b"")]
    nonces = {ring.seal(Seal.ENCRYPTED, *other, repeatable=True)[:12] for other in others}
    assert len({same[:12], *nonces}) == 3
    assert reopen(ring, Seal.ENCRYPTED, same, b"") == b"body"


def test_purposes_have_keys_of_their_own() -> None:
    key = Keyring([NEW]).writing
    derived = {key._signing, key._encrypting, key._digesting}
    assert len(derived) == 3
    assert not any(part.hex().startswith(key.name) for part in derived)
    assert NEW not in repr(key)


def test_a_seal_that_is_not_known_is_left_to_others() -> None:
    ring = Keyring([NEW])
    with pytest.raises(MissingDecoder, match="rot13"):
        ring.open("rot13", ring.writing.name, b"body", b"")
