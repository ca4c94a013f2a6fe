"""Redaction by name: which names match, what is replaced, and what an edit must not store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.redaction import (
    DEFAULT_NAMES,
    MAX_DEPTH,
    REDACTED,
    ParameterNames,
    Redactor,
    has_redacted,
)

HIDDEN = "hunter2"


@pytest.mark.parametrize(
    "name",
    [
        *DEFAULT_NAMES,
        *("PASSWORD", "Password", "db_password", "dbPassword", "DB-PASSWORD", "db.password"),
        *("password_hash", "passwordConfirmation", "newPassword2", "passwords", "userpassword"),
        *("client_secret", "SECRET_KEY", "aws_secret_access_key", "clientsecret", "secrets"),
        *("access_token", "accessToken", "AUTHTOKEN", "X-CSRF-Token", "refresh_tokens"),
        *("api-key", "apiKey", "APIKey", "X-API-KEY", "openai_api_keys", "Proxy-Authorization"),
        *("set-cookie", "creditCard", "cardNumber", "CVV", "ssn", "userSSN", "sshPrivateKey"),
    ],
)
def test_names_in_any_notation_match(name: str) -> None:
    assert Redactor().is_listed(name)
    assert Redactor().redact({name: HIDDEN}) == {name: REDACTED}


@pytest.mark.parametrize(
    "name",
    [
        *("", "user", "pass", "passenger", "secretary", "tokenize", "key", "primary_key", "api"),
        *("card", "number", "assn", "lessn", "private", "publicKey", "1234"),
    ],
)
def test_other_names_do_not(name: str) -> None:
    assert not Redactor().is_listed(name)


def test_names_of_the_setting_replace_the_default() -> None:
    redactor = Redactor(["iban", "Pin-Code"])
    found = redactor.redact({"IBAN": "DE1", "pinCode": 1, "pin": 2, "password": 3, "my_ibans": [4]})
    assert found == {
        "IBAN": REDACTED,
        "pinCode": REDACTED,
        "pin": 2,
        "password": 3,
        "my_ibans": REDACTED,
    }
    assert Redactor([]).redact({"password": HIDDEN}) == {"password": HIDDEN}


def test_values_are_found_at_any_depth() -> None:
    value = {
        "user": {"name": "ann", "auth": [{"token": HIDDEN}, {"keys": ({"cvv": 123},)}]},
        "note": "the password is in the safe",
        "password": {"old": HIDDEN, "new": [HIDDEN]},
        "count": 2**63,
    }
    assert Redactor().redact(value) == {
        "user": {"name": "ann", "auth": [{"token": REDACTED}, {"keys": [{"cvv": REDACTED}]}]},
        "note": "the password is in the safe",
        "password": REDACTED,
        "count": 2**63,
    }


def test_nothing_stays_nothing() -> None:
    """An edit may then send back what was shown."""
    assert Redactor().redact({"password": None}) == {"password": None}


class Login(msgspec.Struct):
    user: str
    password: str


@dataclass
class Card:
    holder: str
    card_number: str


@attrs.define
class Session:
    cookie: str
    path: str = "/"


class Model(pydantic.BaseModel):
    api_key: str
    region: str = "eu"


def test_fields_of_objects_are_redacted() -> None:
    values = [Login("ann", HIDDEN), Card("ann", "4111"), Session("c"), Model(api_key="k")]
    assert Redactor().redact(values) == [
        {"user": "ann", "password": REDACTED},
        {"holder": "ann", "card_number": REDACTED},
        {"cookie": REDACTED, "path": "/"},
        {"api_key": REDACTED, "region": "eu"},
    ]


@pytest.mark.parametrize("wrap", [lambda inner: {"a": inner}, lambda inner: [inner]])
def test_what_is_nested_too_deep_is_hidden_as_a_whole(wrap: Callable[[Any], Any]) -> None:
    value: Any = HIDDEN
    for _ in range(10_000):
        value = wrap(value)
    text = repr(Redactor().redact(value))
    assert REDACTED in text
    assert HIDDEN not in text
    assert text.count("[") + text.count("{") == MAX_DEPTH + 1


def test_the_input_stays_as_it_is() -> None:
    value = {"password": HIDDEN, "more": [{"token": HIDDEN}]}
    Redactor().redact(value)
    assert value == {"password": HIDDEN, "more": [{"token": HIDDEN}]}


# ------------------------------------------------------------------------------------------- calls


def login(user: str, password: str, /, *tokens: str, remember: bool = False) -> None:
    """A task with positional parameters."""


def with_context(ctx: object, password: str) -> None:
    """A task that takes its context first."""


def test_positional_arguments_have_the_names_of_parameters() -> None:
    parameters = ParameterNames.of(login)
    args, kwargs = Redactor().redact_call(
        ["ann", HIDDEN, HIDDEN, HIDDEN], {"remember": True, "api_key": HIDDEN}, parameters
    )
    assert args == ["ann", REDACTED, REDACTED, REDACTED]
    assert kwargs == {"remember": True, "api_key": REDACTED}


def test_the_context_is_no_argument() -> None:
    parameters = ParameterNames.of(with_context, skip_first=True)
    assert Redactor().redact_call([HIDDEN], {}, parameters) == ([REDACTED], {})


def test_without_the_code_only_names_inside_are_known() -> None:
    args, kwargs = Redactor().redact_call(["x", {"token": HIDDEN}], {"password": HIDDEN})
    assert (args, kwargs) == (["x", {"token": REDACTED}], {"password": REDACTED})
    assert ParameterNames.of(dict.get).at(0) in ("", "self")


# ------------------------------------------------------------------------------------------- edits


@pytest.mark.parametrize(
    "value", [REDACTED, [1, REDACTED], {"a": {"b": [REDACTED]}}, ({"password": REDACTED},)]
)
def test_a_redacted_value_is_recognised(value: object) -> None:
    assert has_redacted(value)


@pytest.mark.parametrize(
    "value", [None, "", "redacted", "see [redacted] above", {REDACTED: 1}, [b"[redacted]"], 1.5]
)
def test_other_values_are_not(value: object) -> None:
    assert not has_redacted(value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["password", "a", "token"]), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(JSON)
def test_a_second_time_changes_nothing(value: object) -> None:
    redactor = Redactor()
    once = redactor.redact(value)
    assert redactor.redact(once) == once
    assert has_redacted(once) or once == value
