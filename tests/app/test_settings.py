"""Settings: where they come from, and what is refused."""

from __future__ import annotations

import logging
from datetime import timedelta
from pathlib import Path

import pytest

from windlass import Retry, SettingError, Windlass
from windlass.core.alerts.webhook_url import WebhookUrl
from windlass.core.redaction import DEFAULT_NAMES
from windlass.engine.sqlite.url import default_url
from windlass.outbox.url import OutboxUrl
from windlass.settings import (
    SETTINGS,
    Secrets,
    Source,
    describe_unusual,
    read_settings,
    without_secrets,
)

DEFAULTS = {
    "lease_ms": 30_000,
    "shutdown_grace_ms": 25_000,
    "kill_after_ms": 5_000,
    "retry": Retry(),
    "timeout_ms": 0,
    "result_ttl_ms": 3_600_000,
    "dead_ttl_ms": 14 * 86_400_000,
    "idempotency_ttl_ms": 86_400_000,
    "max_payload": 1_048_576,
    "max_crashes": 3,
    "max_snoozes": 100,
    "enqueue_timeout_ms": 5_000,
    "timezone": "UTC",
    "log_level": "info",
    "when_full": "reject",
    "log_format": "text",
    "include": (),
    "routes": {},
    "codec": "json",
    "secret": Secrets(),
    "encrypt": False,
    "redact": DEFAULT_NAMES,
    "release": "",
    "outbox": OutboxUrl(),
}
#: A value as an argument and the same as text, and what becomes of it.
CHOSEN = {
    "url": ("sqlite:////srv/a.db", "sqlite:////srv/a.db", "sqlite:////srv/a.db"),
    "lease": (timedelta(seconds=2), "2s", 2_000),
    "shutdown_grace": (0, "0", 0),
    "kill_after": (0.5, "500ms", 500),
    "timeout": ("5m", "5m", 300_000),
    "result_ttl": ("1d", "1d", 86_400_000),
    "dead_ttl": (1.5, "1.5", 1_500),
    "idempotency_ttl": ("7d", "7d", 7 * 86_400_000),
    "dead_alert": (0, "0", 0),
    "dead_alert_growth": (7, "7", 7),
    "alert_webhook": (
        "https://example.com/hook",
        "https://example.com/hook",
        WebhookUrl("https://example.com/hook"),
    ),
    "max_payload": (10, "10", 10),
    "max_crashes": (1, "1", 1),
    "max_snoozes": (0, "0", 0),
    "enqueue_timeout": ("500ms", "500ms", 500),
    "timezone": ("Europe/Paris", "Europe/Paris", "Europe/Paris"),
    "log_level": ("Warning", "WARNING", "warning"),
    "when_full": ("Block", "block", "block"),
    "log_format": ("JSON", "json", "json"),
    "include": (["shop.tasks", "billing.*"], "shop.tasks, billing.*", ("shop.tasks", "billing.*")),
    "routes": ({"a.*": "b", "c": "d"}, "a.*=b, c = d", {"a.*": "b", "c": "d"}),
    "codec": ("MsgPack", "msgpack", "msgpack"),
    "secret": (["n" * 32, "o" * 32], f"{'n' * 32}, {'o' * 32}", Secrets(["n" * 32, "o" * 32])),
    "encrypt": (False, "False", False),
    "redact": (["iban", "pin-code"], "iban, pin-code", ("iban", "pin-code")),
    "release": ("v1.4.2+5", "v1.4.2+5", "v1.4.2+5"),
    "outbox": (
        "postgresql://localhost/shop",
        "postgresql://localhost/shop",
        OutboxUrl("postgresql://localhost/shop"),
    ),
}


def value_of(settings: object, name: str) -> object:
    return getattr(settings, SETTINGS[name].field)


def test_defaults_need_no_settings() -> None:
    settings = read_settings({}, {"PATH": "/bin"})
    assert {name: getattr(settings, name) for name in DEFAULTS} == DEFAULTS
    assert set(settings.sources.values()) == {Source.DEFAULT}


def test_every_setting_is_tried_here() -> None:
    assert set(CHOSEN) | {"retry", "alerts"} == set(SETTINGS) == set(read_settings({}, {}).sources)


@pytest.mark.parametrize("name", CHOSEN)
def test_a_setting_by_argument(name: str) -> None:
    argument, _, expected = CHOSEN[name]
    settings = read_settings({name: argument}, {})
    assert value_of(settings, name) == expected
    assert settings.sources[name] is Source.ARGUMENT


@pytest.mark.parametrize("name", CHOSEN)
def test_a_setting_by_environment(name: str) -> None:
    _, text, expected = CHOSEN[name]
    settings = read_settings({}, {f"WINDLASS_{name.upper()}": text})
    assert value_of(settings, name) == expected
    assert settings.sources[name] is Source.ENVIRONMENT


