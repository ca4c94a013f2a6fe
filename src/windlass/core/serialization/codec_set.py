"""The codecs of one function, by the name in stored bytes, made on first use.

A task writes with one codec and reads with all, so that the setting can change while jobs wait.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, get_args

from windlass.core.serialization.codec import CallCodec, CodecName
from windlass.core.serialization.wire import JSON, MSGPACK
from windlass.errors import MissingDecoder

CODECS: Final[tuple[CodecName, ...]] = get_args(CodecName)
_WIRES: Final = {"json": JSON, "msgpack": MSGPACK}


class Codecs(dict[str, CallCodec]):
    """The codecs of one function by name, each made on first use."""

    def __init__(self, function: Callable[..., object], skip_first: bool, *, name: str) -> None:
        self._function = function
        self._skip_first = skip_first
        self._name = name

    def __missing__(self, mark: str) -> CallCodec:
        function, skip_first, name = self._function, self._skip_first, self._name
        if mark in _WIRES:
            self[mark] = CallCodec.of(function, skip_first, name=name, wire=_WIRES[mark])
        elif mark == "pickle":
            from windlass.core.serialization import pickle_codec  # only for apps that use it

            self[mark] = pickle_codec.PickleCodec(function, skip_first, name=name)
        else:
            raise MissingDecoder(
                f"written by the codec {mark!r}, which this windlass does not know"
            )
        return self[mark]
