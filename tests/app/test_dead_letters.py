"""`app.dead`: letters, groups, choices, retries at a rate and with other arguments, discards."""

from __future__ import annotations

import asyncio
import importlib
import logging
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.app.hand import Hand
from tests.contract.variants import fresh_url
from tests.redis_server import shared_server
from windlass import (
    DuplicateJob,
    EncodeError,
    FailureText,
    InvalidTask,
    JobFailed,
    JobNotFound,
    MissingDecoder,
    NotDead,
    Retry,
    State,
    Unique,
    Windlass,
)
from windlass.calls.redaction import CallRedactor
from windlass.core.ids import new_session
from windlass.core.serialization.encryption import Keyring
from windlass.core.states import Reason
from windlass.dead_groups import GroupChoice, read_groups
from windlass.dead_letter import MAX_LOGGED
from windlass.dead_letters import PAGE, Changed, target
from windlass.engine.contract import Buried, DeadTallies, Filter, Plan
from windlass.engine.redis.keys import key
from windlass.engine.releases import note_release
from windlass.testing.contract.world import claim_jobs, retry_jobs
from windlass.worker.maintenance.dead_letters import sweep

UNKNOWN = "01m7gk6tx900smjc57av0rnpgb"
DAY_MS = 86_400_000
SECRET = "s" * 32


