"""Codecs, signatures and encryption as an app uses them: what is stored, and who reads it."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.app.hand import Hand
from windlass import (
    DecodeError,
    EncodeError,
    Every,
    IdempotencyConflict,
    InvalidTask,
    JobFailed,
    MissingDecoder,
    Retry,
    SettingError,
    Unique,
    Windlass,
)
from windlass.client.payloads import Packing
from windlass.core.failures import FailureText
from windlass.core.schedules.state import ScheduleEntry
from windlass.core.serialization.encryption import Keyring
from windlass.core.serialization.envelope import Envelope, pack, unpack
from windlass.core.serialization.frame import Label, Seal, frame, split
from windlass.engine.contract import Buried, Claim, NewJob, Outcome, Unroutable
from windlass.settings import describe_unusual, read_settings
from windlass.worker.run.pipeline import Execution, Run

SECRET, OTHER = "first-" + "s" * 40, "other-" + "o" * 40
MARKER = "marker-of-a-secret-value"
MakeApp = Callable[..., Windlass]


class Tree:
    """Something that only pickle carries."""

    def __init__(self, *leaves: Any) -> None:
        self.leaves = leaves

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tree) and self.leaves == other.leaves

    __hash__ = object.__hash__


class Bomb:
    """Unpickling it makes a folder."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __reduce__(self) -> Any:
        return os.mkdir, (self.folder,)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[MakeApp]:
    """Apps on the same database, as processes of one deployment are."""
    made: list[Windlass] = []

    def make(**settings: Any) -> Windlass:
        app = Windlass(f"sqlite:///{tmp_path}/jobs.db?durability=normal", **settings)
        app.task(name="echo")(echo)
        app.task(name="other")(echo)
        made.append(app)
        return app

    yield make
    for app in made:
        app.close()


def echo(value: object = None) -> object:
    return value


def prepare(app: Windlass, claim: Claim) -> Run | Outcome:
    left: list[str] = []
    execution = Execution(app.settings, lambda *_: None, left.append, packing=app.packing)
    return execution.prepare(claim, app.tasks[claim.task])


def value_in(app: Windlass, claim: Claim) -> object:
    run = prepare(app, claim)
    assert isinstance(run, Run), run
    return run.args[0]


def reason_of(app: Windlass, outcome: Run | Outcome, claim: Claim) -> str:
    assert isinstance(outcome, Buried), outcome
    text = FailureText.unpack(outcome.error)
    return app.packing.open_failure(text, claim.task, claim.id).message


def stored_bytes(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.iterdir() if path.is_file())


WAYS: dict[str, dict[str, Any]] = {
    "json": {},
    "msgpack": {"codec": "msgpack"},
    "pickle": {"codec": "pickle", "secret": SECRET},
    "json encrypted": {"secret": SECRET, "encrypt": True},
    "msgpack encrypted": {"codec": "msgpack", "secret": SECRET, "encrypt": True},
    "pickle encrypted": {"codec": "pickle", "secret": SECRET, "encrypt": True},
}

# --------------------------------------------------------------------------------- who reads what


@pytest.mark.parametrize("writer", WAYS)
def test_every_app_with_the_secret_reads_what_any_other_wrote(make: MakeApp, writer: str) -> None:
    job = make(**WAYS[writer]).tasks["echo"].enqueue({"a": [1, "é"]})
    claim = Hand(make()).take()
    readers = [make(**{"secret": [OTHER, SECRET], **way}) for way in WAYS.values()]
    for reader in readers:
        if "pickle" in writer and reader.settings.codec != "pickle":
            assert isinstance(prepare(reader, claim), Unroutable)
        else:
            assert value_in(reader, claim) == {"a": [1, "é"]}
    assert job.id == claim.id


