"""Names from other task queues: each error names the equivalent."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from windlass import Every, Retry, SettingError, State, Task, Windlass
from windlass.client.options import CallOptions
from windlass.context import Context
from windlass.core.foreign_words import (
    ATTRIBUTES,
    OF_APPS,
    OF_CONTEXTS,
    OF_JOBS,
    OF_SETTINGS,
    nearest_dotted,
)
from windlass.core.serialization.signature import OPTIONS
from windlass.settings import SETTINGS


@pytest.fixture
def resize(app: Windlass) -> Any:
    @app.task
    def resize(path: str, widths: list[int], *, sharpen: bool = False) -> None: ...

    return resize


@pytest.mark.parametrize(
    ("attribute", "said"),
    [
        ("delay", r"A task has no delay: write task\.enqueue\(\.\.\.\)\."),
        ("apply_async", r"write task\.using\(\.\.\.\)\.enqueue\(\.\.\.\): options go to using"),
        ("send", r"write task\.enqueue"),
        ("s", r"write task\.bind"),
        ("enqeue", r"A task has no enqeue\. Did you mean enqueue\?"),
        ("nothing_like_it", r"A task has no nothing_like_it\.$"),
    ],
)
def test_attributes_of_other_libraries(resize: Any, attribute: str, said: str) -> None:
    assert not hasattr(resize, attribute)
    with pytest.raises(AttributeError, match=said):
        getattr(resize, attribute)


def test_none_of_them_hides_one_of_ours(resize: Task[..., None]) -> None:
    assert not set(ATTRIBUTES) & set(dir(resize))


@pytest.mark.parametrize(
    ("keywords", "said"),
    [
        (
            {"countdown": 5},
            r"countdown'\. An option is not an argument: write task\.using\(run_after=",
        ),
        ({"eta": 5}, r"'eta'\. An option is not an argument: write task\.using\(run_after="),
        (
            {"run_after": 5},
            r"An option is not an argument: write task\.using\(run_after=\.\.\.\)\.",
        ),
        ({"queue": "mail"}, r"An option is not an argument: write task\.using\(queue=\.\.\.\)\."),
        ({"sharpn": True}, r"unexpected keyword argument 'sharpn'\. Did you mean sharpen\?"),
        ({"zzz": True}, r"unexpected keyword argument 'zzz'$"),
    ],
)
def test_options_among_the_arguments(resize: Any, keywords: dict[str, Any], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        resize.enqueue("cat.jpg", [100], **keywords)


def test_a_misspelt_argument_is_not_reported_as_a_missing_one(resize: Any) -> None:
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'width'\. Did you mean wid"):
        resize.enqueue("cat.jpg", width=[100])
    with pytest.raises(TypeError, match="missing a required argument: 'widths'"):
        resize.enqueue("cat.jpg")


def test_a_function_that_takes_any_keyword_takes_these_too(app: Windlass) -> None:
    @app.task
    def work(**options: int) -> None: ...

    assert work.enqueue(countdown=5, queue=1).created


def test_all_options_of_a_call_are_known_as_options() -> None:
    assert set(OPTIONS) == set(CallOptions.__annotations__)


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("countdown", r"using\(\.\.\.\) takes no option countdown: write task\.using\(run_after="),
        ("max_retries", r"write @app\.task\(retry=Retry\(\.\.\.\)\)"),
        ("on_failure", r"@app.task\(on_dead=...\)"),
        ("acks_late", "always acknowledged when it has ended"),
    ],
)
def test_options_of_other_libraries(resize: Any, option: str, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        resize.using(**{option: 1})


def test_raising_a_policy_says_what_to_raise(app: Windlass) -> None:
    @app.task(retry=Retry(max_attempts=1))
    def work() -> None:
        raise Retry(3)  # type: ignore[misc]  # the subject

    job = work.enqueue()
    with app.worker(), pytest.raises(Exception, match=r"raises RetryLater\(60\)"):
        job.result(timeout=20)
    assert job.info().state is State.DEAD


# ------------------------------------------------------------- jobs, apps, contexts and policies


def context() -> Context:
    return Context(
        job_id="1", task="t", queue="q", attempt=1, max_attempts=1, sink=lambda _progress: None
    )


@pytest.mark.parametrize(
    ("attribute", "said"),
    [
        ("get", r"A job has no get: write job\.result\(timeout=\.\.\.\)"),
        ("state", r"write job\.info\(\)\.state\."),
        ("status", r"write job\.info\(\)\.state\."),
        ("ready", r"write job\.info\(\)\.state\.is_final\."),
        ("wait", r"write job\.result"),
        ("revoke", r"write job\.cancel\(\)\."),
        ("resullt", r"A job has no resullt\. Did you mean result\?"),
        ("_ipython_display_", "_ipython_display_$"),
    ],
)
def test_attributes_of_jobs(app: Windlass, attribute: str, said: str) -> None:
    job = app.job("01m7gk6tx900smjc57av0rnpgb")
    assert not hasattr(job, attribute)
    with pytest.raises(AttributeError, match=said):
        getattr(job, attribute)


@pytest.mark.parametrize(
    ("attribute", "said"),
    [
        ("send_task", r"An app has no send_task: write app\.task_named\(name\)\.enqueue"),
        ("conf", r"write app\.settings"),
        ("autodiscover_tasks", r"write Windlass\(include="),
        ("tsk", r"An app has no tsk\. Did you mean task"),
    ],
)
def test_attributes_of_apps(app: Windlass, attribute: str, said: str) -> None:
    with pytest.raises(AttributeError, match=said):
        getattr(app, attribute)


def test_python_adds_no_second_suggestion(
    app: Windlass, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(app, "schedule")  # noqa: B009  # a checker knows that there is none
    sys.__excepthook__(caught.type, caught.value, None)
    assert capsys.readouterr().err.count("Did you mean") == 1


def test_a_context_says_how_to_ask_for_another_try() -> None:
    with pytest.raises(AttributeError, match=r"A context has no retry: write raise RetryLater"):
        getattr(context(), "retry")  # noqa: B009  # a checker knows that there is none


def test_none_of_these_hides_one_of_ours(app: Windlass) -> None:
    job = app.job("01m7gk6tx900smjc57av0rnpgb")
    for owner, words in ((job, OF_JOBS), (app, OF_APPS), (context(), OF_CONTEXTS)):
        assert not set(words) & set(dir(owner))
    assert not set(OF_SETTINGS) & set(SETTINGS)


def test_awaiting_an_enqueue_names_its_twin(resize: Any) -> None:
    async def mistake() -> None:
        await resize.enqueue("cat.jpg", [100])

    with pytest.raises(TypeError, match=r"write `await task\.aenqueue"):
        asyncio.run(mistake())


def test_arguments_of_policies_and_schedules() -> None:
    retry: Any = Retry
    every: Any = Every
    with pytest.raises(
        TypeError, match=r"Retry\(\.\.\.\) takes no max_retries: write max_attempts="
    ):
        retry(max_retries=3)
    with pytest.raises(TypeError, match=r'Every\(\.\.\.\) takes no minutes: write Every\("5m"\)'):
        every(minutes=5)


def test_values_that_stand_for_policies_and_schedules(app: Windlass) -> None:
    task: Any = app.task
    with pytest.raises(
        ValueError, match=r"Retry\(\.\.\.\), such as Retry\(max_attempts=3\), found 3"
    ):
        task(retry=3)
    with pytest.raises(TypeError, match=r"write Cron\('\*/5 \* \* \* \*'\)"):
        task(schedule="*/5 * * * *")(context)


@pytest.mark.parametrize(("name", "said"), [("broker", "write url="), ("backend", "in url")])
def test_settings_of_other_libraries(name: str, said: str) -> None:
    make: Any = Windlass
    with pytest.raises(SettingError, match=said):
        make(**{name: "redis://localhost"})


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("chrage", "shop.orders.charge"),
        ("orders.chrage", "shop.orders.charge"),
        ("shop.order.charge", "shop.orders.charge"),
        ("shop.card.charge", "shop.cards.charge"),
        ("billing.confrim_order", "shop.orders.confirm_order"),
        ("shop.tasks.dup.ghost", ""),
        ("shop.orders.pay", ""),
        ("", ""),
    ],
)
def test_dotted_names_are_compared_by_their_ends(name: str, found: str) -> None:
    known = [
        "shop.orders.charge",
        "shop.orders.confirm_order",
        "shop.cards.charge",
        "shop.tasks.mail.nightly",
    ]
    assert nearest_dotted(name, known) == found
    assert nearest_dotted(name, []) == ""
