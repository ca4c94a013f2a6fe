"""Stored bytes that are not plain JSON: golden files, which must stay readable forever."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from windlass.client.payloads import Packing
from windlass.core.failures import FailureText
from windlass.core.serialization.encryption import Keyring
from windlass.core.serialization.envelope import Envelope, Overrides

#: In hexadecimal, by name.
GOLDEN = Path(__file__).parent.parent / "core" / "serialization" / "golden" / "frames.json"
SECRET = "the secret of the golden files, 32"
PACKINGS = {
    "msgpack": Packing("msgpack", Keyring([SECRET])),
    "pickle": Packing("pickle", Keyring([SECRET])),
    "json-encrypted": Packing("json", Keyring([SECRET]), encrypts=True),
    "msgpack-encrypted": Packing("msgpack", Keyring([SECRET]), encrypts=True),
    "pickle-encrypted": Packing("pickle", Keyring([SECRET]), encrypts=True),
}
CALLS = {
    "json": b'{"args":["cat.jpg",[100]]}',
    "msgpack": bytes.fromhex("81a46172677392a76361742e6a70679164"),
    "pickle": bytes.fromhex("80059516000000000000008c076361742e6a7067945d944b646186947d9486942e"),
}
TEXT = FailureText("ValueError", "no such cat", "Traceback ...")


def stored() -> dict[str, str]:
    return msgspec.json.decode(GOLDEN.read_bytes(), type=dict[str, str])


def envelope(name: str) -> Envelope:
    codec = name.partition("-")[0]
    return Envelope(
        task="media.resize",
        call=msgspec.Raw(CALLS[codec]),
        headers={"tenant": "木"},
        options=Overrides(timeout_ms=30_000),
        codec=codec,
    )


def parts(value: Envelope) -> tuple[object, ...]:
    return (value.task, bytes(value.call), value.headers, value.options, value.codec)


def test_every_shape_is_stored() -> None:
    kinds = {f"{kind}-{name}" for kind in ("call", "result") for name in PACKINGS}
    assert set(stored()) == kinds | {"failure-json-encrypted"}


@pytest.mark.parametrize("name", PACKINGS)
def test_calls_are_written_and_read(name: str) -> None:
    packing, golden = PACKINGS[name], bytes.fromhex(stored()[f"call-{name}"])
    assert packing.pack_call(envelope(name), repeatable=True) == golden
    assert parts(packing.unpack_call(golden, "media.resize")) == parts(envelope(name))


@pytest.mark.parametrize("name", PACKINGS)
def test_results_are_read(name: str) -> None:
    packing, golden = PACKINGS[name], bytes.fromhex(stored()[f"result-{name}"])
    codec = name.partition("-")[0]
    assert packing.unpack_result(golden, "media.resize", "job-1") == (codec, CALLS[codec])
    if not name.endswith("-encrypted"):  # those are different each time
        assert packing.pack_result(codec, CALLS[codec], "media.resize", "job-1") == golden


def test_failures_are_read() -> None:
    golden = bytes.fromhex(stored()["failure-json-encrypted"])
    packing = PACKINGS["json-encrypted"]
    sealed = FailureText.unpack(golden).sealed
    assert isinstance(sealed, str)
    opened = packing.open_failure(FailureText.unpack(golden), "media.resize", "job-1")
    assert opened == TEXT