@pytest.fixture(params=["sqlite-file", "redis", "redis-4", "postgres"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Windlass]:
    with Windlass(fresh_url(request.param, tmp_path)) as app:
        app.task(name="charge")(charge)
        app.task(name="mail")(mail)
        yield app


@pytest.fixture
def hand(app: Windlass) -> Hand:
    return Hand(app)


def charge(order: int, currency: str = "EUR") -> None:
    """A task."""


def mail(to: str) -> None:
    """Another one."""


def bury(hand: Hand, task: str, argument: object, error: Exception | None = None) -> str:
    job = hand.app.tasks[task].enqueue(argument)
    hand.bury(error or ValueError(f"no such order {argument}"))
    return job.id


def state(app: Windlass, id: str) -> State:
    return app.job(id).info().state


# ----------------------------------------------------------------------------------------- looking


def test_a_letter_tells_all(app: Windlass, hand: Hand) -> None:
    id = app.tasks["charge"].enqueue(17).id
    hand.fail(ConnectionError("503"), delay_ms=0)
    hand.bury(ValueError("no such order 17"))
    letter = app.dead.get(id)
    assert (letter.id, letter.task, letter.reason) == (id, "charge", Reason.EXHAUSTED)
    assert (letter.call, letter.attempts, letter.worker) == ('{"args":[17]}', 2, hand.session)
    assert letter.enqueued_at <= letter.died_at
    assert letter.error is not None
    assert letter.error.message == "no such order 17"
    assert letter.fingerprint == letter.error.fingerprint
    first, second = letter.history
    assert (first.number, first.event, first.worker) == (1, "retry", hand.session)
    assert first.error is not None
    assert (first.error.type, second.event) == ("ConnectionError", "bury")
    for attempt in letter.history:
        assert attempt.started_at is not None
        assert letter.enqueued_at <= attempt.started_at <= attempt.ended_at
    assert list(app.dead.list()) == [letter]
    assert asyncio.run(app.dead.aget(id)) == letter


def test_what_is_not_dead_is_no_letter(app: Windlass, hand: Hand) -> None:
    id = app.tasks["charge"].enqueue(1).id
    with pytest.raises(NotDead, match=f"Job {id} is ready, not dead"):
        app.dead.get(id)
    with pytest.raises(JobNotFound):
        app.dead.get(UNKNOWN)
    dead = bury_next(hand)
    other = app.tasks["charge"].enqueue(1).id
    for ids in ([dead, other], [dead, UNKNOWN]):
        with pytest.raises((NotDead, JobNotFound)):
            app.dead.retry(*ids)
        with pytest.raises((NotDead, JobNotFound)):
            app.dead.discard(*ids)
    assert state(app, dead) is State.DEAD


def bury_next(hand: Hand) -> str:
    claim = hand.take()
    hand.app.engine.finish(
        [Buried(id=claim.id, token=claim.token, reason=Reason.REJECTED, error=b"")]
    )
    return claim.id


def test_groups_are_of_like_failures(app: Windlass, hand: Hand) -> None:
    ids = []
    for number in range(3):
        app.engine.clock_offset_ms += 1  # the latest death is the example of its group
        ids.append(bury(hand, "charge", number))
    other = bury(hand, "charge", 9, KeyError("currency"))
    mails = bury(hand, "mail", "ann")
    groups = app.dead.groups()
    assert [group.count for group in groups] == [3, 1, 1]
    assert (groups[0].task, groups[0].example) == ("charge", ids[-1])
    assert groups[0].first_at <= groups[0].last_at
    assert groups[0].error is not None
    assert groups[0].error.message.startswith("no such order")
    assert {group.example for group in groups[1:]} == {other, mails}
    alike = app.dead.list(fingerprint=groups[0].fingerprint, task="charge")
    assert {letter.id for letter in alike} == set(ids)
    assert app.dead.count(fingerprint=groups[0].fingerprint, task="charge") == 3
    assert asyncio.run(app.dead.agroups()) == groups


def test_ages_are_by_the_clock_of_the_engine(app: Windlass, hand: Hand) -> None:
    old = bury(hand, "charge", 1)
    app.engine.clock_offset_ms = 8 * DAY_MS
    new = bury(hand, "charge", 2)
    assert [letter.id for letter in app.dead.list(older_than="7d")] == [old]
    assert [letter.id for letter in app.dead.list(newer_than="7d")] == [new]
    assert list(app.dead.list(older_than="7d", newer_than="7d")) == []
    assert (app.dead.count(), app.dead.count(older_than="7d")) == (2, 1)


# ---------------------------------------------------------------------------------------- changing


def test_retry_by_choice(app: Windlass, hand: Hand) -> None:
    one, two = bury(hand, "charge", 1), bury(hand, "charge", 2, KeyError("x"))
    three = bury(hand, "mail", "ann")
    assert app.dead.retry(one, one) == Changed(done=1)
    fingerprint = app.dead.get(two).fingerprint
    assert app.dead.retry(fingerprint=fingerprint) == Changed(done=1)
    assert state(app, three) is State.DEAD
    assert asyncio.run(app.dead.aretry(task="mail")) == Changed(done=1)
    assert app.dead.retry(everything=True) == Changed()
    assert [state(app, id) for id in (one, two, three)] == [State.READY] * 3


@pytest.mark.parametrize("verb", ["retry", "discard"])
def test_that_all_are_meant_has_to_be_said(app: Windlass, verb: str) -> None:
    for ids, choice in (((), {}), (("x",), {"task": "t"}), (("x",), {"everything": True})):
        with pytest.raises(TypeError, match="Expected which dead jobs are meant"):
            getattr(app.dead, verb)(*ids, **choice)


@pytest.mark.parametrize("verb", ["list", "alist", "groups", "count", "retry", "discard"])
def test_an_unknown_choice_never_means_all(app: Windlass, hand: Hand, verb: str) -> None:
    bury(hand, "charge", 1)
    with pytest.raises(
        TypeError, match=r"app\.dead takes no taks\. Did you mean task\? It takes task"
    ):
        getattr(app.dead, verb)(taks="mail")
    with pytest.raises(TypeError, match="task must be a task or its name, found <function mail"):
        getattr(app.dead, verb)(task=mail)
    assert app.dead.count() == 1


def test_a_task_is_chosen_by_itself(app: Windlass, hand: Hand) -> None:
    bury(hand, "mail", "ann")
    dead = bury(hand, "charge", 1)
    assert [letter.id for letter in app.dead.list(task=app.tasks["charge"])] == [dead]
    assert app.dead.discard(task=app.tasks["charge"]) == Changed(done=1)


def test_a_job_that_dies_again_is_not_met_twice(app: Windlass, hand: Hand) -> None:
    """Also over the end of a page, and while others die."""
    ids = {bury(hand, "charge", number) for number in range(5)}
    retried: list[str] = []
    for _ in app.dead.retrying(target(task="charge"), rate="20/s"):
        retried.append(hand.take().id)
        claim = app.engine.get([retried[-1]])[0]
        assert claim is not None
        app.engine.close(hand.session, [], "stopped")
        hand.session += "x"
        hand.bury(ValueError("again"))
        bury(hand, "charge", 99)
        if len(retried) > 20:
            break
    assert sorted(retried) == sorted(ids)


def test_what_was_retried_by_others_meanwhile_is_left_alone(app: Windlass, hand: Hand) -> None:
    for number in range(3):
        bury(hand, "charge", number)
    steps = app.dead.retrying(target(everything=True), rate="20/s")
    next(steps)
    for record in app.engine.find(Filter(state=State.DEAD)).records:
        retry_jobs(app.engine, [record.id])
    *_, last = steps
    assert last.changed == Changed(done=1, left=2)


def test_a_death_that_nobody_has_read_is_left_alone(app: Windlass, hand: Hand) -> None:
    for number in range(3):
        bury(hand, "charge", number)
    steps = app.dead.retrying(target(everything=True), rate="20/s")
    next(steps)
    retry_jobs(
        app.engine, [record.id for record in app.engine.find(Filter(state=State.DEAD)).records]
    )
    app.engine.clock_offset_ms += 1_000
    for _ in range(3):
        hand.bury(ValueError("again"))
    *_, last = steps
    assert last.changed == Changed(done=1, left=2)
    assert app.dead.count() == 3


def test_pages_neither_skip_nor_repeat(app: Windlass, hand: Hand) -> None:
    jobs = app.tasks["charge"].enqueue_many((number,) for number in range(PAGE + 7))
    claims = claim_jobs(app.engine, "s", "nonce-1", Plan(), PAGE + 7).claims
    ends = [
        Buried(id=claim.id, token=claim.token, reason=Reason.REJECTED, error=b"no")
        for claim in claims
    ]
    app.engine.finish(ends)
    app.dead.discard(jobs[3].id)
    letters = [letter.id for letter in app.dead.list()]
    assert sorted(letters) == sorted(job.id for job in jobs if job.id != jobs[3].id)
    assert app.dead.retry(everything=True) == Changed(done=PAGE + 6)


def test_a_rate_is_kept(app: Windlass, hand: Hand) -> None:
    for number in range(10):
        bury(hand, "charge", number)
    begin = time.monotonic()
    assert app.dead.retry(task="charge", rate="40/s") == Changed(done=10)
    assert 0.2 <= time.monotonic() - begin < 2.0
    with pytest.raises(ValueError, match="rate must be"):
        app.dead.retry(task="charge", rate="fast")


# ----------------------------------------------------------------------------------------- editing


def test_other_arguments(app: Windlass, hand: Hand, caplog: pytest.LogCaptureFixture) -> None:
    id = bury(hand, "charge", 1)
    with caplog.at_level(logging.WARNING, "windlass.dead_letters"):
        app.dead.retry_with(id, 2, currency="CHF")
    assert f'changing the arguments of {id} charge exhausted {{"args":[1]}}' in caplog.text
    info = app.job(id).info()
    assert info.state is State.READY
    assert info.error is not None
    assert info.error.message == "no such order 1"
    claim = hand.take()
    assert b'{"args":[2],"kwargs":{"currency":"CHF"}}' in claim.payload
    app.engine.finish(
        [Buried(id=id, token=claim.token, reason=Reason.REJECTED, error=b'{"message":"still"}')]
    )
    letter = app.dead.get(id)
    assert [entry.event for entry in letter.history] == ["bury", "revive", "bury"]
    assert (letter.history[1].call, letter.history[1].error) == ('{"args":[1]}', None)
    assert letter.error is not None
    assert letter.error.message == "still"
    asyncio.run(app.dead.aretry_with(id, 3))
    assert b'"args":[3]' in hand.take().payload


def test_what_cannot_be_verified_is_not_signed_anew(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'sealed.db'}"
    with Windlass(url, secret=SECRET, encrypt=True) as app, Windlass(url) as stranger:
        for one in (app, stranger):
            one.task(name="charge")(charge)
        hand = Hand(app)
        id = app.tasks["charge"].using(headers={"tenant": "a"}).enqueue(17).id
        hand.bury(ValueError("no such order"))
        with pytest.raises(MissingDecoder):
            stranger.dead.retry_with(id, 18)
        assert state(app, id) is State.DEAD
        assert app.dead.get(id).call == '{"args":[17]}'
        app.dead.retry_with(id, 18)
        info = app.job(id).info()
        assert (info.state, info.headers) == (State.READY, {"tenant": "a"})


def test_the_fingerprint_of_a_failure_that_cannot_be_read_is_known(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'sealed.db'}"
    with Windlass(url, secret=SECRET, encrypt=True) as app, Windlass(url) as stranger:
        job = app.task(name="lose", retry=Retry(max_attempts=1))(lose).enqueue()
        with app.worker(), pytest.raises(JobFailed):
            job.result(timeout=20)
        known, error = app.dead.get(job.id).fingerprint, app.dead.get(job.id).error
        assert error is not None
        assert known != error.fingerprint  # a guessed message cannot be compared
        for one in (app, stranger):
            assert [group.fingerprint for group in one.dead.groups()] == [known]
            assert [letter.fingerprint for letter in one.dead.list(fingerprint=known)] == [known]
        assert stranger.dead.regroup(everything=True) == app.dead.regroup(everything=True) == 0


def test_groups_of_releases(app: Windlass, hand: Hand) -> None:
    """A group is new if it has no death in the release, in an earlier one, or without one."""
    deaths = (("old", ""), ("old", "v3"), ("both", "v1"), ("both", "v3"), ("new", "v3"))
    for release in ("v1", "v2"):  # the first worker of v2 starts before that of v3
        app.engine.clock_offset_ms += 1
        note_release(app.engine, release)
    for message, release in deaths:
        app.engine.clock_offset_ms += 1
        hand.session = new_session("host", 1, release)
        bury(hand, "charge", 1, ValueError(message))
    new_in_v2 = ("middle", "v2")
    hand.session = new_session("host", 1, new_in_v2[1])
    bury(hand, "charge", 1, ValueError(new_in_v2[0]))

    def messages(**choice: Any) -> list[str]:
        groups = app.dead.groups(**choice)
        return sorted(group.error.message for group in groups if group.error is not None)

    assert messages() == ["both", "middle", "new", "old"]
    assert messages(new_since="v1") == ["middle", "new"]
    assert messages(new_since="v2") == ["new"]
    assert messages(new_since="v3") == []
    assert messages(release="v2") == ["middle"]
    assert messages(release="v3", new_since="v1") == ["new"]
    both = next(one for one in app.dead.groups() if one.error and one.error.message == "both")
    assert [(one.release, one.count) for one in both.releases] == [("v3", 1), ("v1", 1)]
    assert (both.first_at, both.last_at) == (both.releases[1].first_at, both.releases[0].last_at)
    assert both.queues == {"default": 2}
    assert app.dead.count(release="v3") == 3
    assert {letter.release for letter in app.dead.list(release="v3")} == {"v3"}
    assert app.dead.retry(release="v3", fingerprint=both.fingerprint).done == 1
    assert app.dead.count(fingerprint=both.fingerprint) == 1


def test_groups_beyond_the_limit_are_left_out(
    app: Windlass, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers of the groups that are left are exact, although small parts were not read."""
    for message, release in (("a", "v1"), ("a", "v1"), ("a", "v2"), ("b", "v1"), ("b", "v1")):
        hand.session = new_session("host", 1, release)
        bury(hand, "charge", 1, ValueError(message))
    tallies = type(app.engine).dead_tallies
    monkeypatch.setattr(
        type(app.engine),
        "dead_tallies",
        lambda self, only=None, limit=2: tallies(self, only, limit if only is None else 1_000),
    )
    found = read_groups(app.engine, GroupChoice(new_since="v1"), app.packing)
    assert [(group.count, group.is_new) for group in found.groups] == [(3, False), (2, False)]
    assert not found.is_exact
    assert len(read_groups(app.engine, GroupChoice(limit=1), app.packing).groups) == 1


def test_a_group_that_is_retried_meanwhile_is_left_out(
    app: Windlass, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small parts of groups are read by a second call: a group may be gone by then."""
    ids = []
    for message, release in (("a", "v1"), ("a", "v1"), ("a", "v2"), ("b", "v1"), ("b", "v1")):
        hand.session = new_session("host", 1, release)
        ids.append(bury(hand, "charge", 1, ValueError(message)))
    tallies = type(app.engine).dead_tallies

    def read(engine: Any, only: list[str] | None = None, limit: int = 2) -> DeadTallies:
        if only is None:
            return tallies(engine, only, limit)
        retry_jobs(engine, ids[3:])
        return tallies(engine, only)

    monkeypatch.setattr(type(app.engine), "dead_tallies", read)
    found = read_groups(app.engine, GroupChoice(), app.packing)
    assert [group.count for group in found.groups] == [3]


def test_parts_of_many_groups_are_all_read(
    app: Windlass, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One call has a limit, which groups of many releases exceed."""
    for message, releases in (("a", 4), ("b", 3)):
        for number in range(releases):
            hand.session = new_session("host", 1, f"v{number}")
            bury(hand, "charge", 1, ValueError(message))
    tallies = type(app.engine).dead_tallies
    monkeypatch.setattr(
        type(app.engine),
        "dead_tallies",
        lambda self, only=None, limit=5: tallies(self, only, limit),
    )
    monkeypatch.setattr("windlass.dead_groups.WHOLE_GROUPS", 1, raising=False)
    found = read_groups(app.engine, GroupChoice(), app.packing)
    assert [group.count for group in found.groups] == [4, 3]


def test_dead_jobs_without_a_fingerprint_get_one(app: Windlass, hand: Hand) -> None:
    """Jobs that an earlier version ended: a label of a page at a time."""
    app.tasks["charge"].enqueue_many([(number,) for number in range(60)])
    error = FailureText.of(ValueError("no")).pack()
    claims = claim_jobs(app.engine, "w", "n", Plan(), 60).claims
    buried: dict[str, Any] = {"reason": Reason.EXHAUSTED, "error": error}
    app.engine.finish([Buried(id=one.id, token=one.token, **buried) for one in claims])
    assert [group.fingerprint for group in app.dead.groups()] == [""]
    assert asyncio.run(app.dead.aregroup()) == 60
    (group,) = app.dead.groups()
    assert (group.fingerprint, group.count) == (FailureText.unpack(error).fingerprint, 60)
    assert app.dead.regroup() == 0


def lose() -> None:
    raise ValueError("no such order")


def test_arguments_that_do_not_fit_change_nothing(app: Windlass, hand: Hand) -> None:
    id = bury(hand, "charge", 1)
    with pytest.raises(TypeError):
        app.dead.retry_with(id)
    with pytest.raises(EncodeError):
        app.dead.retry_with(id, object())
    assert app.dead.get(id).call == '{"args":[1]}'


def test_an_unknown_task_is_looked_for_in_what_is_included(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path / 'shared.db'}"
    (tmp_path / "charging.py").write_text(
        "import base_of_charging\n\n"
        "@base_of_charging.app.task(name='charge')\n"
        "def charge(cents: int) -> None: ...\n"
    )
    (tmp_path / "base_of_charging.py").write_text(
        f"from windlass import Windlass\napp = Windlass({url!r}, include=['charging'])\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    for module in ("base_of_charging", "charging"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    with Windlass(url) as producer:
        id = producer.task_named("charge").enqueue(1).id
        Hand(producer).bury(ValueError("no"))
    with importlib.import_module("base_of_charging").app as app:
        with pytest.raises(EncodeError, match="cents"):
            app.dead.retry_with(id, "many")
        asyncio.run(app.dead.aretry_with(id, 2))
        assert state(app, id) is State.READY


def test_arguments_of_an_unknown_task_are_refused(app: Windlass, hand: Hand) -> None:
    id = bury(hand, "charge", 1)
    with Windlass(app.settings.url) as stranger:
        stranger.task(name="charges")(charge)
        with pytest.raises(InvalidTask):
            asyncio.run(stranger.dead.aretry_with(id, 2))
        with pytest.raises(InvalidTask) as caught:
            stranger.dead.retry_with(id, 2)
    told = str(caught.value)
    assert "this app has no task charge, so they cannot be checked. Did you mean charges?" in told
    assert "app.task_named('charge').enqueue(...)" in told
    assert f"`windlass job edit {id} --args ... --unchecked`" in told
    assert app.dead.get(id).call == '{"args":[1]}'


def test_a_taken_key_keeps_the_letter_as_it_was(app: Windlass, hand: Hand) -> None:
    task = app.task(name="unique", unique=Unique(by="currency"))(charge)
    id = task.enqueue(1).id
    hand.bury(ValueError("no"))
    holder = task.enqueue(2).id
    with pytest.raises(DuplicateJob, match=holder):
        app.dead.retry_with(id, 3)
    with pytest.raises(DuplicateJob, match=holder):
        asyncio.run(app.dead.aretry_with(id, 3))
    assert app.dead.get(id).call == '{"args":[1]}'
    assert app.dead.retry(id) == Changed(duplicates=1)


# -------------------------------------------------------------------------------------- discarding


def test_nothing_is_discarded_without_a_line(
    app: Windlass, hand: Hand, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = bury(hand, "charge", 1), bury(hand, "mail", "x" * 2 * MAX_LOGGED)
    with caplog.at_level(logging.WARNING, "windlass.dead_letters"):
        assert app.dead.discard(task="charge") == Changed(done=1)
        assert asyncio.run(app.dead.adiscard(other)) == Changed(done=1)
    first, second = caplog.messages
    assert first == f'discarding {one} charge exhausted {{"args":[1]}}'
    assert second.startswith(f"discarding {other} mail exhausted")
    assert second.endswith(f"xxx... ({2 * MAX_LOGGED + 13:,} characters)")
    with pytest.raises(JobNotFound):
        app.dead.get(one)


def test_log_lines_show_no_secrets(
    app: Windlass, hand: Hand, caplog: pytest.LogCaptureFixture
) -> None:
    app.task(name="login")(login)
    job = app.tasks["login"].enqueue("ann", "hunter2", {"token": "t"})
    hand.bury(ValueError("no"))
    app.dead.retry_with(job.id, "ann", "hunter3", {})
    hand.bury(ValueError("no"))
    app.dead.discard(job.id)
    changed, discarded = caplog.messages
    shown = '{"args":["ann","[redacted]",{"token":"[redacted]"}]}'
    assert changed == f"changing the arguments of {job.id} login exhausted {shown}"
    assert discarded.endswith('{"args":["ann","[redacted]",{}]}')


def login(user: str, password: str, more: dict[str, str]) -> None:
    """A task with secret arguments."""


def test_a_damaged_letter_keeps_nobody_from_the_others(caplog: pytest.LogCaptureFixture) -> None:
    server = shared_server()
    with Windlass(server.url(namespace="damaged-letter")) as app:
        app.task(name="charge")(charge)
        hand = Hand(app)
        ids = [bury(hand, "charge", number) for number in range(3)]
        entry = f"f:0:{ids[1]}"
        assert server.tell("HSET", key("damaged-letter", 0, "extra"), entry, "?") == b":0\r\n"
        assert [letter.id for letter in app.dead.list()] == [ids[2], ids[0]]
        assert f"skipping unreadable dead job {ids[1]}: DecodeError" in caplog.text
        assert app.dead.discard(everything=True) == Changed(done=2)
        app.engine.clock_offset_ms = 14 * DAY_MS
        sweep(app.engine, app.engine.tend(()).doomed, CallRedactor.of(app))
        assert app.dead.count() == 0
        assert app.engine.check() == []


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"encrypt": True}, f"(encrypted with key {Keyring([SECRET]).writing.name})"),
        ({"codec": "pickle"}, "(written by the codec pickle, which is not shown)"),
        ({"codec": "msgpack"}, '{"args":[1]}'),
    ],
)
def test_a_line_does_not_say_what_an_app_lacks(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, settings: Any, words: str
) -> None:
    with Windlass(f"sqlite:///{tmp_path / 'sealed.db'}", secret=SECRET, **settings) as app:
        app.task(name="charge")(charge)
        hand = Hand(app)
        id = bury(hand, "charge", 1)
        with caplog.at_level(logging.WARNING, "windlass.dead_letters"):
            app.dead.retry_with(id, 1)
            hand.bury(ValueError("no"))
            app.dead.discard(id)
    verbs = ("changing the arguments of", "discarding")
    assert caplog.messages == [f"{verb} {id} charge exhausted {words}" for verb in verbs]
