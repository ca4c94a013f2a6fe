"""The rules of alerts: what is accepted, and how it is shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest

from windlass import Alert, SettingError, Windlass
from windlass.core.alerts.rules import MAX_ALERTS, AlertKind, join_rules, number_text
from windlass.core.alerts.states import make_test_event
from windlass.core.alerts.webhook_url import WebhookUrl, read_webhook

EACH = (
    Alert.dead_letters(100),
    Alert.dead_growth(10),
    Alert.oldest_age("5m", queue="mail"),
    Alert.no_worker(),
    Alert.failure_rate(0.25, task="shop.charge"),
    Alert.run_time("2.5s"),
    Alert.overdue_schedule("10m", schedule="report"),
    Alert.engine_memory(0.9),
)


def test_a_rule_in_short() -> None:
    assert [str(rule) for rule in EACH] == [
        "dead_letters > 100",
        "dead_growth > 10",
        "oldest_age(mail) > 5m",
        "no_worker for 5m",
        "failure_rate(shop.charge) > 25 % for 1m",
        "run_time > 2.5s for 1m",
        "overdue_schedule(report) > 10m",
        "engine_memory > 90 % for 1m",
    ]


def test_every_kind_has_a_text() -> None:
    assert {rule.kind for rule in EACH} == set(AlertKind)
    texts = [make_test_event(rule, 0).text for rule in EACH]
    assert texts[0] == "100 dead jobs, threshold 100: see windlass dead list --group"
    assert texts[2] == "the next job of queue mail has been ready for 5m, threshold 5m"
    assert all("{" not in text for text in texts)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2504, "250ms"), (1, "1s"), (8.522, "8.52s"), (9.999, "10s"), (10.4, "10s"), (90, "1m30s")],
)
def test_a_duration_is_short(seconds: float, text: str) -> None:
    assert number_text(AlertKind.OLDEST_AGE, seconds) == text


@pytest.mark.parametrize("rule", EACH, ids=str)
def test_a_rule_has_the_same_key_in_every_process(rule: Alert) -> None:
    """A supervisor reads rules from JSON, in which 100 and 100.0 are the same."""
    text = msgspec.json.encode(rule).replace(b".0,", b",")
    assert msgspec.json.decode(text, type=Alert).key == rule.key
    assert len({rule.key for rule in EACH}) == len(EACH)


def test_whole_numbers_and_fractions_make_the_same_key() -> None:
    rule = Alert(kind=AlertKind.DEAD_LETTERS, over=100, clear_at=80)
    assert rule.key == Alert.dead_letters(100).key


def test_a_threshold_of_zero_is_shown() -> None:
    assert str(Alert.dead_letters(0)) == "dead_letters > 0"
    assert str(Alert.oldest_age(0, queue="mail")) == "oldest_age(mail) > 0s"
    assert str(Alert.failure_rate(0, for_=0)) == "failure_rate > 0 %"
    assert str(Alert.no_worker()) == "no_worker for 5m"


def test_another_threshold_is_another_rule() -> None:
    assert Alert.dead_letters(1).key != Alert.dead_letters(2).key
    assert Alert.dead_letters(5).key != Alert.dead_letters(5, clear_at=1).key
    assert Alert.dead_letters(1, queue="a").key != Alert.dead_letters(1).key


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Alert.dead_letters(-1), "over must be a whole number of at least 0, found -1"),
        (lambda: Alert.dead_letters(True), "over must be a whole number"),
        (lambda: Alert.dead_letters(1, clear_at=2), "clear_at must be at most 1"),
        (lambda: Alert.dead_letters(1, clear_at=-1), "clear_at must be a number of at least 0"),
        (lambda: Alert.failure_rate(20), "over must be a share .* such as 0.2 for 20 %, found 20"),
        (lambda: Alert.engine_memory(float("nan")), "over must be a share"),
        (lambda: Alert.run_time("1h"), "over must be less than 1h, the longest run time"),
        (lambda: Alert.oldest_age("soon"), "over must be seconds as a number"),
        (lambda: Alert.oldest_age(1, for_=-1), "for_ must not be negative"),
        (lambda: Alert.oldest_age(1, queue="x" * 257), "queue must be a name"),
    ],
)
def test_a_wrong_rule_is_refused(make: Callable[[], Alert], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_the_rules_of_an_app() -> None:
    app = Windlass("sqlite:///:memory:", dead_alert=7, dead_alert_growth=0)
    assert app.settings.alert_rules == (Alert.dead_letters(7), Alert.no_worker())
    app = Windlass("sqlite:///:memory:", alerts=[])
    assert app.settings.alert_rules == (Alert.dead_letters(100), Alert.dead_growth(100))
    assert join_rules(100, 0, [Alert.dead_letters(100)]) == (Alert.dead_letters(100),)


@pytest.mark.parametrize(
    ("alerts", "message"),
    [
        (Alert.no_worker(), "found the alert no_worker for 5m: put it into a list"),
        (7, "alerts must be a list of alerts such as"),
        (["oldest_age"], "found 'oldest_age'"),
        ([Alert.dead_letters(at) for at in range(MAX_ALERTS + 1)], "at most 50 alerts, found 51"),
    ],
)
def test_other_values_of_the_setting_are_refused(alerts: object, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        Windlass("sqlite:///:memory:", alerts=cast(Any, alerts))


# ----------------------------------------------------------------------------------------- webhook


def test_a_webhook_shows_only_its_host() -> None:
    url = read_webhook("it", "https://ann:secret@hooks.example.com:8443/T000/token?key=1")
    assert str(url) == "https://hooks.example.com:8443/***"
    assert "secret" not in repr(url)
    assert "T000" not in repr(Windlass("sqlite:///:memory:", alert_webhook=url.url).settings)
    assert url.url.endswith("/T000/token?key=1")
    assert not WebhookUrl()


@pytest.mark.parametrize(
    "url", ["http://localhost:8000/a", "http://127.0.0.3/", "http://[::1]:9/", "https://a.b/c"]
)
def test_a_webhook_may_be_unencrypted_only_on_this_machine(url: str) -> None:
    assert read_webhook("it", url).url == url


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://example.com/s3cret", "must begin with https://"),
        ("http://127.0.0.1.example.com/s3cret", "must begin with https://"),
        ("ftp://example.com/s3cret", "found another url or text"),
        ("https:///s3cret", "found another url or text"),
        ("s3cret", "found another url or text"),
        ("https://example.com:port/s3cret", "cannot be read"),
        ("https://example.com/s3 cret", "percent-encode"),
        (7, "found int"),
        (None, "or empty for none; found NoneType"),
    ],
)
def test_other_webhooks_are_refused_without_showing_them(url: object, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        read_webhook("it", url)
    assert "cret" not in str(caught.value)
