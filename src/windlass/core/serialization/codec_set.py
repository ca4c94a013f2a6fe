"""The codecs of one function, by the name in stored bytes, made on first use.

A task writes with one codec and reads with all, so that the setting can change while jobs wait.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, get_args

from windlass.core.serialization.codec import CallCodec, CodecName
from windlass.core.serialization.wire import JSON, MSGPACK
from windlass.errors import MissingDecoder

CODECS: Final[tuple[CodecName, ...]] = get_args(CodecName)


class Codec(Protocol):
    """The interface of a codec; `windlass.core.serialization.codec` documents the methods."""

    mark: CodecName

    def resolve(self) -> None: ...
    def encode(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes: ...
    def decode(self, encoded: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]: ...
    def plain(self, encoded: bytes) -> bytes: ...
    def identity(self, encoded: bytes, names: Sequence[str] | None) -> bytes: ...
    def check_names(self, names: Sequence[str]) -> str: ...
    def encode_result(self, value: object) -> bytes: ...
    def decode_result(self, encoded: bytes) -> Any: ...


class Codecs(dict[str, "Codec"]):
    """The codecs of one function by name, each made on first use."""

    def __init__(self, function: Callable[..., object], skip_first: bool, *, name: str) -> None:
        self._function = function
        self._skip_first = skip_first
        self._name = name

    def __missing__(self, mark: str) -> Codec:
        made = self[mark] = self._make(mark)
        return made

    def _make(self, mark: str) -> Codec:
        function, skip_first, name = self._function, self._skip_first, self._name
        if mark == "json":
            return CallCodec.of(function, skip_first, name=name, wire=JSON)
        if mark == "msgpack":
            return CallCodec.of(function, skip_first, name=name, wire=MSGPACK)
        if mark == "pickle":
            from windlass.core.serialization.pickle_codec import (
                PickleCodec,  # loaded only by apps that use it
            )

            return PickleCodec(function, skip_first, name=name)
        raise MissingDecoder(f"written by the codec {mark!r}, which this windlass does not know")
