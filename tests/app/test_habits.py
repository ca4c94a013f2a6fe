"""What people write who come from another task queue: each message says what is written here."""

from __future__ import annotations

from typing import Any

import pytest

from windlass import Retry, State, Task, Windlass
from windlass.core.habits import ATTRIBUTES
from windlass.core.signature import OPTIONS
from windlass.options import CallOptions


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
        ({"countdown": 5}, r"countdown'\. An option is no argument: write task\.using\(run_after="),
        ({"eta": 5}, r"'eta'\. An option is no argument: write task\.using\(run_after="),
        ({"run_after": 5}, r"An option is no argument: write task\.using\(run_after=\.\.\.\)\."),
        ({"queue": "mail"}, r"An option is no argument: write task\.using\(queue=\.\.\.\)\."),
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
        ("acks_late", "acknowledged when it has ended, always"),
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
