"""Errors can be copied with all their facts. Process pools take them apart in the same way."""

import copy

import pytest

from windlass import errors
from windlass.core.serialization.problems import ArgumentProblem

EXAMPLES = [
    errors.WindlassError("text"),
    errors.SettingError("text"),
    errors.AppNotFound("text"),
    errors.IncludeFailed("text", module="shop.tasks"),
    errors.InvalidTask("text"),
    errors.TaskNotIncluded("shop.f", "Tasks()"),
    errors.InvalidSchedule("text"),
    errors.InvalidMiddleware("text"),
    errors.NoContext(),
    errors.TimedOut("text", timeout_ms=1),
    errors.AnnotationError("text", task="shop.f", parameter="x"),
    errors.InvalidCall("text", task="shop.f", problems=(ArgumentProblem(message="text"),)),
    errors.EncodeError("text", task="shop.f", parameter="x", path="$"),
    errors.PayloadTooLarge("text", size=2, limit=1),
    errors.ArgumentMismatch("text", task="shop.f"),
    errors.DecodeError("text", task="shop.f", parameter="x", path="$"),
    errors.MissingDecoder("text", task="shop.f"),
    errors.NewerFormat("text", found=2, supported=1),
    errors.EngineError("text", location="here"),
    errors.EngineUnavailable("text", location="here", seconds=5.0),
    errors.FormatTooNew("text"),
    errors.InvalidCursor("text"),
    errors.InvalidConnection("text"),
    errors.IdempotencyConflict("shop.f", "key", "id"),
    errors.QueueFull("imports", "load", 5.0),
    errors.DuplicateJob("shop.f", "id", "retried"),
    errors.JobNotFound("id", "here", True),
    errors.NotDead("id", "ready"),
    errors.ScheduleNotFound("name", "here", "nearest"),
    errors.AccessTokenNotFound("name", "here"),
    errors.DuplicateAccessToken("name", ("id", "other")),
    errors.OperationNotFound("id", "here"),
    errors.OperationRefused("text"),
    errors.TooManyOperations("text"),
    errors.CopyRefused("text"),
    errors.NoTransaction("text"),
    errors.ClaimLost("id"),
    errors.OnceRefused("text"),
    errors.WorkerNotFound("name", "here", ("host:1",)),
    errors.ReleaseNotFound("v2", "here", ("v1",), "v1"),
    errors.EndlessDrain("shop.f", 1),
    errors.JobError("text"),
    errors.JobFailed("id", "shop.f", "exhausted", "ValueError", "no", "Traceback ..."),
    errors.JobCancelled("id", "shop.f", "expired"),
    errors.ResultExpired("id", "shop.f"),
]


def test_there_is_an_example_of_every_error() -> None:
    kinds = {value for value in vars(errors).values() if isinstance(value, type)}
    assert kinds == {type(example) for example in EXAMPLES}


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_a_copy_says_the_same(error: Exception) -> None:
    other = copy.copy(error)
    assert other is not error
    assert type(other) is type(error)
    assert str(other) == str(error)
    assert vars(other) == vars(error)


def test_a_failed_job_shows_what_happened_on_the_worker() -> None:
    error = errors.JobFailed("id", "shop.f", "exhausted", "shop.Broke", "no money", "Trace: x")
    assert (
        str(error).splitlines()[0]
        == "Job id of task shop.f is dead (exhausted): shop.Broke: no money"
    )
    assert str(error).endswith("On the worker:\nTrace: x")


def test_a_failed_job_without_an_error_says_why_it_ended() -> None:
    error = errors.JobFailed("id", "shop.f", "crashed", "", "", "")
    assert str(error).startswith("Job id of task shop.f is dead (crashed). ")


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (errors.SettingError, ValueError),
        (errors.InvalidTask, TypeError),
        (errors.InvalidCall, TypeError),
        (errors.NoContext, RuntimeError),
    ],
)
def test_mistakes_are_also_the_builtin_errors(error: type, builtin: type) -> None:
    assert issubclass(error, builtin)
