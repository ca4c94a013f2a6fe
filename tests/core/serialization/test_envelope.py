"""The envelope of a job: its stored bytes, and that nothing but a DecodeError comes of bad ones."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.serialization.envelope import VERSION, Envelope, Overrides, pack, unpack
from windlass.errors import DecodeError, NewerFormat

GOLDEN = Path(__file__).parent / "golden"
CALL = b'{"args":["cat.jpg",[100,200]]}'
TASK = "media.resize"


def envelope(call: bytes = CALL, task: str = TASK, **fields: Any) -> Envelope:
    return Envelope(task=task, call=msgspec.Raw(call), **fields)


#: Each has a file in golden/, which must stay readable forever.
SHAPES = {
    "bare": envelope(),
    "bare-keywords": envelope(b'{"kwargs":{"path":"cat.jpg"}}'),
    "bare-no-arguments": envelope(b"{}"),
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


#: Written before calls were stored bare.
OLD_SHAPES = {"plain": envelope(), "no-arguments": envelope(b"{}", task="clean_up")}


def stored(name: str) -> bytes:
    return (GOLDEN / f"envelope-{name}.json").read_bytes().removesuffix(b"\n")


@pytest.mark.parametrize("name", SHAPES)
def test_writes_the_stored_format(name: str) -> None:
    assert pack(SHAPES[name]) == stored(name)


@pytest.mark.parametrize("name", [*SHAPES, *OLD_SHAPES])
def test_reads_the_stored_format(name: str) -> None:
    assert parts(unpack(stored(name), TASK)) == parts({**SHAPES, **OLD_SHAPES}[name])


def test_every_golden_file_is_read() -> None:
    known = {f"envelope-{name}" for name in (*SHAPES, *OLD_SHAPES)}
    assert {path.stem for path in GOLDEN.glob("envelope-*")} == known


def test_a_bare_call_belongs_to_the_task_of_its_record() -> None:
    assert unpack(CALL, "other").task == "other"
    assert unpack(stored("plain"), "other").task == TASK


def test_only_the_first_key_makes_a_bare_call() -> None:
    """Bytes that no codec writes keep their envelope, so that both forms stay distinct."""
    for call in (b"null", b'{ "args":[1]}', b'{"version":1}', b'{"task":1,"call":{}}'):
        assert pack(envelope(call)).startswith(b'{"version":1,"task":')
        assert bytes(unpack(pack(envelope(call)), "other").call) == call


@given(
    st.sampled_from([Overrides(timeout_ms=1), Overrides()]),
    st.sampled_from([{}, {"a": "b"}]),
    st.sampled_from([CALL, b"{}", b'{"kwargs":{"version":1}}']),
)
def test_a_call_is_bare_if_nothing_goes_with_it(
    options: Overrides, headers: dict[str, str], call: bytes
) -> None:
    packed = pack(envelope(call, headers=headers, options=options))
    assert (packed == call) == (options == Overrides() and not headers)
    assert packed.startswith(b'{"version":') == (packed != call)


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
    assert parts(unpack(pack(value), task)) == parts(value)


def test_an_envelope_says_its_version() -> None:
    assert pack(envelope(headers={"a": "b"})).startswith(b'{"version":1,')


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
        unpack(later, TASK)
    assert (caught.value.found, caught.value.supported) == (2, VERSION)


def test_ignores_a_field_that_it_does_not_know() -> None:
    stored = b'{"version":1,"task":"a","call":{},"colour":"red","options":{"speed":9}}'
    known = unpack(stored, TASK)
    assert parts(known) == (1, "a", b"{}", {}, Overrides())


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"null",
        b"[]",
        b'{"args":[1}',
        b'{"kwargs":{"a":1}',
        b'{"args":[1]}{}',
        b'{"args":' + b"[" * 100 + b"]" * 100 + b"}",
        b'{"args":' + b"[" * 10_000_000,
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
        unpack(bad, TASK)


def assert_read_or_refused(packed: bytes) -> None:
    try:
        unpack(packed, TASK)
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
