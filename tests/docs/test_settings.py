"""Every setting is in the guide, with its default and its variable, and no others are."""

from __future__ import annotations

import re

from tests.docs.pages import DOCS, code_in, table_rows
from windlass import Retry
from windlass.core.durations import to_ms
from windlass.engine.redis.url import OPTIONS
from windlass.settings import SettingArguments, Settings, read_settings

GUIDE = DOCS / "guides" / "settings.md"
#: Settings that are empty by default.
NONE = ("include", "routes", "alert_webhook", "release", "outbox")
#: Settings that the environment cannot give.
IN_CODE = ("retry", "alerts")
ROWS = {code_in(row[0])[0]: row for row in table_rows(GUIDE) if len(row) == 4}


def test_all_settings_and_no_others_are_there() -> None:
    fields = {name.removesuffix("_ms") for name in Settings.__struct_fields__} - {"sources"}
    assert set(ROWS) == fields
    assert set(ROWS) == {"url", *SettingArguments.__annotations__}


def test_variables_are_those_that_are_read() -> None:
    for name, row in ROWS.items():
        variables = code_in(row[2])
        assert variables == ([] if name in IN_CODE else [f"WINDLASS_{name.upper()}"])


def test_defaults_are_true() -> None:
    defaults = read_settings({}, {})
    assert Retry() == defaults.retry
    assert "`Retry()`" in ROWS["retry"][1]
    assert "windlass.db" in ROWS["url"][1]
    for name in ROWS.keys() - {"retry", "url"}:
        text = ROWS[name][1].replace(" ", "")
        if hasattr(defaults, f"{name}_ms"):
            assert to_ms(text, name=name) == getattr(defaults, f"{name}_ms"), name
        elif name == "alerts":
            assert code_in(ROWS[name][1]) == [str(one) for one in defaults.alerts]
        elif name == "redact":
            assert tuple(text.split(",")) == defaults.redact
        else:
            assert text == (str(getattr(defaults, name)) if name not in NONE else "none"), name


def test_the_options_of_a_redis_url_are_named() -> None:
    section = GUIDE.read_text(encoding="utf-8").partition("## The url")[2].partition("\n## ")[0]
    for option in OPTIONS:
        assert re.search(rf"\?{option}=|`{option}`", section), option
