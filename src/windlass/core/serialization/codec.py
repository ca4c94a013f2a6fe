"""Calls and results as bytes, rebuilt by annotations.

`CallCodec` is made once from a task's function. It stores a call as the caller made it,

    {"args":[...],"kwargs":{...}}

with keywords in the order of the parameters, and without empty parts and spaces, so that the same
call gives the same bytes in every process. Defaults are not stored: they apply when the function
runs. A result is stored as its JSON alone. In msgpack, calls and results have the same shape.

- `encode` / `decode`: a call. Wrong arguments raise a TypeError as in Python, values that cannot be
  stored an EncodeError, and stored bytes that cannot be decoded a DecodeError.
- `encode_result` / `decode_result`: a return value. Where no annotation gives the type, a result
  has its JSON form: a datetime comes back as text.
- `encode_plain`, `decode_plain`: without the function; only the types of the wire format.
- `plain`: the call in JSON with normalized values, for any codec: the same bytes for calls that
  pass equal values in the same way.
- `identity`: the same bytes for calls that pass equal values in any way.
- `fingerprint`: a digest of a call. `check_size`: refuses large payloads.

`windlass.core.serialization.values` and `windlass.core.serialization.round_trip` document which
values are supported.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import chain, repeat
from typing import Any, Final, Literal, get_args

import msgspec

from windlass.core.ids import blake2b
from windlass.core.serialization.signature import Signature, Slot
from windlass.core.serialization.values import ValueRefused, read_plain
from windlass.core.serialization.wire import JSON, MAX_DEPTH, MSGPACK, Wire, to_json
from windlass.errors import ArgumentMismatch, DecodeError, PayloadTooLarge

CodecName = Literal["json", "msgpack", "pickle"]
CODECS: Final[tuple[CodecName, ...]] = get_args(CodecName)

#: The deepest nesting: an argument is inside the call, and inside its `args` or `kwargs`.
_CALL_DEPTH: Final = MAX_DEPTH + 2
#: A longer call is checked: a decoder refuses numbers of more than 4300 digits.
_SURELY_READABLE: Final = 4096
#: A codec remembers at most this many shapes of calls. More occur only with starred parameters.
_MAX_SHAPES: Final = 128


class _StoredCall(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    args: list[msgspec.Raw] = []
    kwargs: dict[str, msgspec.Raw] = {}


_read_json_call: Final = msgspec.json.Decoder(_StoredCall).decode
_read_msgpack_call: Final = msgspec.msgpack.Decoder(_StoredCall).decode


class CallCodec:
    """Encodes and decodes the calls and the results of one function."""

    def __init__(self, name: str, signature: Signature, wire: Wire = JSON) -> None:
        self._name = name
        self._signature = signature
        self._result = signature.result
        self._too_deep = wire.too_deep
        self._read_call = _read_json_call if wire is JSON else _read_msgpack_call
        self._join = _join if wire is JSON else _join_msgpack
        self._nothing = self._join([], ())  # a call without arguments
        self._write = wire.encode
        #: The shapes of calls for which the types of the arguments prove that they come back, and
        #: whether there is a float, which may be NaN.
        self._proven: dict[tuple[object, ...], bool] = {}
        #: The name of this codec in stored bytes.
        self.mark: CodecName = "json" if wire is JSON else "msgpack"

    @classmethod
    def of(
        cls,
        function: Callable[..., object],
        skip_first: bool,
        *,
        name: str | None = None,
        wire: Wire = JSON,
    ) -> CallCodec:
        """Make the codec of a function. `skip_first` skips the parameter for the context."""
        label = name or str(getattr(function, "__qualname__", type(function).__qualname__))
        slot = Slot if wire is JSON else partial(Slot, wire=wire)
        return cls(label, Signature(label, function, skip_first=skip_first, slot=slot), wire)

    def resolve(self) -> None:
        """Raise an AnnotationError if a call of this function can never be stored."""
        for slot in self._signature.required:
            slot.resolve()

    def encode(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
        """Encode a call. Raises `TypeError` for wrong arguments, or `EncodeError`.

        A call whose types prove that the values come back is encoded in one step. NaN, which JSON
        stores as null, and long numbers are left to the full check."""
        shape: tuple[object, ...] = tuple(map(type, args))
        if kwargs:
            shape = (*shape, *kwargs, *map(type, kwargs.values()))
        try:
            has_float = self._proven.get(shape)
            if has_float is not None:
                call: dict[str, object] = {"args": args} if args else {}
                if kwargs:
                    call["kwargs"] = kwargs
                encoded = self._write(call)
                if len(encoded) <= _SURELY_READABLE and not (has_float and b"null" in encoded):
                    return encoded
        except Exception:  # noqa: BLE001 - raised again below, with the parameter
            pass
        return self._encode_checked(shape, args, kwargs)

    def _encode_checked(
        self, shape: tuple[object, ...], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> bytes:
        """Encode a call, one argument at a time, and check each by a round trip."""
        signature = self._signature
        if not (args or kwargs or signature.required):
            return self._nothing
        mismatch = signature.mismatch(len(args), kwargs)
        if mismatch:
            raise TypeError(mismatch + signature.advice(kwargs))
        encoded = [
            slot.encode(value) for slot, value in zip(signature.positional, args, strict=False)
        ]
        if len(args) > len(encoded):
            extra = _slot(signature.extra_positional)
            others = enumerate(args[len(encoded) :])
            encoded += [extra.encode(value, f"[{index}]") for index, value in others]
        call = self._join(encoded, self._encode_keywords(kwargs) if kwargs else ())
        if len(self._proven) < _MAX_SHAPES and self._is_proven(args, kwargs):
            self._proven[shape] = float in shape
        return call

    def decode(self, encoded: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Decode the arguments of a call. Raises `DecodeError` if the bytes are not a call."""
        call, signature = self._read(encoded), self._signature
        if not (call.args or call.kwargs or signature.required):
            return (), {}
        mismatch = signature.mismatch(len(call.args), call.kwargs)
        if mismatch:
            raise ArgumentMismatch(
                f"{mismatch}; the call was stored for another version of the task", task=self._name
            )
        args = [
            slot.decode(raw) for slot, raw in zip(signature.positional, call.args, strict=False)
        ]
        if len(call.args) > len(args):
            extra = _slot(signature.extra_positional)
            others = enumerate(call.args[len(args) :])
            args += [extra.decode(raw, f"[{index}]") for index, raw in others]
        return tuple(args), self._decode_keywords(call.kwargs) if call.kwargs else {}

    def plain(self, encoded: bytes) -> bytes:
        """Convert an encoded call to JSON with normalized values."""
        return _canonical(self._read_normal(encoded))

    def identity(self, encoded: bytes, names: Sequence[str] | None) -> bytes:
        """The values of an encoded call as bytes, for the named parameters or for all. The same
        whether a value is passed by position, by keyword or as default, and with every codec."""
        call = self._read_normal(encoded)
        signature = self._signature
        names_of_args = [slot.name for slot in signature.positional]
        # A keyword of ** may have the name of a positional-only parameter.
        known = signature.by_keyword
        named = {n if n in known else f"**{n}": value for n, value in call.kwargs.items()}
        passed = {**dict(zip(names_of_args, call.args, strict=False)), **named}
        values = {**signature.plain_defaults, **passed}
        if names is not None:
            return _canonical(
                [[name, values[name]] if name in values else [name] for name in names]
            )
        return _canonical([sorted(values.items()), call.args[len(names_of_args) :]])

    def check_names(self, names: Sequence[str]) -> str:
        """Why a call cannot pass a parameter of one of these names, or ""."""
        known = self._signature.names
        unknown = [name for name in names if name not in known]
        if not unknown:
            return ""
        return f"{self._name} has no parameter {unknown[0]!r}, only {', '.join(known) or 'none'}"

    def misfits(self, count: int, keywords: Collection[str]) -> list[tuple[str, str]]:
        """Every parameter that a call with `count` positional arguments and these keywords misses,
        passes twice or does not have, each with a message."""
        return self._signature.misfits(count, keywords)

    def slot_of(self, given: int | str) -> tuple[Slot, str]:
        """The parameter of one argument of a call that fits, by position or keyword, and the key
        of the argument within a starred parameter."""
        signature = self._signature
        if isinstance(given, str):
            slot = signature.by_keyword.get(given)
            return (_slot(signature.extra_keywords), f"[{given!r}]") if slot is None else (slot, "")
        beyond = given - len(signature.positional)
        if beyond >= 0:
            return _slot(signature.extra_positional), f"[{beyond}]"
        return signature.positional[given], ""

    @property
    def signature(self) -> Signature:
        """The parameters that callers pass, and the result."""
        return self._signature

    def encode_result(self, value: object) -> bytes:
        """Encode a return value. Raises `EncodeError` if it cannot be stored."""
        return self._result.encode(value)

    def decode_result(self, encoded: bytes) -> Any:
        """Rebuild a result by the annotation of the return value."""
        self._check_depth(encoded)
        return self._result.decode(encoded)

    def _is_proven(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Whether every call that fits, with the types and keywords of this one, comes back as it
        was made. Keywords must be passed in the order in which they are stored."""
        signature = self._signature
        slots = chain(signature.positional, repeat(signature.extra_positional))
        by_keyword, extra = signature.by_keyword, signature.extra_keywords
        known = [name for name in by_keyword if name in kwargs]
        others = sorted(kwargs.keys() - by_keyword.keys())
        return (
            list(kwargs) == known + others
            and all(_slot(slot).proves(type(one)) for slot, one in zip(slots, args, strict=False))
            and all(
                _slot(by_keyword.get(name, extra)).proves(type(one)) for name, one in kwargs.items()
            )
        )

    def _encode_keywords(self, kwargs: Mapping[str, Any]) -> Iterator[tuple[str, bytes]]:
        known = self._signature.by_keyword
        for name, slot in known.items():
            if name in kwargs:
                yield name, slot.encode(kwargs[name])
        for name in sorted(kwargs.keys() - known.keys()):
            extra = _slot(self._signature.extra_keywords)
            yield name, extra.encode(kwargs[name], f"[{name!r}]")

    def _decode_keywords(self, kwargs: Mapping[str, msgspec.Raw]) -> dict[str, Any]:
        decoded = {}
        for name, raw in kwargs.items():
            slot = self._signature.by_keyword.get(name)
            if slot is None:
                extra = _slot(self._signature.extra_keywords)
                decoded[name] = extra.decode(raw, f"[{name!r}]")
            else:
                decoded[name] = slot.decode(raw)
        return decoded

    def _read_normal(self, encoded: bytes) -> _StoredCall:
        """Read a call that fits the function, and normalize its values."""
        call, signature = self._read(encoded), self._signature
        slots = chain(signature.positional, repeat(signature.extra_positional))
        args = [_slot(slot).normal(raw) for slot, raw in zip(slots, call.args, strict=False)]
        by_keyword, extra = signature.by_keyword, signature.extra_keywords
        named = call.kwargs.items()
        kwargs = {name: _slot(by_keyword.get(name, extra)).normal(raw) for name, raw in named}
        return _StoredCall(args, kwargs)

    def _read(self, encoded: bytes) -> _StoredCall:
        if len(encoded) > _CALL_DEPTH:  # shorter bytes cannot be nested too deep
            self._check_depth(encoded, _CALL_DEPTH)
        try:
            return self._read_call(encoded)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise DecodeError(
                f"the stored bytes are not a call of {self._name}: {error}", task=self._name
            ) from error

    def _check_depth(self, encoded: bytes, limit: int = MAX_DEPTH) -> None:
        if self._too_deep(encoded, limit):
            raise DecodeError(
                f"the bytes stored for {self._name} are nested deeper than {MAX_DEPTH} levels, "
                "or cut off",
                task=self._name,
            )


def encode_plain(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
    """Encode a call of a task without its function. Supports only JSON types."""
    return _untyped(name).encode(args, kwargs)


def codec_without_code(name: str) -> CallCodec:
    """The codec of a task that is known by name alone: JSON types, any number of arguments."""
    return _untyped(name)


def decode_json(encoded: bytes) -> Any:
    """Decode a stored value to JSON types. Raises `DecodeError` if it is not JSON."""
    return decode_plain(encoded, "json")


def decode_plain(encoded: bytes, mark: str) -> Any:
    """Decode a stored value to the types of its codec. Raises `DecodeError` for other bytes."""
    wire = MSGPACK if mark == "msgpack" else JSON
    try:
        return read_plain(encoded, wire)
    except ValueRefused as refused:
        raise DecodeError(f"the stored bytes are not {wire.name}: {refused.reason}") from refused


def fingerprint(encoded: bytes) -> str:
    """A digest of 32 hexadecimal characters, equal only for equal bytes."""
    return blake2b(encoded, digest_size=16).hexdigest()


def check_size(encoded: bytes, limit: int, what: str) -> None:
    """Raise PayloadTooLarge if `what` takes more than `limit` bytes."""
    if len(encoded) > limit:
        raise PayloadTooLarge(
            f"{what} takes {len(encoded):,} bytes, and the limit is {limit:,}. Store the data "
            "elsewhere (a file, an object store, a table) and pass a reference to it, or raise "
            "max_payload.",
            size=len(encoded),
            limit=limit,
        )


def _slot(slot: Slot | None) -> Slot:
    assert slot is not None, "the call was bound"
    return slot


def _canonical(values: object) -> bytes:
    """Encode values as JSON with sorted keys. Stored values are already JSON."""
    plain = msgspec.json.decode(msgspec.json.encode(values))
    return msgspec.json.encode(plain, order="deterministic")


@lru_cache(maxsize=256)
def _untyped(name: str) -> CallCodec:
    def anything(*args: Any, **kwargs: Any) -> Any: ...

    return CallCodec.of(anything, skip_first=False, name=name)


def _join_msgpack(args: list[bytes], kwargs: Iterable[tuple[str, bytes]]) -> bytes:
    pairs = {name: msgspec.Raw(value) for name, value in kwargs}
    return msgspec.msgpack.encode(_StoredCall([msgspec.Raw(value) for value in args], pairs))


def _join(args: list[bytes], kwargs: Iterable[tuple[str, bytes]]) -> bytes:
    parts = [b'"args":[' + b",".join(args) + b"]"] if args else []
    pairs = [to_json(name) + b":" + value for name, value in kwargs]
    if pairs:
        parts.append(b'"kwargs":{' + b",".join(pairs) + b"}")
    return b"{" + b",".join(parts) + b"}"