@pytest.mark.parametrize("writer", WAYS)
def test_results_are_read_by_whoever_may(make: MakeApp, writer: str) -> None:
    app = make(**WAYS[writer])
    codec = app.tasks["echo"].codec
    encoded = codec.encode_result([1, "é"])
    stored = app.packing.pack_result(codec.mark, encoded, "echo", "job-1")
    for way in WAYS.values():
        reader = make(**{"secret": SECRET, **way})
        if "pickle" in writer and reader.settings.codec != "pickle":
            with pytest.raises(MissingDecoder, match="a pickle, which only an app with"):
                reader.decode_result("echo", "job-1", stored)
            continue
        assert reader.decode_result("echo", "job-1", stored) == [1, "é"]
        if writer in ("json", "msgpack"):
            assert reader.decode_result("unknown", "job-1", stored) == [1, "é"]
    if writer not in ("json", "msgpack"):
        for task, job_id in (("echo", "job-2"), ("other", "job-1")):
            with pytest.raises(DecodeError, match="another task or job"):
                app.decode_result(task, job_id, stored)


def test_json_is_stored_as_ever(make: MakeApp) -> None:
    make(secret=SECRET).tasks["echo"].enqueue(1)
    payload = Hand(make()).take().payload
    assert payload == b'{"args":[1]}'


# ------------------------------------------------------------------------------------------ pickle


def test_pickle_carries_what_others_refuse(make: MakeApp) -> None:
    app = make(codec="pickle", secret=SECRET)
    tree = Tree(Fraction(1, 3), {1, 2}, (3, Tree()))
    with pytest.raises(EncodeError):
        make().tasks["echo"].enqueue(tree)
    app.tasks["echo"].enqueue(tree)
    assert value_in(app, Hand(app).take()) == tree
    stored = app.packing.pack_result(
        "pickle", app.tasks["echo"].codec.encode_result(tree), "a", "b"
    )
    codec, encoded = app.packing.unpack_result(stored, "a", "b")
    assert app.tasks["echo"].codecs[codec].decode_result(encoded) == tree


def test_annotations_that_json_cannot_rebuild_are_fine_with_pickle(make: MakeApp) -> None:
    def grow(tree: Tree, *more: Tree) -> Tree:
        return tree

    task = make(codec="pickle", secret=SECRET).task(name="grow")(grow)
    task.codec.resolve()
    task.enqueue(Tree(1), Tree(2))
    with pytest.raises(TypeError, match="missing a required argument: 'tree'"):
        task.enqueue()  # type: ignore[call-arg]  # what the test is about


def test_what_cannot_be_pickled_is_named(make: MakeApp) -> None:
    task = make(codec="pickle", secret=SECRET).tasks["echo"]
    with pytest.raises(EncodeError, match=r"echo\(value=\.\.\.\): cannot be pickled"):
        task.enqueue(lambda: 1)
    with pytest.raises(EncodeError, match="the result of echo cannot be pickled"):
        task.codec.encode_result(lambda: 1)


def signed_with(secret: str, value: object, task: str = "echo") -> bytes:
    call = pickle.dumps(((value,), {}))
    envelope = Envelope(task=task, call=msgspec.Raw(call), codec="pickle")
    return Packing("pickle", Keyring([secret])).pack_call(envelope)


def put(app: Windlass, payload: bytes, task: str = "echo") -> Claim:
    job_id = app.engine.new_id(task, "default", None, None)
    app.engine.put([NewJob(id=job_id, task=task, queue="default", payload=payload)])
    hand = Hand(app)
    hand.session = f"hand.1.{job_id}"  # which has no claims yet
    return hand.take()


def test_a_pickle_that_is_not_ours_is_never_opened(make: MakeApp, tmp_path: Path) -> None:
    trap = tmp_path / "sprung"
    bomb = Bomb(str(trap))
    app = make(codec="pickle", secret=SECRET)
    call = msgspec.Raw(pickle.dumps(((bomb,), {})))
    good = signed_with(SECRET, bomb)
    line, body = split(good)
    cases = {
        "not signed": pack(Envelope(task="echo", call=call, codec="pickle")),
        "another key": signed_with(OTHER, bomb),
        "another task": signed_with(SECRET, bomb, task="other"),
        "another seal": frame(line.replace(b"hmac-sha256", b"chacha20-poly1305"), body),
        "no seal": frame(line.replace(b'"hmac-sha256"', b'""'), body),
        "a result": frame(
            line, split(app.packing.pack_result("pickle", bytes(call), "echo", "x"))[1]
        ),
    }
    cases |= {f"byte {n}": _flipped(good, n) for n in range(len(good))}
    for name, payload in cases.items():
        claim = msgspec.structs.replace(put(app, good), payload=payload)
        outcome = prepare(app, claim)
        assert isinstance(outcome, Buried | Unroutable), name
        assert not trap.exists(), name
    assert isinstance(prepare(app, put(app, good)), Run)
    assert trap.exists(), "else the test shows nothing"


