"""msgpack: its stored bytes, that any value comes back the same, and that JSON can stand for it."""

from __future__ import annotations

import math
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from tests.core.serialization.shapes import EXAMPLES, codec_for
from tests.core.serialization.test_codec_types import (
    ANY_VALUE,
    as_written,
    assert_same,
    json_values,
    moments,
)
from windlass.core.serialization.codec import CallCodec, decode_plain
from windlass.core.serialization.wire import MAX_DEPTH, MSGPACK, too_deep_msgpack
from windlass.errors import DecodeError, EncodeError

#: By the names of the examples, in hexadecimal. These bytes must stay readable forever.
GOLDEN = Path(__file__).parent / "golden" / "msgpack.json"
TOO_LARGE = "int-beyond-64-bits"


def msgpack_for(annotation: Any) -> CallCodec:
    def task(value: Any) -> Any: ...

    task.__annotations__ = {"value": annotation, "return": annotation}
    return CallCodec.of(task, skip_first=False, name="task", wire=MSGPACK)


def encode(annotation: Any, value: Any) -> bytes:
    """Values with an int that msgpack cannot hold are left out: they are refused."""
    try:
        return msgpack_for(annotation).encode((value,), {})
    except EncodeError as error:
        if "2**6" not in str(error):
            raise
        reject()


def there_and_back(annotation: Any, value: Any) -> Any:
    (back,), kwargs = msgpack_for(annotation).decode(encode(annotation, value))
    assert kwargs == {}
    return back


# ------------------------------------------------------------------------------------- golden files


def stored() -> dict[str, str]:
    return msgspec.json.decode(GOLDEN.read_bytes(), type=dict[str, str])


def test_every_example_is_stored() -> None:
    assert set(stored()) == set(EXAMPLES) - {TOO_LARGE}


@pytest.mark.parametrize("name", sorted(set(EXAMPLES) - {TOO_LARGE}))
def test_the_stored_form_is_written_and_read(name: str) -> None:
    annotation, value = EXAMPLES[name]
    codec = msgpack_for(annotation)
    assert codec.encode((value,), {}).hex() == stored()[name]
    (read,), _ = codec.decode(bytes.fromhex(stored()[name]))
    assert read == value
    assert type(read) is type(value)


def test_an_int_beyond_64_bits_is_refused() -> None:
    with pytest.raises(EncodeError, match=r"task\(value=...\): cannot be stored as msgpack"):
        msgpack_for(int).encode((2**64,), {})


# ---------------------------------------------------------------------------------------- any value


@pytest.mark.parametrize("name", ANY_VALUE)
@settings(max_examples=20)
@given(data=st.data())
def test_any_value_comes_back_the_same(name: str, data: st.DataObject) -> None:
    annotation, values = ANY_VALUE[name]
    value = data.draw(values)
    assert_same(there_and_back(annotation, value), value)
    codec = msgpack_for(annotation)
    assert_same(codec.decode_result(codec.encode_result(value)), value)


@pytest.mark.parametrize("name", ANY_VALUE)
@settings(max_examples=20)
@given(data=st.data())
def test_the_json_of_a_call_is_that_of_the_other_codec(name: str, data: st.DataObject) -> None:
    annotation, values = ANY_VALUE[name]
    value = data.draw(values)
    json, msgpack = codec_for(annotation), msgpack_for(annotation)
    by_json, by_msgpack = json.encode((value,), {}), encode(annotation, value)
    assert msgpack.plain(by_msgpack) == json.plain(by_json)
    assert msgpack.identity(by_msgpack, None) == json.identity(by_json, None)
    assert msgpack.identity(by_msgpack, ["value"]) == json.identity(by_json, ["value"])


@settings(max_examples=30)
@given(moments)
def test_any_datetime_comes_back_with_its_offset(moment: datetime) -> None:
    assert as_written(there_and_back(datetime, moment)) == as_written(moment)
    [(key, item)] = there_and_back(dict[datetime, list[datetime]], {moment: [moment]}).items()
    assert as_written(key) == as_written(item[0]) == as_written(moment)


# ---------------------------------------------------------------------- what JSON does not carry


@pytest.mark.parametrize(
    "value", [b"\x00\xff", {1: "a", b"k": [2.5]}, datetime(2024, 1, 1, tzinfo=UTC), math.inf]
)
def test_values_of_no_annotation_keep_their_types(value: object) -> None:
    with pytest.raises(EncodeError):
        codec_for(Any).encode((value,), {})
    assert_same(there_and_back(Any, value), value)


def test_numbers_that_are_none_come_back() -> None:
    assert math.isnan(there_and_back(list[float], [math.nan])[0])


def test_calls_that_json_takes_for_one_are_told_apart() -> None:
    codec = msgpack_for(Any)
    values = [None, math.nan, math.inf, {b"a": 1}, {b"b": 1}]
    seen = {codec.identity(codec.encode((value,), {}), None) for value in values}
    assert len(seen) == len(values)


def test_an_offset_is_refused_where_no_annotation_asks_for_it() -> None:
    moment = datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=2)))
    with pytest.raises(EncodeError, match="astimezone"):
        msgpack_for(Any).encode((moment,), {})


# ------------------------------------------------------------------------------------------ depth


def nested(depth: int) -> Any:
    value: Any = 1
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


@pytest.mark.parametrize(("depth", "verdict"), [(MAX_DEPTH, False), (MAX_DEPTH + 1, True)])
def test_depth(depth: int, verdict: bool) -> None:
    # Padding, lest the bytes be too few to be looked at.
    assert too_deep_msgpack(msgspec.msgpack.encode(nested(depth))) is verdict
    wide = msgspec.msgpack.encode([nested(depth - 1), "é" * 100])
    assert too_deep_msgpack(wide) is verdict


def test_what_is_too_deep_is_neither_written_nor_read() -> None:
    with pytest.raises(EncodeError, match="deeper than 64"):
        msgpack_for(Any).encode((nested(MAX_DEPTH + 1),), {})
    bomb = b"\x81\xa4args\x91" + b"\x91" * 500_000 + b"\x01"
    with pytest.raises(DecodeError, match="deeper than 64"):
        msgpack_for(Any).decode(bomb)
    with pytest.raises(DecodeError, match="deeper than 64"):
        decode_plain(b"\x91" * 500_000, "msgpack")


@given(st.binary(max_size=200))
def test_only_a_decode_error_comes_of_bad_bytes(data: bytes) -> None:
    for annotation in (Any, dict[str, datetime]):
        with suppress(DecodeError):
            msgpack_for(annotation).decode(data)


@given(json_values)
def test_plain_data_is_read_without_its_task(value: object) -> None:
    encoded = encode(Any, value)
    assert decode_plain(encoded, "msgpack") == {"args": [value]}