def test_an_argument_wins_over_the_environment() -> None:
    settings = read_settings({"lease": 7}, {"WINDLASS_LEASE": "9"})
    assert settings.lease_ms == 7_000


def test_what_differs_from_the_default_is_told() -> None:
    chosen = {"lease": "30s", "max_crashes": 1, "dead_ttl": "1h30m", "url": "redis://:secret@h"}
    settings = read_settings(chosen, {"WINDLASS_LOG_FORMAT": "json"})
    told = {"max_crashes": "1", "dead_ttl": "1h30m", "log_format": "json"}
    assert describe_unusual(settings) == told


def test_a_retry_policy_comes_by_argument_only() -> None:
    policy = Retry(max_attempts=2)
    assert read_settings({"retry": policy}, {}).retry == policy
    with pytest.raises(SettingError, match=r"write Windlass\(retry=\.\.\.\) in the code"):
        read_settings({}, {"WINDLASS_RETRY": "2"})


@pytest.mark.parametrize("name", [name for name in SETTINGS if name != "url"])
def test_a_slip_in_a_name_is_told_the_right_one(name: str) -> None:
    slip = name[:-1] + "q"
    with pytest.raises(SettingError, match=rf"no setting {slip}\. Did you mean {name}\?"):
        read_settings({slip: 1}, {})
    variable = f"WINDLASS_{slip.upper()}"
    right = f"WINDLASS_{name.upper()}"
    with pytest.raises(SettingError, match=rf"{variable} is not a setting .* you mean {right}\?"):
        read_settings({}, {variable: "1"})


def test_a_name_like_no_other_is_told_them_all() -> None:
    with pytest.raises(SettingError, match=r"no setting qqq\. Windlass\(\.\.\.\) takes url, lease"):
        read_settings({"qqq": 1}, {})


def test_names_in_the_environment_are_upper_case() -> None:
    with pytest.raises(SettingError, match="WINDLASS_lease is not a setting"):
        read_settings({}, {"WINDLASS_lease": "1"})


def test_the_variable_of_the_command_line_is_not_a_setting() -> None:
    read_settings({}, {"WINDLASS_APP": "shop.tasks:app"})


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("lease", "soon", "lease must be seconds as a number.* found 'soon'"),
        ("lease", None, "lease must be seconds as a number.* found NoneType"),
        ("lease", "50ms", "lease must be at least 100 ms, found '50ms'"),
        ("shutdown_grace", -1, "shutdown_grace must not be negative"),
        ("dead_ttl", 0, "dead_ttl must be at least 1 ms"),
        ("idempotency_ttl", 0, "idempotency_ttl must be at least 1 ms"),
        ("max_payload", 0, "max_payload must be a whole number of at least 1, found 0"),
        ("max_crashes", True, "max_crashes must be a whole number .* found True"),
        ("max_snoozes", 1.5, "max_snoozes must be a whole number .* found 1.5"),
        ("retry", 3, r"retry must be a .*, such as Retry\(max_attempts=3\), found 3"),
        ("url", "jobs.db", "url must be text such as 'sqlite:///jobs.db', found text without ://"),
        ("url", Path("jobs.db"), "url must be text such as .* found .*Path"),
        ("include", "shop.tasks", r"include must be a list, found text: write \['shop\.tasks'\]"),
        (
            "include",
            ["shop/tasks.py"],
            "include must be a list of modules .* found 'shop/tasks.py'",
        ),
        ("include", [".tasks"], "include must be a list of modules such as .* found '.tasks'"),
        ("include", ["*"], "include must be a list of modules such as"),
        ("include", 7, "include must be a list of modules such as .* found 7"),
        ("routes", ["a.*"], "routes must be a dict of patterns to queues, such as"),
        (
            "routes",
            {"a b": "mail"},
            r"routes must have a pattern such as 'billing\.\*'.* found 'a b'",
        ),
        (
            "routes",
            {"a.*": "no queue"},
            r"routes must have the name of a queue for a\.\*, found 'no",
        ),
        ("redact", "iban", "redact must be a list of names such as 'password', found 'iban'"),
        ("redact", ["pin code"], "redact must be names of arguments, .* found 'pin code'"),
        ("redact", ["--"], "redact must be names of arguments, .* found '--'"),
        ("release", "main@1", "release must be the version of the code, .* found 'main@1'"),
        ("release", "v" * 65, "release must be .* at most 64 letters, .* found 'vvv"),
        ("release", None, "release must be .* or empty for none; found None"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused(name: str, value: object, words: str) -> None:
    with pytest.raises(SettingError, match=f"^The setting {words}"):
        read_settings({name: value}, {})


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        *(
            ("WINDLASS_LEASE", ""),
            ("WINDLASS_MAX_CRASHES", "three"),
            ("WINDLASS_MAX_CRASHES", "-1"),
        ),
        *(("WINDLASS_ROUTES", "billing"), ("WINDLASS_INCLUDE", "shop-tasks")),
    ],
)
def test_text_that_makes_no_sense_is_refused(variable: str, text: str) -> None:
    with pytest.raises(SettingError, match=f"^The setting {variable} must be .* found '{text}'"):
        read_settings({}, {variable: text})


