"""The envelope of a job: its stored bytes, and that nothing but a DecodeError comes of bad ones."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.serialization.envelope import (
    TAIL,
    VERSION,
    Envelope,
    Overrides,
    head_of,
    pack,
    unpack,
)
from windlass.errors import DecodeError, NewerFormat

GOLDEN = Path(__file__).parent / "golden"
CALL = b'{"args":["cat.jpg",[100,200]]}'


def envelope(call: bytes = CALL, task: str = "media.resize", **fields: Any) -> Envelope:
    return Envelope(task=task, call=msgspec.Raw(call), **fields)


#: Each has a file in golden/, which must stay readable forever.
SHAPES = {
    "plain": envelope(),
    "no-arguments": envelope(b"{}", task="clean_up"),
    "headers": envelope(headers={"traceparent": "00-ab-cd-01", "tenant": "木"}),
    "options": envelope(
        options=Overrides(
            retry={"max_attempts": 3, "delays_ms": [1_000, 2_000]}, result_ttl_ms=60_000
        )
    ),
    "timeout": envelope(options=Overrides(timeout_ms=30_000)),
    "everything": envelope(
        b'{"args":["cat.jpg"],"kwargs":{"widths":[100]}}',
        headers={"a": "b"},
        options=Overrides(result_ttl_ms=0),
    ),
}


def stored(name: str) -> bytes:
    return (GOLDEN / f"envelope-{name}.json").read_bytes().removesuffix(b"\n")


@pytest.mark.parametrize("name", SHAPES)
def test_writes_the_stored_format(name: str) -> None:
    assert pack(SHAPES[name]) == stored(name)


@pytest.mark.parametrize("name", SHAPES)
def test_reads_the_stored_format(name: str) -> None:
    assert parts(unpack(stored(name))) == parts(SHAPES[name])


@pytest.mark.parametrize("task", ["media.resize", 'a "quoted" name', "back\\slash", "木", "null}"])
def test_a_call_that_nothing_follows_stands_between_head_and_tail(task: str) -> None:
    assert head_of(task) + CALL + TAIL == pack(envelope(task=task))


def test_every_golden_file_is_read() -> None:
    assert {path.stem for path in GOLDEN.glob("envelope-*")} == {f"envelope-{n}" for n in SHAPES}


def parts(value: Envelope) -> tuple[Any, ...]:
    return (value.version, value.task, bytes(value.call), value.headers, value.options)


texts = st.text(st.characters(exclude_categories=["Cs"]))


@given(
    task=texts,
    headers=st.dictionaries(texts, texts),
    options=st.builds(
        Overrides,
        retry=st.none() | st.dictionaries(texts, st.integers() | st.lists(st.integers())),
        result_ttl_ms=st.none() | st.integers(0, 2**60),
        timeout_ms=st.none() | st.integers(0, 2**60),
    ),
)
def test_comes_back_as_it_went_in(task: str, headers: dict[str, str], options: Overrides) -> None:
    value = envelope(task=task, headers=headers, options=options)
    assert parts(unpack(pack(value))) == parts(value)


def test_always_says_its_version() -> None:
    assert pack(envelope()).startswith(b'{"version":1,')


def test_leaves_out_what_the_caller_did_not_choose() -> None:
    chosen_nothing = envelope(headers={}, options=Overrides(retry=None, result_ttl_ms=None))
    assert pack(chosen_nothing) == pack(envelope())


@pytest.mark.parametrize(
    "later",
    [
        b'{"version":2,"task":"a","call":{}}',
        b'{"version":2,"job":["of","another","shape"]}',
        b'{"version":2,"task":7}',
    ],
)
def test_refuses_a_newer_format_with_a_sentence(later: bytes) -> None:
    with pytest.raises(
        NewerFormat,
        match=r"newer windlass, in format 2; this one reads up to 1: upgrade the worker",
    ) as caught:
        unpack(later)
    assert (caught.value.found, caught.value.supported) == (2, VERSION)


def test_ignores_a_field_that_it_does_not_know() -> None:
    known = unpack(b'{"version":1,"task":"a","call":{},"colour":"red","options":{"speed":9}}')
    assert parts(known) == (1, "a", b"{}", {}, Overrides())


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b'{"version":1,"task":"a"}',
        b'{"version":1,"call":{}}',
        b'{"version":1,"task":7,"call":{}}',
        b'{"version":"1","task":"a","call":{}}',
        b'{"version":true,"task":"a","call":{}}',
        b'{"version":0,"task":"a","call":{}}',
        b'{"version":-1,"task":"a","call":{}}',
        b'{"version":1,"task":"\xff","call":{}}',
        b'{"version":1,"task":"a","call":{}',
        b'{"version":1,"task":"a","call":tru}',
        b'{"version":1,"task":"a","call":{},"headers":{"a":1}}',
        b'{"version":1,"task":"a","call":{},"options":{"result_ttl_ms":1.5}}',
        b'{"version":' + b"9" * 1_000_000 + b',"task":"a","call":{}}',
        b'{"version":1,"task":"a","call":' + b"[" * 10_000_000,
        b'{"version":1,"task":"a","call":' + b"[" * 100 + b"]" * 100 + b"}",
        b"cposix\nsystem\n(S'exit 1'\ntR.",
    ],
)
def test_bad_bytes_are_a_decode_error(bad: bytes) -> None:
    with pytest.raises(DecodeError, match="the stored job"):
        unpack(bad)


def assert_read_or_refused(packed: bytes) -> None:
    try:
        unpack(packed)
    except DecodeError:
        return


@given(st.binary(max_size=200))
def test_random_bytes_are_read_or_refused(packed: bytes) -> None:
    assert_read_or_refused(packed)


@given(st.sampled_from(sorted(SHAPES)), st.data())
def test_mutated_envelopes_are_read_or_refused(name: str, data: st.DataObject) -> None:
    packed = bytearray(stored(name))
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(packed)))
        length = data.draw(st.integers(0, 3))
        packed[start : start + length] = data.draw(st.binary(max_size=3))
    assert_read_or_refused(bytes(packed))