def _flipped(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def test_without_the_setting_no_pickle_is_opened(make: MakeApp, tmp_path: Path) -> None:
    trap = tmp_path / "sprung"
    app = make(secret=SECRET)
    assert isinstance(prepare(app, put(app, signed_with(SECRET, Bomb(str(trap))))), Unroutable)
    ring = Packing("pickle", Keyring([SECRET]))
    stored = ring.pack_result("pickle", pickle.dumps(Bomb(str(trap))), "echo", "job-1")
    with pytest.raises(MissingDecoder):
        app.decode_result("echo", "job-1", stored)
    unsigned = frame(msgspec.json.encode(Label(codec="pickle")), pickle.dumps(Bomb(str(trap))))
    with pytest.raises(DecodeError, match="unsigned"):
        make(codec="pickle", secret=SECRET).decode_result("echo", "job-1", unsigned)
    assert not trap.exists()


def test_a_call_for_another_version_is_kept_with_pickle_too(make: MakeApp) -> None:
    app = make(codec="pickle", secret=SECRET)
    payload = Packing("pickle", Keyring([SECRET])).pack_call(
        Envelope(task="echo", call=msgspec.Raw(pickle.dumps(((1, 2), {}))), codec="pickle")
    )
    assert isinstance(prepare(app, put(app, payload)), Unroutable)
    for wrong in (b"no pickle", pickle.dumps([1, 2])):
        payload = Packing("pickle", Keyring([SECRET])).pack_call(
            Envelope(task="echo", call=msgspec.Raw(wrong), codec="pickle")
        )
        assert isinstance(prepare(app, put(app, payload)), Buried)


# -------------------------------------------------------------------------------------- encryption


@pytest.mark.parametrize("codec", ["json", "msgpack", "pickle"])
def test_nothing_of_a_call_is_in_the_file(make: MakeApp, tmp_path: Path, codec: str) -> None:
    app = make(codec=codec, secret=SECRET, encrypt=True)
    unique = app.task(name="unique", unique=Unique())(echo)
    app.tasks["echo"].using(idempotency_key="k").enqueue(MARKER)
    unique.enqueue(MARKER)
    hand = Hand(app)
    for claim in (hand.take(), hand.take()):
        assert value_in(app, claim) == MARKER
        text = FailureText("ValueError", MARKER, MARKER)
        packed = app.packing.pack_failure(text, claim.task, claim.id)
        assert MARKER.encode() not in packed
        assert FailureText.unpack(packed).type == "ValueError"
    app.close()
    plain = stored_bytes(tmp_path)
    assert b"echo" in plain
    assert MARKER.encode() not in plain
    make().tasks["echo"].enqueue(MARKER)
    assert MARKER.encode() in stored_bytes(tmp_path), "else the test shows nothing"


def test_every_byte_of_an_encrypted_call_counts(make: MakeApp) -> None:
    app = make(secret=SECRET, encrypt=True)
    app.tasks["echo"].enqueue(1)
    claim = Hand(app).take()
    for place in range(len(claim.payload)):
        changed = msgspec.structs.replace(claim, payload=_flipped(claim.payload, place))
        assert isinstance(prepare(app, changed), Buried | Unroutable), place
    moved = msgspec.structs.replace(claim, task="other")
    assert "another task or job" in reason_of(
        make(secret=SECRET), prepare(make(secret=SECRET), moved), moved
    )


def test_without_the_key_a_job_waits_for_workers_that_have_it(
    make: MakeApp, caplog: pytest.LogCaptureFixture
) -> None:
    make(secret=SECRET, encrypt=True).tasks["echo"].enqueue(1)
    key = Keyring([SECRET]).writing.name
    claim = Hand(make()).take()
    with caplog.at_level(logging.WARNING):
        assert isinstance(prepare(make(), claim), Unroutable)
        assert isinstance(prepare(make(secret=OTHER), claim), Unroutable)
    assert f"encrypted with key {key}, and this app has no secret" in caplog.text
    assert f"encrypted with key {key}, which this app does not have" in caplog.text
    spent = msgspec.structs.replace(claim.counters, strays=10_000)
    worn = msgspec.structs.replace(claim, counters=spent)
    assert f"key {key}" in reason_of(make(), prepare(make(), worn), worn)


def test_a_failure_is_read_with_the_secret_only(make: MakeApp) -> None:
    app = make(secret=SECRET, encrypt=True)
    job = app.tasks["echo"].enqueue(1)
    text = FailureText("ValueError", MARKER, "Traceback ...")
    hand = Hand(app)
    claim = hand.take()
    error = app.packing.pack_failure(text, "echo", claim.id)
    outcome = Buried(id=claim.id, token=claim.token, reason=_exhausted(), error=error)
    hand._end(outcome)
    assert job.info().error == text
    key = Keyring([SECRET]).writing.name
    seen = make().job(job.id).info().error
    assert seen is not None
    assert (seen.type, MARKER in seen.message) == ("ValueError", False)
    assert f"encrypted with key {key}" in seen.message


def mirror(value: str) -> str:
    if value != MARKER:
        raise ValueError(f"not {MARKER}")
    return value


@pytest.mark.parametrize("way", ["json", "msgpack"])
def test_what_follows_from_an_encrypted_call_is_encrypted(
    make: MakeApp, tmp_path: Path, way: str
) -> None:
    """Half way of turning encryption on: this worker can read, and would not encrypt by itself."""
    producer, worker, stranger = make(secret=SECRET, encrypt=True), make(secret=SECRET), make()
    if way == "msgpack":
        worker = make(secret=[OTHER, SECRET], codec="msgpack")
    for app in (producer, worker, stranger):
        app.task(name="mirror", retry=Retry(max_attempts=1))(mirror)
    good, bad = producer.tasks["mirror"].enqueue(MARKER), producer.tasks["mirror"].enqueue("")
    with worker.worker():
        worker.job(good.id).result(timeout=20)
        with pytest.raises(JobFailed, match=MARKER):
            worker.job(bad.id).result(timeout=20)
    with pytest.raises(MissingDecoder):
        stranger.job(good.id).result(timeout=0)
    seen = stranger.dead.get(bad.id).error
    assert seen is not None
    assert seen.type == "ValueError"
    worker.dead.retry_with(bad.id, MARKER)
    assert value_in(worker, Hand(worker).take()) == MARKER
    assert MARKER.encode() not in stored_bytes(tmp_path)


def test_what_follows_from_a_plain_call_is_as_the_settings_say(make: MakeApp) -> None:
    payload = pack(Envelope(task="echo", call=msgspec.Raw(b"{}")))
    packing, text = make(secret=SECRET).packing, FailureText("ValueError", "no", "")
    assert packing.pack_result("json", b"1", "echo", "job-1", payload) == b"1"
    assert packing.pack_failure(text, "echo", "job-1", payload) == text.pack()


def test_a_call_that_was_tampered_with_is_encrypted_when_it_is_changed(make: MakeApp) -> None:
    producer, worker = make(secret=SECRET, encrypt=True), make(secret=SECRET)
    producer.tasks["echo"].enqueue(1)
    payload = Hand(producer).take().payload
    envelope = Envelope(task="echo", call=msgspec.Raw(b'{"args":[2]}'))
    for old in (payload, payload[:-1]):
        changed = worker.packing.pack_changed_call(envelope, old)
        assert unpack(changed, "echo").seal == Seal.ENCRYPTED
    for old in (b"", b"\x02", b"\x02{}\nx", pack(envelope)):
        assert worker.packing.pack_changed_call(envelope, old) == pack(envelope)


def _exhausted() -> Any:
    from windlass import Reason

    return Reason.EXHAUSTED


# ------------------------------------------------------------------------------- keys and schedules


@pytest.mark.parametrize("way", WAYS)
def test_the_same_call_is_the_same_call(make: MakeApp, way: str) -> None:
    app = make(**WAYS[way])
    keyed = app.tasks["echo"].using(idempotency_key="k")
    first = keyed.enqueue({"a": 1})
    assert keyed.enqueue({"a": 1}) == first
    with pytest.raises(IdempotencyConflict):
        keyed.enqueue({"a": 2})
    unique = app.task(name="unique", unique=Unique(by="value"))(echo)
    held = unique.enqueue({"a": 1})
    assert unique.enqueue(value={"a": 1}) == held
    assert unique.enqueue({"a": 2}) != held


@pytest.mark.parametrize("way", ["msgpack", "pickle"])
def test_keys_do_not_change_with_the_codec(make: MakeApp, way: str) -> None:
    before, after = make(), make(**WAYS[way])
    jobs = [app.tasks["echo"].using(idempotency_key="k").enqueue([1.5]) for app in (before, after)]
    assert jobs[0] == jobs[1]
    tasks = [app.task(name="unique", unique=Unique())(echo) for app in (before, after)]
    assert tasks[0].enqueue([1.5]) == tasks[1].enqueue([1.5])


def test_keys_do_not_change_while_a_secret_is_replaced(make: MakeApp) -> None:
    before = make(secret=SECRET, encrypt=True)
    between = make(secret=[OTHER, SECRET], encrypt=True)
    first, keyed = (app.tasks["echo"].using(idempotency_key="k") for app in (before, between))
    job = first.enqueue(1)
    assert keyed.enqueue(1) == job
    assert asyncio.run(keyed.aenqueue(1)) == job
    call = keyed.bind(1)
    assert asyncio.run(between.tasks["echo"].aenqueue_many([call, call])) == [job, job]
    with pytest.raises(IdempotencyConflict):
        keyed.enqueue(2)
    with pytest.raises(IdempotencyConflict):
        asyncio.run(keyed.aenqueue(2))


def test_keys_do_not_change_when_encryption_is_turned_on_or_off(make: MakeApp) -> None:
    def keyed(key: str, **settings: Any) -> Any:
        return make(**settings).tasks["echo"].using(idempotency_key=key)

    sealed = {"secret": SECRET, "encrypt": True}
    assert keyed("on").enqueue(1) == keyed("on", **sealed).enqueue(1)
    assert keyed("off", **sealed).enqueue(1) == keyed("off", secret=SECRET).enqueue(1)
    with pytest.raises(IdempotencyConflict):
        keyed("on", **sealed).enqueue(2)


def test_digests_need_the_secret_when_encrypting(make: MakeApp) -> None:
    call = b'{"args":[1]}'
    digests = {
        make(secret=secret, encrypt=encrypt).packing.digest(call)
        for secret in (SECRET, OTHER)
        for encrypt in (True, False)
    }
    assert len(digests) == 3  # without encryption the secret makes no difference


def test_pickled_values_are_compared_by_their_pickles(make: MakeApp) -> None:
    app = make(codec="pickle", secret=SECRET)
    unique = app.task(name="unique", unique=Unique())(echo)
    first = unique.enqueue(Tree(1))
    assert unique.enqueue(Tree(1)) == first
    assert unique.enqueue(Tree(2)) != first
    with pytest.raises(InvalidTask, match="has no parameter 'nothing'"):
        app.task(name="wrong", unique=Unique(by="nothing"))(echo)


@pytest.mark.parametrize("way", WAYS)
def test_a_schedule_keeps_its_call(make: MakeApp, way: str) -> None:
    app = make(**WAYS[way])
    entries = [app.tasks["echo"].entry(_bound(app, 7), Every("1h")).pack() for _ in range(2)]
    assert entries[0] == entries[1]
    app.schedules.save("hourly", app.tasks["echo"].bind(7), Every("1h"))
    app.schedules.save("hourly", app.tasks["echo"].bind(7), Every("1h"))
    app.schedules.run_now("hourly")
    assert value_in(app, Hand(app).take()) == 7
    assert msgspec.json.decode(entries[0])["version"] == (1 if way == "json" else 2)


def _bound(app: Windlass, value: object) -> bytes:
    return app.tasks["echo"].bind(value).encoded


def test_a_schedule_whose_call_is_no_base64_is_refused(make: MakeApp) -> None:
    app = make(codec="msgpack")
    packed = app.tasks["echo"].entry(_bound(app, 7), Every("1h")).pack()
    with pytest.raises(DecodeError, match="no stored schedule"):
        ScheduleEntry.unpack(packed.replace(b'"envelope":"', b'"envelope":"***'))


# ----------------------------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"codec": "pickle"}, 'codec="pickle", which is never stored unsigned, needs a secret'),
        ({"encrypt": True}, "encrypt needs a secret, found none"),
        ({"encrypt": "yes"}, "encrypt must be true or false, found 'yes'"),
        ({"secret": "short"}, "secret must have at least 32 characters, found 5: make one with"),
        ({"secret": [b"x" * 40]}, "secret must be text or a list of texts .* found list"),
        ({"codec": "yaml"}, "codec must be one of json, msgpack, pickle, found 'yaml'"),
    ],
)
def test_settings_that_cannot_be_kept_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingError, match=words):
        Windlass("sqlite:///:memory:", **settings)


