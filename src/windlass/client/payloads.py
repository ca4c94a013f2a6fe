"""Pack and unpack calls, results and the texts of failures.

1. The settings decide how encoded bytes are sealed: signed for pickle, encrypted with `encrypt`.
   Results and failures of an encrypted call are always encrypted. Plain JSON is stored unchanged,
   all other bytes in a frame that names the codec and the seal.
2. Reading checks the seal before decoding: the seal covers the name of the task and, for results,
   steps and failures, the id of the job.
3. `digest` distinguishes calls without revealing their arguments.
4. `reveal` makes a record readable for people, as far as this app has the keys.
5. `Codecs` has the codecs of a task.

An app reads the bytes of any codec. The exception is pickle: only an app with `codec="pickle"`
reads it, and only if it is signed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from windlass.core.failures import FailureText
from windlass.core.serialization.codec import CallCodec, decode_plain, fingerprint
from windlass.core.serialization.envelope import Envelope, pack, pack_line, unpack
from windlass.core.serialization.frame import (
    Label,
    Seal,
    describe_sealed,
    frame,
    is_framed,
    read_label,
    split,
)
from windlass.core.serialization.wire import JSON, MSGPACK, to_plain_json
from windlass.core.states import Event
from windlass.engine.contract import Failure, JobRecord
from windlass.errors import DecodeError, MissingDecoder
from windlass.settings import Settings

if TYPE_CHECKING:
    from windlass.core.serialization.encryption import Keyring

_encode: Final = msgspec.json.Encoder().encode
_WIRES: Final = {"json": JSON, "msgpack": MSGPACK}


class Codecs(dict[str, CallCodec]):
    """Codecs of one function, keyed by stored codec name, each made on first use. A task writes
    with one codec and reads with all, so that the setting can change while jobs wait."""

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


class Packing:
    """Packs and unpacks stored bytes by the settings of one app."""

    def __init__(
        self, codec: str = "json", ring: Keyring | None = None, *, encrypts: bool = False
    ) -> None:
        self._codec = codec
        self._ring = ring
        self._encrypts = encrypts
        self._seals = encrypts or codec == "pickle"
        #: Whether calls are stored as plain JSON, without a frame or a seal.
        self.is_plain = codec == "json" and not encrypts
        #: The digest of a call: equal only for equal calls.
        self.digest: Callable[[bytes], str] = fingerprint
        #: The digests by earlier settings: with older secrets, or before encryption was turned on
        #: or off.
        self.older_digests: tuple[Callable[[bytes], str], ...] = ()
        if ring is not None:
            keyed = tuple(key.digest for key in (ring.writing, *ring.reading))
            self.digest = ring.writing.digest if encrypts else fingerprint
            others = (*keyed[1:], fingerprint) if encrypts else keyed
            self.older_digests = others

    @classmethod
    def of(cls, settings: Settings) -> Packing:
        return cls(settings.codec, settings.secret.ring, encrypts=settings.encrypt)

    # ------------------------------------------------------------------------------------ calls

    def pack_call(self, envelope: Envelope, *, repeatable: bool = False) -> bytes:
        """The stored bytes of an envelope. With `repeatable` the bytes are deterministic."""
        if not self._seals:
            return pack(envelope)
        return self._seal_call(
            envelope, self._seal_of(envelope.codec, envelope.task), repeatable=repeatable
        )

    def pack_changed_call(self, envelope: Envelope, old: bytes) -> bytes:
        """The stored bytes of an envelope that replaces `old`, the payload of a job."""
        return self._seal_call(envelope, self._seal_of(envelope.codec, envelope.task, old))

    def unpack_call(self, payload: bytes, task: str) -> Envelope:
        """The envelope of a job of this task, with the call still encoded by its codec."""
        envelope = unpack(payload, task)
        if not envelope.seal and envelope.codec == "json":
            return envelope
        self._require_codec(envelope.codec, envelope.seal)
        if not envelope.seal:
            return envelope
        line, body = split(payload)
        call = self._open(envelope.seal, envelope.key, body, _bound("call", line, task))
        return msgspec.structs.replace(envelope, call=msgspec.Raw(call))

    # ---------------------------------------------------------------------------------- results

    def pack_result(
        self, codec: str, result: bytes, task: str, job_id: str, payload: bytes = b""
    ) -> bytes:
        """The stored bytes of the result of the call in `payload`."""
        if codec == "json" and self._ring is None:
            return result
        seal = self._seal_of(codec, task, payload)
        if codec == "json" and seal is Seal.NONE:
            return result
        return self._pack("result", codec, seal, result, task, job_id)

    def unpack_result(self, stored: bytes, task: str, job_id: str) -> tuple[str, bytes]:
        """The codec that wrote the result, and its bytes."""
        if not is_framed(stored):
            return "json", stored
        return self._unpack("result", stored, task, job_id)

    # ------------------------------------------------------------------------------------- steps

    def pack_step(
        self, codec: str, value: bytes, task: str, job_id: str, name: str, payload: bytes = b""
    ) -> bytes:
        """The stored bytes of the value of a step of the job with the call in `payload`."""
        seal = self._seal_of(codec, task, payload)
        if codec == "json" and seal is Seal.NONE:
            return value
        return self._pack("step", codec, seal, value, task, job_id, name)

    def unpack_step(self, stored: bytes, task: str, job_id: str, name: str) -> tuple[str, bytes]:
        """The codec that wrote the value of a step, and its bytes."""
        if not is_framed(stored):
            return "json", stored
        return self._unpack("step", stored, task, job_id, name)

    # --------------------------------------------------------------------------------- failures

    def pack_failure(
        self, text: FailureText, task: str, job_id: str, payload: bytes = b""
    ) -> bytes:
        """The stored bytes of a failure. If encrypted, only the type of the error stays readable:
        messages and tracebacks can contain values."""
        if not self._encrypts and not self._follows_encrypted(payload, task):
            return text.pack()
        from base64 import b64encode  # needed only for encrypted failures

        sealed = self._pack("failure", "json", Seal.ENCRYPTED, text.pack(), task, job_id)
        return FailureText(type=text.type, sealed=b64encode(sealed).decode()).pack()

    def failure_fingerprint(self, text: FailureText, task: str, payload: bytes = b"") -> str:
        """The fingerprint of a failure, which is stored next to it."""
        is_sealed = self._encrypts or self._follows_encrypted(payload, task)
        return self.keyed_fingerprint(text.fingerprint) if is_sealed else text.fingerprint

    def keyed_fingerprint(self, plain: str) -> str:
        """The fingerprint of an encrypted failure. Without the secret it does not reveal whether a
        guessed message is right."""
        if self._ring is None or not plain:
            return plain
        return self._ring.writing.digest(plain.encode())[: len(plain)]

    def reveal_failures(self, record: JobRecord) -> JobRecord:
        """Decrypt the failures of a record, and why it is held, as far as this app has the keys."""
        if record.held_because is not None and b'"sealed":"' in record.held_because:
            sealed = FailureText.unpack(record.held_because)
            why = self.open_failure(sealed, record.task, record.id).pack()
            record = msgspec.structs.replace(record, held_because=why)
        if not any(map(_is_sealed, record.failures)):
            return record
        revealed = tuple(
            self._reveal_failure(record, failure) if _is_sealed(failure) else failure
            for failure in record.failures
        )
        return msgspec.structs.replace(record, failures=revealed)

    def open_failure(self, text: FailureText, task: str, job_id: str) -> FailureText:
        """Decrypt a failure. Without the key, return its type and why it cannot be read."""
        if not text.sealed:
            return text
        from base64 import b64decode

        try:
            sealed = b64decode(text.sealed, validate=True)
            return FailureText.unpack(self._unpack("failure", sealed, task, job_id)[1])
        except (DecodeError, ValueError) as error:
            return FailureText(type=text.type, message=f"({error})", sealed="")

    def _reveal_failure(self, record: JobRecord, failure: Failure) -> Failure:
        text = self.open_failure(FailureText.unpack(failure.error), record.task, record.id)
        return msgspec.structs.replace(failure, error=text.pack())

    # ------------------------------------------------------------------------------- for people

    def reveal(self, record: JobRecord) -> JobRecord:
        """Convert call, result and failures of a record to JSON; unreadable parts stay as they
        are."""
        record = self.reveal_failures(record)
        failures = tuple(
            msgspec.structs.replace(one, error=self.readable_call(one.error, record.task))
            if one.event == Event.REVIVE
            else one
            for one in record.failures
        )
        payload = self.readable_call(record.payload, record.task)
        result = self.readable_result(record)
        return msgspec.structs.replace(record, payload=payload, result=result, failures=failures)

    def call_text(self, payload: bytes, task: str) -> str:
        """A stored call as JSON, or the reason why it cannot be read."""
        try:
            envelope = self.unpack_call(payload, task)
            return _as_json(envelope.codec, bytes(envelope.call)).decode()
        except MissingDecoder as error:
            return f"({error})"
        except DecodeError as error:
            return f"(undecodable: {error})"

    def readable_call(self, payload: bytes, task: str) -> bytes:
        """Convert a stored call to plain JSON; an unreadable one stays as it is."""
        try:
            envelope = self.unpack_call(payload, task)
            call = _as_json(envelope.codec, bytes(envelope.call))
        except DecodeError:
            return payload
        readable = Envelope(
            task=envelope.task,
            call=msgspec.Raw(call),
            headers=envelope.headers,
            options=envelope.options,
        )
        return pack(readable)

    def readable_result(self, record: JobRecord) -> bytes | None:
        """Convert a stored result to plain JSON; an unreadable one stays as it is."""
        if record.result is None:
            return None
        try:
            return _as_json(*self.unpack_result(record.result, record.task, record.id))
        except DecodeError:
            return record.result

    # ----------------------------------------------------------------------------------- inside

    def _seal_of(self, codec: str, task: str, payload: bytes = b"") -> Seal:
        if self._encrypts or self._follows_encrypted(payload, task):
            return Seal.ENCRYPTED
        return Seal.SIGNED if codec == "pickle" else Seal.NONE

    def _follows_encrypted(self, payload: bytes, task: str) -> bool:
        """Whether a stored call is encrypted. Always False without a secret: such an app cannot
        read encrypted calls."""
        if self._ring is None or not is_framed(payload):
            return False
        try:
            return unpack(payload, task).seal == Seal.ENCRYPTED
        except DecodeError:
            return False

    def _seal_call(self, envelope: Envelope, seal: Seal, *, repeatable: bool = False) -> bytes:
        if seal is Seal.NONE:
            return pack(envelope)
        ring = self._require_ring()
        call, key = bytes(envelope.call), ring.writing.name
        line = pack_line(msgspec.structs.replace(envelope, seal=seal, key=key))
        bound = _bound("call", line, envelope.task)
        return frame(line, ring.seal(seal, call, bound, repeatable=repeatable))

    def _pack(self, kind: str, codec: str, seal: Seal, body: bytes, *owner: str) -> bytes:
        if seal is Seal.NONE:
            return frame(_encode(Label(codec=codec)), body)
        ring = self._require_ring()
        line = _encode(Label(codec=codec, seal=seal, key=ring.writing.name))
        return frame(line, ring.seal(seal, body, _bound(kind, line, *owner)))

    def _unpack(self, kind: str, stored: bytes, *owner: str) -> tuple[str, bytes]:
        label, line, body = read_label(stored)
        self._require_codec(label.codec, label.seal)
        if label.seal:
            body = self._open(label.seal, label.key, body, _bound(kind, line, *owner))
        return label.codec, body

    def _open(self, seal: str, key: str, sealed: bytes, bound: bytes) -> bytes:
        if self._ring is None:
            raise MissingDecoder(
                f"{describe_sealed(seal, key)}, and this app has no secret: give the secret with "
                "Windlass(secret=...) or WINDLASS_SECRET"
            )
        return self._ring.open(seal, key, sealed, bound)

    def _require_codec(self, codec: str, seal: str) -> None:
        """Refuse a pickle unless this app has `codec="pickle"` and the pickle is signed."""
        if codec != "pickle":
            return
        if self._codec != "pickle":
            raise MissingDecoder(
                'a pickle, which only an app with codec="pickle" reads, and this one has '
                f'codec="{self._codec}": run the job in an app with codec="pickle"'
            )
        if not seal:
            raise DecodeError("the payload is an unsigned pickle, and only signed pickles are read")

    def _require_ring(self) -> Keyring:
        assert self._ring is not None, "settings that seal have a secret"
        return self._ring


def _is_sealed(failure: Failure) -> bool:
    """Whether a history entry is a sealed failure. A REVIVE entry holds a call, not a failure."""
    return b'"sealed":"' in failure.error and failure.event != Event.REVIVE


#: A packing that stores JSON unchanged.
PLAIN: Final = Packing()


def describe_unreadable(payload: bytes, task: str) -> str:
    """Why a stored call cannot be shown, or "" if it can be."""
    envelope = unpack(payload, task)
    return _describe(envelope.codec, envelope.seal, envelope.key)


def describe_unreadable_result(stored: bytes) -> str:
    label, _, _ = read_label(stored)
    return _describe(label.codec, label.seal, label.key)


def _describe(codec: str, seal: str, key: str) -> str:
    if seal == Seal.ENCRYPTED:
        return describe_sealed(seal, key)
    return "" if codec == "json" else f"written by the codec {codec}, which is not shown"


def _as_json(codec: str, body: bytes) -> bytes:
    """Convert a body to JSON for display. A pickle is never loaded for display."""
    if codec == "json":
        decode_plain(body, codec)
        return body
    if codec == "msgpack":
        decode_plain(body, codec)
        return to_plain_json(body)
    raise MissingDecoder(f"written by the codec {codec}")


def _bound(kind: str, line: bytes, *owner: Any) -> bytes:
    """The bytes that a seal authenticates in addition to the body: kind, owner and line. No part
    contains a zero byte."""
    return b"\0".join([b"windlass", kind.encode(), *(part.encode() for part in owner), line])
