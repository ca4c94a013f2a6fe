"""The command line with calls, results and failures that are not plain JSON."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.app.hand import Hand
from tests.cli.shell import Ran, Shell
from tests.worker.yard import Yard, until
from windlass import FailureText, Reason, Windlass
from windlass.cli.root import windlass
from windlass.core.introduction import Introduction
from windlass.core.serialization.encryption import Keyring
from windlass.core.states import Hold
from windlass.engine.contract import Beat, Buried, Succeeded
from windlass.job import Job

SECRET = "command-line-" + "s" * 40
KEY = Keyring([SECRET]).writing.name


def add(a: bytes) -> bytes:
    return a


def type_here(shell: Shell, *arguments: str, **environment: str) -> Ran:
    """In this process: what is shown is looked at here, and not how a process ends."""
    ran = CliRunner().invoke(windlass, [*arguments, "--url", shell.url], env=environment)
    return Ran(ran.exit_code, ran.stdout, ran.stderr)


def make(shell: Shell, **settings: object) -> Windlass:
    app = Windlass(f"{shell.url}?durability=normal", **settings)  # type: ignore[arg-type]  # any
    app.task(name="tasks.add")(add)
    return app


def succeed(app: Windlass) -> str:
    job = app.tasks["tasks.add"].enqueue(b"canary")
    hand = Hand(app)
    claim, codec = hand.take(), app.tasks["tasks.add"].codec
    encoded = codec.encode_result(b"canary")
    result = app.packing.pack_result(codec.mark, encoded, claim.task, claim.id)
    hand._end(Succeeded(id=claim.id, token=claim.token, result=result, result_ttl_ms=60_000))
    return job.id


def bury(app: Windlass) -> str:
    job = app.tasks["tasks.add"].enqueue(b"canary")
    hand = Hand(app)
    claim = hand.take()
    text = FailureText("ValueError", "no canary", "Traceback of the canary")
    error = app.packing.pack_failure(text, claim.task, claim.id)
    hand._end(
        Buried(
            id=claim.id,
            token=claim.token,
            reason=Reason.EXHAUSTED,
            error=error,
            fingerprint=app.packing.failure_fingerprint(text, claim.task),
        )
    )
    return job.id


@pytest.mark.parametrize("settings", [{"codec": "msgpack"}, {"secret": SECRET, "encrypt": True}])
def test_with_the_secret_all_is_shown_as_json(shell: Shell, settings: dict[str, object]) -> None:
    job_id = succeed(make(shell, **settings))
    ran = type_here(shell, "job", "show", job_id, WINDLASS_SECRET=SECRET)
    assert 'call      {"args":["Y2FuYXJ5"]}' in ran.out
    assert 'result    "Y2FuYXJ5"' in ran.out


def test_without_it_the_name_of_the_key_is(shell: Shell) -> None:
    app = make(shell, secret=SECRET, encrypt=True)
    ran = type_here(shell, "job", "show", succeed(app))
    assert f"call      (encrypted with key {KEY})" in ran.out
    assert f"result    (encrypted with key {KEY})" in ran.out
    assert "Y2FuYXJ5" not in ran.out


def test_failures(shell: Shell) -> None:
    job_id = bury(make(shell, secret=SECRET, encrypt=True))
    blind = type_here(shell, "dead", "show", job_id)
    assert f"ValueError: (encrypted with key {KEY}" in blind.out
    assert "canary" not in blind.out
    seeing = type_here(shell, "dead", "show", job_id, WINDLASS_SECRET=SECRET)
    assert "Traceback of the canary" in seeing.out
    listed = type_here(shell, "dead", "list", "--json", WINDLASS_SECRET=SECRET).json
    assert listed[0]["error"]["message"] == "no canary"


def test_pickles_are_not_opened_for_show(shell: Shell) -> None:
    job_id = succeed(make(shell, codec="pickle", secret=SECRET))
    secrets = {"WINDLASS_SECRET": SECRET, "WINDLASS_CODEC": "pickle"}
    ran = type_here(shell, "job", "show", job_id, **secrets)
    assert "call      (written by the codec pickle, which is not shown)" in ran.out
    [described] = type_here(shell, "job", "show", job_id, "--json").json
    assert described["call"] is described["result"] is None


def test_a_call_given_as_json_is_stored_by_the_codec_of_the_app(shell: Shell) -> None:
    settings = {"WINDLASS_SECRET": SECRET, "WINDLASS_CODEC": "pickle"}
    ran = shell.type("enqueue", "tasks.add", "--app", "tasks:app", "--args", "[1]", **settings)
    assert ran.code == 0, ran.err
    claim = Hand(make(shell)).take()
    assert b'"codec":"pickle"' in claim.payload


# ------------------------------------------------------------------ jobs without a worker's key


def let_hold(shell: Shell, job: Job[bytes]) -> None:
    """Let a worker without the secret hold the job, and end: no worker claims it again."""
    with make(shell).worker():
        until(lambda: job.info().hold is Hold.UNROUTABLE, "it to be put aside")


@pytest.mark.parametrize(
    ("way", "sealed"),
    [({"encrypt": True}, "encrypted"), ({"codec": "pickle"}, "signed")],
    ids=["encrypted", "signed"],
)
def test_a_job_that_is_held_for_want_of_a_key_says_so(
    shell: Shell, way: dict[str, object], sealed: str
) -> None:
    app = make(shell, secret=SECRET, **way)
    job = app.tasks["tasks.add"].enqueue(b"canary")
    let_hold(shell, job)
    app.engine.beat([Beat(session="h.7.x", info=Introduction(worker=7, keys=("other",)).pack())])
    why = f"it is {sealed} with key {KEY}, which no worker has: start a worker with that secret"
    for secret in ({}, {"WINDLASS_SECRET": SECRET}):  # the reader may have the secret or not
        shown = type_here(shell, "job", "show", job.id, **secret).out
        assert f"held      unroutable: {why}" in shown
    [described] = type_here(shell, "job", "show", job.id, "--json").json
    assert described["held_because"].startswith(why)
    found = type_here(shell, "doctor", "--json").json["findings"]
    [text] = [one["text"] for one in found if one["subject"] == "unknown tasks"]
    assert f"The first is {job.id}: {why}" in text


def test_a_job_that_is_held_for_another_reason_is_not_said_to_want_a_key(shell: Shell) -> None:
    """A worker has it, and has not met the job."""
    app = make(shell, secret=SECRET, encrypt=True)
    job = app.tasks["tasks.add"].enqueue(b"canary")
    let_hold(shell, job)
    app.engine.beat([Beat(session="h.7.x", info=Introduction(worker=7, keys=("a", KEY)).pack())])
    shown = type_here(shell, "job", "show", job.id).out
    assert "start a worker with that secret" not in shown
    assert f"held      unroutable: encrypted with key {KEY}" in shown


def test_what_is_not_held_has_no_reason_for_it(shell: Shell) -> None:
    job_id = succeed(make(shell, secret=SECRET, encrypt=True))
    [described] = type_here(shell, "job", "show", job_id, "--json").json
    assert described["held_because"] is None


def test_a_worker_tells_the_names_of_its_keys(shell: Shell, tmp_path: Path) -> None:
    app = make(shell, secret=SECRET)
    with app.worker():
        [session] = until(app.engine.sessions, "its session")
    assert Introduction.unpack(session.info).keys == (KEY,)
    assert Introduction.unpack(session.info).lease_ms == app.settings.lease_ms
    yard = Yard(tmp_path, "30s", "5s", 3)
    worker = yard.start(environment={"WINDLASS_SECRET": SECRET})
    [session] = until(yard.app.engine.sessions, "its session")
    assert Introduction.unpack(session.info).keys == (KEY,)
    assert worker.stop() == 0
    yard.close()


@pytest.mark.parametrize("option", [("--args", "[1]"), ("--kwargs", '{"a": 1}')])
def test_a_call_that_cannot_be_read_is_not_changed(shell: Shell, option: tuple[str, str]) -> None:
    app = make(shell, secret=SECRET, encrypt=True)
    ran = type_here(shell, "dead", "retry", bury(app), *option)
    assert ran.code == 1
    assert "cannot be read here, so it cannot be changed" in ran.err
    assert f"encrypted with key {KEY}, and this app has no secret" in " ".join(ran.err.split())
    assert app.dead.count() == 1


def test_arguments_that_are_given_to_an_encrypted_call_are_encrypted(shell: Shell) -> None:
    app = make(shell, secret=SECRET, encrypt=True)
    job_id = bury(app)
    options = ("--kwargs", '{"a": "Y2FuYXJ5Mg=="}', "--args", "[]", "--unchecked")
    ran = type_here(shell, "dead", "retry", job_id, *options, WINDLASS_SECRET=SECRET)
    assert ran.code == 0, ran.err
    [record] = app.engine.get([job_id])
    assert record is not None
    assert b"Y2FuYXJ5" not in record.payload
    assert app.packing.call_text(record.payload, "tasks.add") == '{"kwargs":{"a":"Y2FuYXJ5Mg=="}}'


def test_of_a_pickle_nothing_is_kept_so_all_has_to_be_given(shell: Shell) -> None:
    app = make(shell, codec="pickle", secret=SECRET)
    job_id = bury(app)
    secrets = {"WINDLASS_SECRET": SECRET, "WINDLASS_CODEC": "pickle"}
    ran = type_here(shell, "dead", "retry", job_id, "--kwargs", "{}", **secrets)
    assert (ran.code, "give both --args and --kwargs" in " ".join(ran.err.split())) == (2, True)
    both = ("--args", "[1]", "--kwargs", "{}", "--unchecked")
    assert type_here(shell, "dead", "retry", job_id, *both, **secrets).code == 0
    assert app.dead.count() == 0
