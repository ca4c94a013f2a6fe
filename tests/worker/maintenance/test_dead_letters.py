"""Dead letters: a log line for each that expires, alerts when they pile up."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any, NoReturn, cast

import pytest

from tests.app.hand import Hand
from tests.contract.variants import fresh_url
from tests.worker.faulty import Faulty, lose_request, once
from tests.worker.yard import Yard, until
from windlass import DeadAlert, EngineUnavailable, Reason, State, Windlass
from windlass.core.ids import new_session
from windlass.core.introduction import Introduction
from windlass.engine.contract import BITE, Beat, Buried, Engine, Plan
from windlass.testing.contract.world import claim_jobs
from windlass.worker.maintenance import dead_letters
from windlass.worker.maintenance.dead_letters import DeadWatch, sweep

TWO_WEEKS_MS = 14 * 86_400_000


@pytest.fixture(params=["sqlite-file", "redis-4"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Windlass]:
    with Windlass(fresh_url(request.param, tmp_path), dead_alert=3, dead_alert_growth=4) as app:
        app.task(name="nothing")(nothing)
        yield app


def nothing(number: int) -> None:
    """A task."""


def text(words: str) -> None:
    """A task with a long argument."""


def bury(app: Windlass, number: int = 1) -> list[str]:
    hand, ids = Hand(app), []
    hand.session = new_session("hand", 1)
    for at in range(number):
        ids.append(app.tasks["nothing"].enqueue(at).id)
        hand.bury(ValueError("no"))
    app.engine.close(hand.session, (), "done")
    return ids


def let_live(app: Windlass, *sessions: str, depth: int = 3, growth: int = 4) -> None:
    info = Introduction(dead_alert=depth, dead_alert_growth=growth).pack()
    app.engine.beat([Beat(session=session, info=info) for session in sessions])


def watch(app: Windlass, *own: str) -> tuple[DeadWatch, list[DeadAlert]]:
    alerts: list[DeadAlert] = []
    settings = app.settings
    depth, growth = settings.dead_alert, settings.dead_alert_growth
    return DeadWatch(app.engine, depth, growth, lambda: own, alerts.append), alerts


# ---------------------------------------------------------------------------------------- sweeping


def test_nothing_is_swept_without_a_line(app: Windlass, caplog: pytest.LogCaptureFixture) -> None:
    [old] = bury(app)
    app.engine.clock_offset_ms = TWO_WEEKS_MS
    [new] = bury(app)
    with caplog.at_level(logging.WARNING, "windlass.dead_letters"):
        doomed = app.engine.tend(()).doomed
        assert doomed == (old,)
        sweep(app.engine, doomed)
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
        sweep(app.engine, app.engine.tend(()).doomed)
    [line] = caplog.messages
    assert line.startswith(f"removing job {job.id} of task text, dead (exhausted)")
    assert line.endswith("xxx... (100,013 characters)")
    assert len(line) < 1_300


def test_a_line_comes_before_the_end(app: Windlass, caplog: pytest.LogCaptureFixture) -> None:
    [old] = bury(app)
    app.engine.clock_offset_ms = TWO_WEEKS_MS
    faulty = Faulty(app.engine)
    faulty.faults["tend"] = once(lose_request)
    with caplog.at_level(logging.WARNING, "windlass.dead_letters"):
        with pytest.raises(EngineUnavailable):
            sweep(cast(Engine, faulty), [old])
        assert len(caplog.messages) == 1
        assert app.job(old).info().state is State.DEAD
        sweep(app.engine, [old])
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
        sweep(cast(Engine, faulty), ids)
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
        sweep(cast(Engine, faulty), ids)
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
        sweep(app.engine, tended.doomed)
        swept += len(tended.doomed)
    assert swept == BITE + 3
    assert app.dead.count() == 0


# ---------------------------------------------------------------------------------------- alerting


def test_one_alert_for_each_crossing(app: Windlass, caplog: pytest.LogCaptureFixture) -> None:
    let_live(app, "a")
    watching, alerts = watch(app, "a")
    bury(app, 3)
    watching.look()
    assert alerts == []
    bury(app)
    with caplog.at_level(logging.WARNING, "windlass.dead_letters"):
        watching.look()
        watching.look()
    assert [(alert.kind, alert.dead) for alert in alerts] == [("depth", 4)]
    assert caplog.messages == ["there are 4 dead jobs, more than 3: see windlass dead list --group"]
    ids = [letter.id for letter in app.dead.list()]
    app.dead.discard(*ids[:1])
    watching.look()  # three is not well below three
    bury(app)
    watching.look()
    assert len([alert for alert in alerts if alert.kind == "depth"]) == 1
    app.dead.discard(*ids[1:])
    watching.look()
    bury(app, 3)
    watching.look()
    assert len([alert for alert in alerts if alert.kind == "depth"]) == 2


def test_growth_is_that_of_a_window(app: Windlass, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000.0
    monkeypatch.setattr(dead_letters, "monotonic", lambda: now)
    let_live(app, "a")
    watching, alerts = watch(app, "a")
    watching.look()
    for _ in range(3):
        app.dead.discard(*bury(app, 2))
        now += 200
        watching.look()
    assert alerts == [], "four within five minutes are not more than four"
    app.dead.discard(*bury(app, 3))
    watching.look()
    assert [(alert.kind, alert.grown, alert.dead) for alert in alerts] == [("growth", 5, 0)]


def test_one_worker_speaks_for_all(app: Windlass, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "TURN_S", 0.0)
    let_live(app, "a", "b")
    first, said = watch(app, "a")
    second, heard = watch(app, "b", "c")
    bury(app, 4)
    second.look()
    first.look()
    second.look()
    assert (len(said), len(heard)) == (1, 0)
    app.engine.close("a", (), "stopped")
    second.look()
    assert len(heard) == 1, "the next worker takes over"


@pytest.mark.parametrize(
    ("depth", "growth", "expected"),
    [
        (0, 0, ["depth", "growth"]),  # it does not look at all
        (0, 4, ["depth"]),
        (3, 0, ["growth"]),
        (100, 4, ["depth"]),  # it bears more
    ],
)
def test_a_worker_that_keeps_silent_itself_does_not_silence_others(
    app: Windlass, depth: int, growth: int, expected: list[str]
) -> None:
    app.engine.beat([Beat(session="0-says-nothing", info=b"here")])
    let_live(app, "a", depth=depth, growth=growth)
    let_live(app, "b")
    watching, alerts = watch(app, "b")
    watching.look()
    bury(app, 5)
    watching.look()
    assert [alert.kind for alert in alerts] == expected


def test_every_child_says_what_its_worker_looks_after(tmp_path: Path) -> None:
    yard = Yard(tmp_path, "30s", "5s", 3)
    thresholds = {"WINDLASS_DEAD_ALERT": "7", "WINDLASS_DEAD_ALERT_GROWTH": "8"}
    worker = yard.start(processes=2, environment=thresholds)
    infos = until(lambda: (got := yard.app.engine.sessions())[1:] and got, "both")
    known = [Introduction.unpack(one.info) for one in infos]
    assert {(one.dead_alert, one.dead_alert_growth) for one in known} == {(7, 8)}
    assert worker.stop() == 0
    yard.close()


def test_without_thresholds_nobody_looks(app: Windlass) -> None:
    watching = DeadWatch(app.engine, 0, 0, lambda: ["a"], lambda alert: None)
    assert watching.look() == float("inf")


def test_a_worker_calls_the_hooks(app: Windlass, caplog: pytest.LogCaptureFixture) -> None:
    told, alerts = Event(), []

    @app.on_dead_alert
    def fail(alert: DeadAlert) -> None:
        raise RuntimeError("no pager")

    @app.on_dead_alert
    def page(alert: DeadAlert) -> None:
        alerts.append(alert)
        told.set()

    bury(app, 4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dead_letters, "LOOK_S", 0.02)
        with app.worker(slots=1):
            until(told.is_set, "the alert")
    assert [(alert.kind, alert.dead) for alert in alerts] == [("depth", 4)]
    assert "alert hook for dead jobs failed" in caplog.text
