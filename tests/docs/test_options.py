"""Every option of tasks, calls, policies, unique keys and schedules is documented."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, get_overloads

import pytest

from tests.docs.pages import DOCS, code_in, prose, table_rows
from windlass import Cron, Every, Retry, Unique, Windlass
from windlass.client.options import CallOptions, TaskOptions

GUIDES = DOCS / "guides"
PLACES = {code_in(row[0])[0]: row[1] for row in table_rows(GUIDES / "tasks.md") if len(row) == 3}


def told_for(place: str) -> set[str]:
    return {name for name, told in PLACES.items() if told == place}


def named_only(function: Callable[..., Any]) -> set[str]:
    parameters = inspect.signature(function).parameters.values()
    return {one.name for one in parameters if one.kind is one.KEYWORD_ONLY}


def test_options_of_tasks_and_calls_are_in_their_place() -> None:
    both = set(TaskOptions.__annotations__)
    assert told_for("both") == both
    assert told_for("`using`") == set(CallOptions.__annotations__) - both
    declared = set().union(*map(named_only, get_overloads(Windlass.task)))
    assert told_for("`@app.task`") == declared - both
    assert "takes_context" in declared


@pytest.mark.parametrize(
    ("kind", "page"), [(Retry, "failures.md"), (Unique, "unique.md")], ids=["retry", "unique"]
)
def test_arguments_are_in_the_table(kind: type, page: str) -> None:
    told = {code.split("=")[0] for row in table_rows(GUIDES / page) for code in code_in(row[0])}
    assert set(inspect.signature(kind).parameters) - told == set()


@pytest.mark.parametrize("kind", [Cron, Every], ids=["cron", "every"])
def test_options_of_schedules_are_told_of(kind: type) -> None:
    text = prose(GUIDES / "schedules.md")
    told = set(code_in(text))
    optional = named_only(kind)
    assert optional
    assert [name for name in optional if name not in told and f"{name}=" not in text] == []
