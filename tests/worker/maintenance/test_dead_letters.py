"""Dead letters: a log line for each that expires."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn, cast

import pytest

from tests.app.hand import Hand, bury_jobs
from tests.contract.variants import fresh_url
from tests.worker.faulty import Faulty, lose_request, once
from windlass import EngineUnavailable, Reason, State, Windlass
from windlass.calls.redaction import CallRedactor, sensitive_parameters
from windlass.engine.contract import BITE, Buried, Engine, Plan
from windlass.testing.contract.world import claim_jobs
from windlass.worker.maintenance.dead_letters import sweep

TWO_WEEKS_MS = 14 * 86_400_000


@pytest.fixture(params=["sqlite-file", "redis-4", "postgres"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Windlass]:
    with Windlass(fresh_url(request.param, tmp_path)) as app:
        app.task(name="nothing")(nothing)
        yield app


def nothing(number: int) -> None:
    """A task."""


def text(words: str) -> None:
    """A task with a long argument."""


def bury(app: Windlass, number: int = 1) -> list[str]:
    return bury_jobs(app, "nothing", number)


# ---------------------------------------------------------------------------------------- sweeping


def test_nothing_is_swept_without_a_line(app: Windlass, caplog: pytest.LogCaptureFixture) -> None:
    [old] = bury(app)
    app.engine.clock_offset_ms = TWO_WEEKS_MS
    [new] = bury(app)
    with caplog.at_level(logging.WARNING, "windlass.dead_letters"):
        doomed = app.engine.tend(()).doomed
        assert doomed == (old,)
        sweep(app.engine, doomed, CallRedactor.of(app))
    assert caplog.messages == [
        f"removing job {old} of task nothing, dead (exhausted) for longer than dead_ttl; "
        'its call: {"args":[0]}'
    ]
    assert app.engine.get([old]) == [None]
    assert app.job(new).info().state is State.DEAD


def test_a_line_about_a_long_call_is_short(app: Windlass, caplog: pytest.LogCaptureFixture) -> None:
    app.task(name="text")(text)
    hand = Hand(app)
    job = app.tasks["text"].enqueue("x" * 100_000)
    hand.bury(ValueError("no"))
    app.engine.clock_offset_ms = TWO_WEEKS_MS
    with caplog.at_level(logging.WARNING, "windlass.dead_letters"):
        sweep(app.engine, app.engine.tend(()).doomed, CallRedactor.of(app))
    [line] = caplog.messages
    assert line.startswith(f"removing job {job.id} of task text, dead (exhausted)")
    assert line.endswith("xxx... (100,013 characters)")
    assert len(line) < 1_300


def test_a_line_shows_no_secrets(app: Windlass, caplog: pytest.LogCaptureFixture) -> None:
    """Not even in a supervisor, which does not have the code of the tasks."""
    app.task(name="login", aliases=["enter"])(login)
    app.tasks["login"].enqueue("ann", "hunter2", more={"apiKey": "k"})
    Hand(app).bury(ValueError("no"))
    app.engine.clock_offset_ms = TWO_WEEKS_MS
    bury(app)
    app.engine.clock_offset_ms = 2 * TWO_WEEKS_MS
    parameters = sensitive_parameters(app)
    assert set(parameters) == {"login", "enter"}
    with caplog.at_level(logging.WARNING, "windlass.dead_letters"):
        doomed = app.engine.tend(()).doomed
        sweep(app.engine, doomed, CallRedactor.without_code(app.settings.redact, parameters))
    lines = sorted(line.partition("its call: ")[2] for line in caplog.messages)
    assert lines == [
        '{"args":["ann","[redacted]"],"kwargs":{"more":{"apiKey":"[redacted]"}}}',
        '{"args":[0]}',
    ]


def login(user: str, password: str, more: dict[str, str]) -> None:
    """A task with secret arguments."""


def test_a_line_comes_before_the_end(app: Windlass, caplog: pytest.LogCaptureFixture) -> None:
    [old] = bury(app)
    app.engine.clock_offset_ms = TWO_WEEKS_MS
    faulty = Faulty(app.engine)
    faulty.faults["tend"] = once(lose_request)
    with caplog.at_level(logging.WARNING, "windlass.dead_letters"):
        with pytest.raises(EngineUnavailable):
            sweep(cast(Engine, faulty), [old], CallRedactor.of(app))
        assert len(caplog.messages) == 1
        assert app.job(old).info().state is State.DEAD
        sweep(app.engine, [old], CallRedactor.of(app))
    assert len(caplog.messages) == 2
    assert app.engine.get([old]) == [None]


def test_a_record_that_cannot_be_read_keeps_no_other_from_being_swept(
    app: Windlass, caplog: pytest.LogCaptureFixture
) -> None:
    ids = bury(app, 3)
    app.engine.clock_offset_ms = TWO_WEEKS_MS
    faulty = Faulty(app.engine)

    def choke(real: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
        if ids[1] in arguments[0]:
            raise ValueError("'burned' is not a valid Reason")
        return real()

    faulty.faults["get"] = choke
    with caplog.at_level(logging.WARNING, "windlass.dead_letters"):
        sweep(cast(Engine, faulty), ids, CallRedactor.of(app))
    said = [message for message in caplog.messages if message.startswith("removing ")]
    assert [message.partition("job ")[2].split()[0].strip(",") for message in said] == ids
    assert said[1] == (
        f"removing unreadable job {ids[1]}, dead for longer than dead_ttl: "
        "ValueError: 'burned' is not a valid Reason"
    )
    assert app.engine.get(ids) == [None] * 3


@pytest.mark.parametrize("refuses_all", [True, False])
def test_an_engine_that_refuses_makes_nothing_be_swept_unread(
    app: Windlass, refuses_all: bool
) -> None:
    ids = bury(app, 2)
    app.engine.clock_offset_ms = TWO_WEEKS_MS
    faulty = Faulty(app.engine)

    def refuse(real: Callable[[], Any], arguments: tuple[Any, ...]) -> NoReturn:
        if refuses_all or len(arguments[0]) == 1:
            raise EngineUnavailable("it is away")
        raise ValueError("one of them is damaged")

    faulty.faults["get"] = refuse
    with pytest.raises(EngineUnavailable):
        sweep(cast(Engine, faulty), ids, CallRedactor.of(app))
    assert faulty.calls == ["get"] * (1 if refuses_all else 2)
    assert app.dead.count() == 2


def test_a_bite_is_bounded(app: Windlass) -> None:
    app.tasks["nothing"].enqueue_many((number,) for number in range(BITE + 3))
    claims = claim_jobs(app.engine, "s", "nonce-1", Plan(), BITE + 3).claims
    app.engine.finish(
        [Buried(id=one.id, token=one.token, reason=Reason.REJECTED, error=b"") for one in claims]
    )
    app.engine.clock_offset_ms = TWO_WEEKS_MS
    swept = 0
    while (tended := app.engine.tend(())).doomed:
        assert len(tended.doomed) <= BITE * 4
        sweep(app.engine, tended.doomed, CallRedactor.of(app))
        swept += len(tended.doomed)
    assert swept == BITE + 3
    assert app.dead.count() == 0
