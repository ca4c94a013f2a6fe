"""Encode calls and results as pickles, for apps with `codec="pickle"`: any picklable value.

Unpickling can run any code. So a `Packing` verifies the signature before it passes a pickle to this
codec. The codec itself does not check the signature.

Values are compared (unique keys, idempotency) by their JSON, as with every other codec. A value
without a JSON form is compared by its pickle. Equal values have equal pickles only if their class
ensures this.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from windlass.core.serialization.codec import CallCodec
from windlass.core.serialization.signature import Signature, Slot
from windlass.core.serialization.wire import to_json
from windlass.errors import ArgumentMismatch, DecodeError, EncodeError

#: The pickle protocol. All supported versions of Python read it.
PROTOCOL: Final = 5
#: The prefix of the placeholder for a value without a JSON form.
_STAND_IN: Final = b'{"pickle":'
#: Errors of a pickle that does not fit the code. Other errors come from code that the pickle calls.
_BAD_PICKLE: Final = (
    pickle.PickleError,
    AttributeError,
    EOFError,
    ImportError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)


class _ForgivingSlot(Slot):
    """A slot that encodes a placeholder, a digest, for a value without a JSON form."""

    def encode(self, value: object, key: str = "") -> bytes:
        try:
            return super().encode(value, key)
        except EncodeError:
            return to_json({"pickle": hashlib.sha256(_dumps(value)).hexdigest()})

    def normal(self, encoded: bytes | msgspec.Raw) -> msgspec.Raw:
        """Keep a placeholder unchanged: the class of the value could misread it."""
        if bytes(encoded).startswith(_STAND_IN):
            return msgspec.Raw(encoded)
        return super().normal(encoded)


class PickleCodec(CallCodec):
    """Encodes and decodes calls and results of one function as pickles."""

    def __init__(self, function: Callable[..., object], skip_first: bool, *, name: str) -> None:
        signature = Signature(name, function, skip_first=skip_first, slot=_ForgivingSlot)
        super().__init__(name, signature)
        self.mark = "pickle"

    def resolve(self) -> None:
        """Do nothing: a pickle does not use annotations."""

    def encode(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
        mismatch = self._signature.mismatch(len(args), kwargs)
        if mismatch:
            raise TypeError(mismatch)
        call = (tuple(args), dict(kwargs))
        try:
            return _dumps(call)
        except Exception as error:
            raise self._unpicklable(*call, error) from error

    def decode(self, encoded: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        call = self._load(encoded)
        match call:
            case (tuple() as args, dict() as kwargs):
                pass
            case _:
                raise DecodeError(f"the pickle is not a call of {self._name}", task=self._name)
        mismatch = self._signature.mismatch(len(args), kwargs)
        if mismatch:
            raise ArgumentMismatch(
                f"{mismatch}; the call was stored for another version of the task", task=self._name
            )
        return args, kwargs

    def plain(self, encoded: bytes) -> bytes:
        """Convert a call to JSON as far as possible. The call must be encoded by this process."""
        return super().plain(self._as_json(encoded))

    def identity(self, encoded: bytes, names: Sequence[str] | None) -> bytes:
        return super().identity(self._as_json(encoded), names)

    def encode_result(self, value: object) -> bytes:
        try:
            return _dumps(value)
        except Exception as error:
            message = f"the result of {self._name} cannot be pickled: {error}"
            raise EncodeError(message, task=self._name) from error

    def decode_result(self, encoded: bytes) -> Any:
        return self._load(encoded)

    def _as_json(self, encoded: bytes) -> bytes:
        return super().encode(*self.decode(encoded))

    def _load(self, encoded: bytes) -> Any:
        try:
            return pickle.loads(encoded)
        except _BAD_PICKLE as error:
            raise DecodeError(
                f"the pickle stored for {self._name} cannot be loaded: {type(error).__name__}: "
                f"{error}. The classes and functions that it names must be importable here.",
                task=self._name,
            ) from error

    def _unpicklable(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception
    ) -> EncodeError:
        names = [slot.name for slot in self._signature.positional]
        passed = [*zip([*names, *["*"] * len(args)], args, strict=False), *kwargs.items()]
        parameter = next((name for name, value in passed if not _is_picklable(value)), "")
        return EncodeError(
            f"{self._name}({parameter}=...): cannot be pickled ({error}); pass an object defined "
            "at the top level of a module, or plain data",
            task=self._name,
            parameter=parameter,
        )


def _dumps(value: object) -> bytes:
    return pickle.dumps(value, protocol=PROTOCOL)


def _is_picklable(value: object) -> bool:
    try:
        _dumps(value)
    except Exception:  # noqa: BLE001 - classes of the user pickle themselves and may raise anything
        return False
    return True
