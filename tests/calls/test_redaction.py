"""Redaction of stored calls, by the setting and the parameters of tasks."""

from __future__ import annotations

import pytest

from windlass import Windlass
from windlass.calls.redaction import CallRedactor, sensitive_parameters


@pytest.fixture
def app(app: Windlass) -> Windlass:
    app.task(name="login", aliases=["enter"])(login)
    app.task(name="steps", takes_context=True)(steps)
    return app


def login(user: str, password: str) -> None:
    """A task."""


def steps(ctx: object, token: str) -> None:
    """A task that takes its context."""


def test_a_call_is_redacted_by_its_task(app: Windlass) -> None:
    redactor = CallRedactor.of(app)
    assert redactor.redact("login", {"args": ["ann", "x"]}) == {"args": ["ann", "[redacted]"]}
    assert redactor.redact("enter", {"args": ["ann", "x"]}) == {"args": ["ann", "[redacted]"]}
    assert redactor.redact("steps", {"args": ["x"], "kwargs": {}}) == {
        "args": ["[redacted]"],
        "kwargs": {},
    }
    unknown = {"args": ["x", {"cvv": 1}], "kwargs": {"api_key": "k", "n": 2**70}}
    assert redactor.redact("unknown", unknown) == {
        "args": ["x", {"cvv": "[redacted]"}],
        "kwargs": {"api_key": "[redacted]", "n": 2**70},
    }
    assert redactor.redact("login", {}) == {}


def test_a_remote_task_has_parameters_too(app: Windlass) -> None:
    app.task_named("far.login", login)
    redacted = CallRedactor.of(app).redact("far.login", {"args": ["ann", "x"]})
    assert redacted == {"args": ["ann", "[redacted]"]}
    assert set(sensitive_parameters(app)) == {"login", "enter", "steps", "far.login"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('{"args":["ann","x"]}', '{"args":["ann","[redacted]"]}'),
        ('{"kwargs":{"password":"x","n":18446744073709551617}}', None),
        ("(encrypted with the key k, which this app does not have)", None),
        ('{"msgpack":"gqRhcmdz"}', "[redacted]"),
        ('["x"]', "[redacted]"),
        ('{"args":{"password":1}}', "[redacted]"),
        ("no JSON", "[redacted]"),
    ],
)
def test_a_text_is_redacted_or_hidden(app: Windlass, text: str, shown: str | None) -> None:
    expected = text.replace('"x"', '"[redacted]"') if shown is None else shown
    assert CallRedactor.of(app).redact_text("login", text) == expected
