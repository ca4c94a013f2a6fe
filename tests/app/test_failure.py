"""Exceptions as text: bounded, never failing, keeping nothing alive."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import pytest

from windlass.core.failures import MAX_MESSAGE, MAX_TRACEBACK, FailureText


class Plain(Exception):
    pass


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


class Leaving(Exception):
    """Its text raises what is no `Exception`."""

    def __str__(self) -> str:
        raise SystemExit(1)


class Nameless(type):
    def __getattribute__(cls, name: str) -> object:
        if name == "__qualname__":
            raise SystemExit
        return super().__getattribute__(name)


class Hidden(Exception, metaclass=Nameless):
    pass


def badly_noted() -> Plain:
    error = Plain("x")
    vars(error)["__notes__"] = 17  # not the list of text that printing expects
    return error


def text_of(error: BaseException) -> FailureText:
    try:
        raise error
    except type(error) as caught:
        return FailureText.of(caught)


def test_keeps_type_message_and_traceback() -> None:
    text = text_of(Plain("no money"))
    assert text.type == f"{Plain.__module__}.Plain"
    assert text.message == "no money"
    assert text.traceback.startswith("Traceback (most recent call last):\n")
    assert "raise error" in text.traceback
    assert text.traceback.rstrip().endswith("Plain: no money")


def test_builtin_types_have_short_names() -> None:
    assert text_of(ValueError("x")).type == "ValueError"


def test_causes_are_part_of_the_traceback() -> None:
    error = Plain("outer")
    error.__cause__ = ValueError("inner")
    assert "ValueError: inner" in text_of(error).traceback


@pytest.mark.parametrize(
    "error",
    [
        Unprintable(),
        Leaving(),
        Hidden(),
        badly_noted(),
        SystemExit(3),
        Plain("\ud800"),
    ],
)
def test_any_exception_becomes_text(error: BaseException) -> None:
    text = text_of(error)
    assert text.type
    assert FailureText.unpack(text.pack()) == text


def test_an_exception_whose_text_fails_says_so() -> None:
    assert text_of(Unprintable()).message == "<no message: its __str__ raised ValueError>"
    assert text_of(Leaving()).message == "<no message: its __str__ raised SystemExit>"
    assert text_of(Hidden()).message == "<no text: the exception cannot be inspected>"


def test_long_text_is_cut_in_the_middle() -> None:
    text = text_of(Plain("start " + "é" * 1_000_000 + " end"))
    assert len(text.message.encode()) <= MAX_MESSAGE
    assert text.message.startswith("start é")
    assert text.message.endswith("é end")
    assert len(text.traceback.encode()) <= MAX_TRACEBACK
    assert text.traceback.startswith("Traceback")


class Big:
    """Something that a task holds in a local variable."""


def fail_holding(references: list[weakref.ref[Big]]) -> None:
    held = Big()
    references.append(weakref.ref(held))
    raise Plain("while holding")


def fail_because(references: list[weakref.ref[Big]]) -> None:
    try:
        fail_holding(references)
    except Plain as error:
        raise Plain("the cause holds it") from error


def fail_in_a_group(references: list[weakref.ref[Big]]) -> None:
    errors = []
    try:
        fail_holding(references)
    except Plain as error:
        errors.append(error)
    raise ExceptionGroup("one of them holds it", errors)


@pytest.mark.parametrize("fail", [fail_holding, fail_because, fail_in_a_group])
def test_frames_are_cleared(fail: Callable[[list[weakref.ref[Big]]], None]) -> None:
    references: list[weakref.ref[Big]] = []
    kept = None
    try:
        fail(references)
    except (Plain, ExceptionGroup) as error:
        kept = error  # as a log handler or a debugger may do
        FailureText.of(error)
    gc.collect()
    assert kept is not None
    assert [reference() for reference in references] == [None]


def test_bytes_that_are_no_failure_are_shown_as_they_are() -> None:
    assert FailureText.unpack(b"killed by signal 9").message == "killed by signal 9"
    assert FailureText.unpack(b"\xff\x00").message == "\\xff\x00"
    assert FailureText.unpack(b"").message == ""