def test_a_missing_package_is_told_when_the_app_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        __import__("sys").modules, "cryptography.hazmat.primitives.ciphers.aead", None
    )
    with pytest.raises(SettingError, match=r"in a clone pip install '\.\[encryption\]'"):
        Windlass("sqlite:///:memory:", secret=SECRET, encrypt=True)
    Windlass("sqlite:///:memory:", secret=SECRET)


def test_secrets_are_never_shown() -> None:
    environment = {"WINDLASS_SECRET": f"{SECRET},{OTHER}", "WINDLASS_ENCRYPT": "true"}
    settings = read_settings({"codec": "pickle"}, environment)
    names = [Keyring([secret]).writing.name for secret in (SECRET, OTHER)]
    told = describe_unusual(settings)
    assert told["secret"] == f"key:{names[0]} key:{names[1]}"
    ring = settings.secret.ring
    assert ring is not None
    for text in (repr(settings), str(told), repr(ring), repr(ring.writing), str(settings.secret)):
        assert SECRET not in text
        assert OTHER not in text
    for wrong in ("short-canary", ["short-canary"], {"canary"}):
        with pytest.raises(SettingError) as raised:
            read_settings({"secret": wrong}, {})
        assert "canary" not in str(raised.value)


def test_a_call_shows_no_bytes(make: MakeApp) -> None:
    assert repr(make().tasks["echo"].bind(1)) == '<Call of echo: {"args":[1]}>'
    assert repr(make(codec="msgpack").tasks["echo"].bind(1)) == "<Call of echo: 8 bytes of msgpack>"


def test_unknown_codecs_and_newer_frames_are_left_to_others(make: MakeApp) -> None:
    app = make()
    line = b'{"version":2,"task":"echo","call":null,"codec":"cbor"}'
    assert isinstance(prepare(app, put(app, frame(line, b"x"))), Unroutable)
    newer = b'{"version":3,"task":"echo","call":null,"codec":"json"}'
    assert isinstance(prepare(app, put(app, frame(newer, b"x"))), Unroutable)
    for broken in (b"{", b"[]", b'{"version":1,"task":"echo","call":null}'):
        assert isinstance(prepare(app, put(app, frame(broken, b"x"))), Buried)
    assert isinstance(prepare(app, put(app, b"\x02no end of the line")), Buried)
    with pytest.raises(DecodeError):
        unpack(b"\x02", "echo")
