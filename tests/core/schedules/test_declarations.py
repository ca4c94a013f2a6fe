"""Which declaration of a schedule wins while old and new workers are mixed."""

from __future__ import annotations

import pytest

from windlass.core.schedules.declarations import (
    ABANDONED_MS,
    MAX_OUTDATED,
    RENEWAL_MS,
    SILENT_MS,
    Declared,
    Standing,
    declare,
    fingerprint,
    is_abandoned,
)
from windlass.core.schedules.triggers import Cron, Every, Schedule

NEW, CURRENT, OUTDATED = Standing.NEW, Standing.CURRENT, Standing.OUTDATED
CALL = b'{"task":"clean_up"}'


def tell(*declarations: tuple[str, int], known: Declared | None = None) -> list[Standing]:
    """What becomes of declarations, each a fingerprint and a time."""
    standings = []
    for text, now_ms in declarations:
        standing, known = declare(known, text, now_ms)
        standings.append(standing)
    return standings


def test_a_rolling_deploy_takes_effect_once() -> None:
    """Old workers that start in the middle of it, or renew, do not turn it back."""
    told = tell(("old", 0), ("new", 1_000), ("old", 2_000), ("new", 3_000), ("old", 60_000))
    assert told == [NEW, NEW, OUTDATED, CURRENT, OUTDATED]


def test_a_rollback_takes_effect_when_the_newer_one_is_silent() -> None:
    told = tell(("old", 0), ("new", 1_000), ("old", SILENT_MS + 999), ("old", SILENT_MS + 1_000))
    assert told == [NEW, NEW, OUTDATED, NEW]


def test_a_renewal_keeps_a_declaration() -> None:
    assert SILENT_MS > 2 * RENEWAL_MS
    told = tell(("old", 0), ("new", 1_000), ("new", SILENT_MS), ("old", SILENT_MS + 1_000))
    assert told == [NEW, NEW, CURRENT, OUTDATED]


def test_what_was_rolled_back_is_outdated_then() -> None:
    later_ms = SILENT_MS + 1_000
    told = tell(
        ("old", 0), ("new", 1_000), ("old", later_ms), ("new", later_ms), ("next", later_ms)
    )
    assert told == [NEW, NEW, NEW, OUTDATED, NEW]


def test_the_higher_version_wins() -> None:
    _, known = declare(None, "a", 0, version=2)
    assert declare(known, "b", 1, version=1) == (OUTDATED, known)
    standing, known = declare(known, "b", 1, version=3)
    assert standing is NEW
    assert declare(known, "a", 2, version=2)[0] is OUTDATED
    assert declare(known, "a", 2, version=4)[0] is NEW  # even one that was replaced before
    assert declare(known, "a", 1 + SILENT_MS, version=2)[0] is NEW


def test_the_same_words_under_a_higher_version_count_as_that_version() -> None:
    _, known = declare(None, "a", 0, version=1)
    standing, known = declare(known, "a", 1, version=2)
    assert (standing, known.version, known.outdated) == (NEW, 2, ())


def test_a_clock_that_was_put_back_does_not_age_a_declaration() -> None:
    _, known = declare(None, "a", 1_000)
    assert declare(known, "a", 500) == (CURRENT, known)


def test_only_so_much_is_remembered() -> None:
    known: Declared | None = None
    for number in range(3 * MAX_OUTDATED):
        _, known = declare(known, f"{number}", number)
    assert known is not None
    assert known.outdated == tuple(
        f"{n}" for n in range(2 * MAX_OUTDATED - 1, 3 * MAX_OUTDATED - 1)
    )


def test_abandoned_after_a_day() -> None:
    _, known = declare(None, "a", 1_000)
    assert not is_abandoned(known, 1_000 + ABANDONED_MS - 1)
    assert is_abandoned(known, 1_000 + ABANDONED_MS)


@pytest.mark.parametrize(
    ("schedule", "call"),
    [
        (Cron("0 4 * * *"), CALL),
        (Cron("0 3 * * *", tz="Europe/Paris"), CALL),
        (Cron("0 3 * * *", missed="skip"), CALL),
        (Cron("0 3 * * *", jitter=1), CALL),
        (Every("1d"), CALL),
        (Cron("0 3 * * *"), CALL + b" "),
    ],
    ids=repr,
)
def test_another_declaration_has_another_fingerprint(schedule: Schedule, call: bytes) -> None:
    assert fingerprint(schedule, call) != fingerprint(Cron("0 3 * * *"), CALL)


def test_a_fingerprint_never_changes() -> None:
    """Otherwise every upgrade of windlass would replace every schedule."""
    assert fingerprint(Cron("0  3 * * *"), CALL) == "31bbac99214b94402e322e9fe900e9f0"
    assert (
        fingerprint(Schedule.from_data(Cron("0 3 * * *").to_data()), CALL)
        == "31bbac99214b94402e322e9fe900e9f0"
    )
