"""Options of tasks and calls, and the errors for invalid ones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from windlass import Retry, Windlass
from windlass.client.options import Choices, Moment, read_call_options, read_task_options
from windlass.core.durations import LATEST_YEAR
from windlass.engine.contract import NewJob

NEW_YEAR = datetime(2030, 1, 1, tzinfo=UTC)
NEW_YEAR_MS = 1_893_456_000_000
READERS = [read_task_options, read_call_options]


@pytest.mark.parametrize("read", READERS)
def test_options_for_both(read: Any) -> None:
    policy = Retry(max_attempts=2)
    assert read(
        {
            "queue": "mail",
            "priority": -100,
            "retry": policy,
            "timeout": "30s",
            "expires": "1h",
            "result_ttl": 0,
        }
    ) == Choices(
        queue="mail",
        priority=-100,
        retry=policy,
        timeout_ms=30_000,
        expires=Moment(in_ms=3_600_000),
        result_ttl_ms=0,
    )


def test_options_of_a_call_only() -> None:
    assert read_call_options({"run_after": "2h", "idempotency_key": "k"}) == Choices(
        run_after=Moment(in_ms=7_200_000), idempotency_key="k"
    )


@pytest.mark.parametrize("name", ["run_after", "expires"])
def test_a_moment_is_a_distance_or_an_instant(name: str) -> None:
    distance, instant = (read_call_options({name: value}) for value in (timedelta(1), NEW_YEAR))
    assert getattr(distance, name) == Moment(in_ms=86_400_000)
    assert getattr(instant, name) == Moment(at_ms=NEW_YEAR_MS)


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize(
    ("name", "value", "error", "words"),
    [
        ("queue", "", ValueError, "queue must be 1 to 64 characters .* found ''"),
        ("queue", ".hidden", ValueError, "the first one a letter or a digit, found '.hidden'"),
        ("queue", "a" * 65, ValueError, "queue must be 1 to 64 characters"),
        ("queue", "e-mail\n", ValueError, "queue must be 1 to 64 characters"),
        ("queue", None, TypeError, "queue must be .* found None"),
        ("priority", 101, ValueError, "priority must be a whole number from -100 to 100"),
        ("priority", -101, ValueError, "priority must be a whole number from -100 to 100"),
        ("priority", True, ValueError, "priority must be .* found True"),
        ("priority", 1.0, TypeError, "priority must be .* found 1.0"),
        ("retry", 3, ValueError, r"retry must be a .*, such as Retry\(max_attempts=3\), found 3"),
        ("expires", datetime(2030, 1, 1), ValueError, "expires must be .* the naive 2030"),  # noqa: DTZ001
        ("expires", "tomorrow", ValueError, "expires must be seconds as a number"),
        ("timeout", -1, ValueError, "timeout must not be negative"),
        ("timeout", None, TypeError, "timeout must be seconds"),
        ("result_ttl", -1, ValueError, "result_ttl must not be negative"),
        ("result_ttl", None, TypeError, "result_ttl must be seconds"),
    ],
)
def test_a_wrong_value_is_refused(
    read: Any, name: str, value: object, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        read({name: value})


@pytest.mark.parametrize("key", ["", "x" * 257, 42])
def test_a_wrong_key_is_refused(key: object) -> None:
    with pytest.raises((TypeError, ValueError), match="idempotency_key must be text of 1 to 256"):
        read_call_options({"idempotency_key": key})


def test_a_naive_start_is_refused() -> None:
    with pytest.raises(ValueError, match="run_after must be a datetime with a time zone"):
        read_call_options({"run_after": datetime(2030, 1, 1)})  # noqa: DTZ001  # the subject


def test_a_policy_that_cannot_travel_is_refused_for_a_call_only() -> None:
    policy = Retry(retry_on=ValueError)
    assert read_task_options({"retry": policy}).retry is policy
    with pytest.raises(TypeError, match="give this policy to the task instead"):
        read_call_options({"retry": policy})


@pytest.mark.parametrize("name", ["run_after", "expires"])
def test_an_instant_that_not_every_engine_can_store_is_refused(name: str) -> None:
    latest = datetime(LATEST_YEAR, 1, 1, tzinfo=UTC) - timedelta(milliseconds=1)
    assert read_call_options({name: latest}) != read_call_options({})
    for found in (latest + timedelta(milliseconds=1), datetime.max.replace(tzinfo=UTC)):
        with pytest.raises(ValueError, match=rf"^{name} must be before the year 5000, found "):
            read_call_options({name: found})


# ------------------------------------------------------------------------------- the wrong place


@pytest.mark.parametrize("name", ["run_after", "idempotency_key"])
def test_an_option_of_a_call_is_sent_there(app: Windlass, name: str) -> None:
    options: dict[str, Any] = {name: "1h"}
    with pytest.raises(TypeError, match=rf"^{name} belongs to a call: write task\.using\({name}="):
        app.task(**options)


@pytest.mark.parametrize("name", ["name", "takes_context", "run_in", "unique"])
def test_an_option_of_the_task_is_sent_there(app: Windlass, name: str) -> None:
    @app.task
    def work() -> None: ...

    options: dict[str, Any] = {name: "x"}
    with pytest.raises(TypeError, match=rf"^{name} belongs to the task: write @app\.task\({name}="):
        work.using(**options)


#: What the design names and this version does not do: refused, never accepted and ignored.
NOT_YET = ["breaker", "concurrency", "rate", "tenant"]


@pytest.mark.parametrize("name", [*NOT_YET, "path"])
@pytest.mark.parametrize("place", ["task", "using"])
def test_an_unknown_option_is_refused(app: Windlass, name: str, place: str) -> None:
    @app.task
    def work() -> None: ...

    options: dict[str, Any] = {name: 1}
    with pytest.raises(TypeError, match=rf"{place}\(\.\.\.\) takes no option {name}\.") as caught:
        (app.task if place == "task" else work.using)(**options)
    assert "It takes queue, priority, retry, timeout, expires, result_ttl" in str(caught.value)


def test_a_slip_is_told_the_right_name(app: Windlass) -> None:
    @app.task
    def work() -> None: ...

    options: dict[str, Any] = {"priorty": 1}
    with pytest.raises(TypeError, match=r"no option priorty\. Did you mean priority\?"):
        work.using(**options)


# ------------------------------------------------------------------------------ what has precedence


def stored(app: Windlass, monkeypatch: pytest.MonkeyPatch) -> list[NewJob]:
    """What reaches the engine from now on."""
    jobs: list[NewJob] = []
    put = app.engine.put

    def noting_put(batch: Any) -> Any:
        jobs.extend(batch)
        return put(batch)

    monkeypatch.setattr(app.engine, "put", noting_put)
    return jobs


def test_a_call_s_choice_comes_before_the_task_s(
    app: Windlass, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task(queue="mail", priority=5, expires="1h")
    def work() -> None: ...

    jobs = stored(app, monkeypatch)
    work.enqueue()
    work.using(queue="bulk", expires=NEW_YEAR, run_after="1m").enqueue()
    work.using(queue="bulk").using(priority=0).enqueue()
    declared, chosen, twice = jobs
    assert (declared.queue, declared.priority, declared.expires_in_ms) == ("mail", 5, 3_600_000)
    assert (chosen.queue, chosen.priority) == ("bulk", 5)
    assert (chosen.expires_ms, chosen.expires_in_ms) == (NEW_YEAR_MS, None)
    assert (chosen.run_after_ms, chosen.run_in_ms) == (None, 60_000)
    assert (twice.queue, twice.priority) == ("bulk", 0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"run_after": "1m", "expires": "1s"}, "run_after, which is 1m, or .* never run, found 1s"),
        ({"run_after": "1h"}, "which is 1h, .* found 1h"),
        (
            {"run_after": NEW_YEAR, "expires": NEW_YEAR - timedelta(seconds=1)},
            r"which is 2030-01-01T00:00:00\+00:00, .* found 2029-12-31T23:59:59",
        ),
    ],
    ids=["relative", "by the task", "absolute"],
)
def test_a_job_that_could_never_run_is_refused(
    app: Windlass, options: dict[str, Any], words: str
) -> None:
    @app.task(expires="1h")
    def work() -> None: ...

    with pytest.raises(ValueError, match=words):
        work.using(**options)
    work.using(run_after="59m").using(run_after=NEW_YEAR)  # the engine's clock decides


def test_the_task_itself_is_never_changed(app: Windlass) -> None:
    @app.task(queue="mail")
    def work() -> None: ...

    other = work.using(queue="bulk", priority=7)
    assert (work.queue, work.priority, other.queue, other.priority) == ("mail", 0, "bulk", 7)
    assert other.name == work.name
    assert app.tasks[work.name] is work
