"""The stored form of a job in the outbox, which workers of other versions read."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass import DecodeError, NewerFormat
from windlass.core.unique import OnConflict, Until
from windlass.engine.contract import NewJob, UniqueKey
from windlass.outbox.record import FORMAT, decode, encode

PLAIN = NewJob("01jd3v7k2q009f2m4x8k1c7q3z", "shop.send", "mail", b'{"args":[1]}')
FULL = NewJob(
    "01jd3v7k2q009f2m4x8k1c7q3z",
    "shop.send",
    "mail:gpu",
    b"\x00\xff",
    -5,
    1_900_000_000_000,
    60_000,
    1_900_000_100_000,
    90_000,
    "signup-42",
    "a1b2",
    UniqueKey(key="k", until=Until.START, period_ms=5, on_conflict=OnConflict.REPLACE),
)
#: As the first version stored them.
STORED = {
    "0184a26964ba30316a643376376b327130303966326d3478386b31633771337aa47461736ba973686f702e73656e64"
    "a57175657565a46d61696ca77061796c6f6164c40c7b2261726773223a5b315d7d": PLAIN,
    "018ca26964ba30316a643376376b327130303966326d3478386b31633771337aa47461736ba973686f702e73656e64"
    "a57175657565a86d61696c3a677075a77061796c6f6164c40200ffa87072696f72697479fbac72756e5f6166746572"
    "5f6d73cf000001ba60d33800a972756e5f696e5f6d73cdea60aa657870697265735f6d73cf000001ba60d4bea0ad65"
    "7870697265735f696e5f6d73ce00015f90af6964656d706f74656e63795f6b6579a97369676e75702d3432ab66696e"
    "6765727072696e74a461316232a6756e6971756584a36b6579a16ba5756e74696ca57374617274a9706572696f645f"
    "6d7305ab6f6e5f636f6e666c696374a77265706c616365": FULL,
}


def test_the_stored_form_stays() -> None:
    for text, job in STORED.items():
        assert encode(job).hex() == text
        assert decode(bytes.fromhex(text)) == job


def test_all_fields_come_back() -> None:
    assert decode(encode(FULL)) == FULL
    assert len(encode(PLAIN)) < 100, "defaults are not stored"


@given(
    st.builds(
        NewJob,
        id=st.text(),
        task=st.text(),
        queue=st.text(),
        payload=st.binary(),
        priority=st.integers(-100, 100),
        run_after_ms=st.none() | st.integers(0, 10**14),
        run_in_ms=st.integers(0, 10**12),
        expires_in_ms=st.none() | st.integers(0, 10**12),
        idempotency_key=st.none() | st.text(),
    )
)
def test_any_job_comes_back(job: NewJob) -> None:
    assert decode(encode(job)) == job


def test_a_field_of_a_newer_windlass_is_left_out() -> None:
    fields = {"id": "1", "task": "t", "queue": "q", "payload": b"", "colour": "red"}
    assert decode(bytes([FORMAT]) + msgspec.msgpack.encode(fields)) == NewJob("1", "t", "q", b"")


def test_a_newer_format_is_left_to_newer_workers() -> None:
    with pytest.raises(
        NewerFormat, match=r"format 2; this one reads up to 1\)\. Upgrade"
    ) as caught:
        decode(b"\x02" + encode(PLAIN)[1:])
    assert (caught.value.found, caught.value.supported) == (2, FORMAT)


@pytest.mark.parametrize("body", [b"", b"\x00", b"\x01", b"\x01\xc1", encode(PLAIN)[:-1]])
def test_damaged_bytes(body: bytes) -> None:
    with pytest.raises(DecodeError, match="damaged"):
        decode(body)