def test_an_app_reads_arguments_and_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDLASS_URL", "sqlite:////from-environment.db")
    monkeypatch.setenv("WINDLASS_LEASE", "4s")
    app = Windlass(max_crashes=5)
    assert app.settings.url == "sqlite:////from-environment.db"
    assert app.settings.lease_ms == 4_000
    assert app.settings.max_crashes == 5
    assert Windlass("sqlite:////argument.db").settings.url == "sqlite:////argument.db"


# ----------------------------------------------------------------------------------- relative paths


def test_a_relative_path_starts_in_the_folder_that_was_current_when_the_app_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "the first? one", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    monkeypatch.chdir(first)
    with Windlass("sqlite:///jobs%20here.db?durability=normal") as app:
        monkeypatch.chdir(second)
        assert app.engine.location == f"sqlite {first / 'jobs here.db'}"
        assert app.engine.stats().totals == {}
    assert (first / "jobs here.db").is_file()
    assert list(second.iterdir()) == []


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:////srv/a.db",
        "sqlite:////srv/a.db?durability=normal",
        "sqlite:///:memory:",
        "sqlite:///",
        "sqlite:///?durability=normal",
        "sqlite://a.db",
        "redis://host/0",
    ],
)
def test_other_urls_are_kept_as_they_are(url: str) -> None:
    assert read_settings({"url": url}, {}).url == url


# ------------------------------------------------------------------------------------ without a url


def test_without_a_url_jobs_live_beside_the_project_file(tmp_path: Path) -> None:
    inner = tmp_path / "src" / "shop"
    inner.mkdir(parents=True)
    (tmp_path / "pyproject.toml").touch()
    assert default_url(inner) == f"sqlite:///{tmp_path}/windlass.db"


def test_without_a_project_jobs_live_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "is_file", lambda _path: False)
    assert default_url(tmp_path) == f"sqlite:///{tmp_path}/windlass.db"


def test_one_warning_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "a folder"  # a space must survive the way through a url
    folder.mkdir()
    (folder / "pyproject.toml").touch()
    monkeypatch.chdir(folder)
    with Windlass() as app:
        assert caplog.records == []  # an app that is never used says nothing
        assert app.engine is app.engine
        assert app.engine.stats().totals == {}
    (record,) = caplog.records
    assert record.name == "windlass"
    assert record.levelno == logging.WARNING
    assert "a%20folder/windlass.db" in record.getMessage()
    assert (folder / "windlass.db").is_file()


def test_a_chosen_url_warns_of_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Windlass(f"sqlite:///{tmp_path}/a.db") as app:
        assert app.engine.stats().totals == {}
    assert caplog.records == []


# ------------------------------------------------------------------------------------------ secrets


def test_passwords_are_never_shown() -> None:
    app = Windlass("redis://user:hunter2@host:6379/0")
    assert "hunter2" not in repr(app)
    assert "hunter2" not in repr(app.settings)
    assert "redis://***@host:6379/0" in repr(app)
    assert "lease_ms=30000" in repr(app.settings)


@pytest.mark.parametrize("password", ["p@ss", "p/ss", "p#ss", "p?ss", "p@s#w/r?d", "it's"])
def test_passwords_are_never_shown_however_they_were_written(password: str) -> None:
    assert without_secrets(f"redis://user:{password}@host/0") == "redis://***@host/0"


@pytest.mark.parametrize("url", ["sqlite:////tmp/a.db", "sqlite:////tmp/a@b.db", "redis://h:1/0"])
def test_a_url_without_a_secret_is_shown_as_it_is(url: str) -> None:
    assert without_secrets(url) == url


@pytest.mark.parametrize(
    "variable",
    [
        "WINDLASS_SERVICE_HOST",
        "WINDLASS_SERVICE_PORT_HTTP",
        "WINDLASS_PORT",
        "WINDLASS_PORT_80_TCP",
        "WINDLASS_REDIS_SERVICE_HOST",
        "WINDLASS_REDIS_SERVICE_PORT_REDIS",
        "WINDLASS_REDIS_PORT",
        "WINDLASS_REDIS_PORT_6379_TCP_ADDR",
    ],
)
def test_what_kubernetes_adds_is_left_alone(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "10.0.0.1")
    Windlass("sqlite:///jobs.db")
