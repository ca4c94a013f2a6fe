"""While a cluster moves the slot of a partition, every script has its whole effect or none.

Redis has no rollback. In a moving slot, Redis aborts a script at a key that is not available, or
that the script has emptied, and earlier writes stay. These tests call every script in every such
state, on two real nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from math import comb

import pytest
from redis.exceptions import MovedError

from tests.contract.variants import Variant
from tests.engine.redis.slot_scenarios import EMPTIES, SCENARIOS, Stage
from tests.engine.redis.slots import (
    EVERY_KEY,
    NAMESPACE,
    RESTING,
    Pair,
    Recording,
    is_refusal,
    is_same,
    judge,
    record,
    refuse,
    run_case,
)
from windlass.engine.redis import keys
from windlass.engine.redis.client import scripts
from windlass.engine.redis.client.scripts import Script
from windlass.engine.redis.engine import RedisEngine
from windlass.testing.contract.world import World

#: With more keys, to try all sets of them takes more than a few seconds.
FEW_KEYS = 16
FEW = [name for name in scripts.names() if len(scripts.load(name).keys) <= FEW_KEYS]
MANY = [name for name in scripts.names() if name not in FEW]


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    pair.end()


@pytest.fixture(scope="module")
def recording(pair: Pair, tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """Every call of all scenarios, in a stable slot."""
    recording = Recording()
    for scenario in SCENARIOS:
        pair.rest()
        url = pair.source.server.url(namespace=NAMESPACE)
        variant = Variant("redis", tmp_path_factory.mktemp("slots"), url)
        world = World(variant)
        assert isinstance(world.engine, RedisEngine)
        with record(world.engine, pair.source, recording):
            scenario(Stage(world, pair.source))
        assert world.engine.check() == []
        variant.shutdown()
    return recording


def test_every_script_is_called(recording: Recording) -> None:
    assert {case.script.name for case in recording.cases.values()} == set(scripts.names())


@pytest.mark.parametrize("name", scripts.names())
def test_the_last_member_is_taken_out_of_everything(recording: Recording, name: str) -> None:
    emptied = set(chain.from_iterable(case.emptied for case in recording.of(name)))
    assert emptied == EMPTIES[name]


@pytest.mark.parametrize("name", scripts.names())
def test_with_all_its_keys_at_hand_it_has_its_whole_effect(
    pair: Pair, recording: Recording, name: str
) -> None:
    wrong = [words for case in recording.distinct(name) for words in judge(pair, case)]
    assert wrong == []


@pytest.mark.parametrize("name", FEW)
def test_without_one_of_its_keys_it_has_no_effect(
    pair: Pair, recording: Recording, name: str
) -> None:
    case = recording.most_changing(name)
    number = 2 ** len(case.script.keys) - 1
    assert refuse(pair, case) == {b"-TRYAGAIN": 2 * number - 1, b"-ASK": 1}


@pytest.mark.parametrize("name", MANY)
def test_without_few_or_most_of_its_many_keys_it_has_no_effect(
    pair: Pair, recording: Recording, name: str
) -> None:
    case = recording.most_changing(name)
    said = refuse(pair, case, most=3)
    number = sum(comb(len(case.script.keys), few) for few in (1, 2, 3))
    assert said == {b"-TRYAGAIN": 2 * 2 * number + 1, b"-ASK": 1}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in MANY if name not in ("check", "open", "repair")])
def test_without_any_of_its_many_keys_it_has_no_effect(
    pair: Pair, recording: Recording, name: str
) -> None:
    case = recording.most_changing(name)
    number = 2 ** len(case.script.keys) - 1
    assert refuse(pair, case) == {b"-TRYAGAIN": 2 * number - 1, b"-ASK": 1}


@pytest.mark.parametrize("name", scripts.names())
def test_a_call_follows_its_keys_as_they_really_move(
    pair: Pair, recording: Recording, name: str
) -> None:
    """Move one key at a time: while the keys of a script are on both nodes, no node runs it; when
    all have arrived, the target does."""
    case = recording.most_changing(name)
    for order in (list(keys.KINDS), list(reversed(keys.KINDS))):
        pair.begin(case.before, EVERY_KEY, ())
        here = set(case.script.keys)
        for moved in order:
            pair.move(moved)
            here.discard(moved)
            if here and len(here) < len(case.script.keys):
                stored = pair.values()
                assert is_refusal(pair.call_source(case))
                assert is_refusal(pair.call_target(case))
                assert pair.values() == stored
        assert is_refusal(pair.call_source(case))
        assert is_same(pair.call_target(case), case.reply)
        assert pair.values() == (case.before.only(()), case.after)


def test_the_old_owner_runs_nothing_any_more(pair: Pair, recording: Recording) -> None:
    pair.begin(recording.most_changing("put").before, (), EVERY_KEY)
    pair.hand_over(pair.source, pair.target)
    try:
        for name in scripts.names():
            case = recording.most_changing(name)
            pair.target.place(case.before, EVERY_KEY, RESTING)
            assert isinstance(pair.call_source(case), MovedError)
            (reply,) = pair.target.send([case.command])
            assert is_same(reply, case.reply)
            assert pair.target.values() == case.after
    finally:
        pair.target.tell(b"FLUSHALL")
        pair.hand_over(pair.target, pair.source)


# ---------------------------------------------------------------------------------- planted bugs

PLANTED = {
    "touches a key after it was emptied": (
        "-- KEYS: job ready\n"
        "redis.call('HSET', key.job, 'a', 'b')\n"
        "redis.call('ZREM', key.ready, '')\n"
        "return redis.call('ZCARD', key.ready)\n"
    ),
    "writes to a key that it does not declare": (
        "-- KEYS: job ready\n"
        "redis.call('HSET', key.job, 'a', 'b')\n"
        "return redis.call('ZADD', string.gsub(key.ready, 'ready', 'due'), 1, 'a')\n"
    ),
    "writes, then reads a key that may be missing": (
        "-- KEYS: job ready\n"
        "redis.call('HSET', key.job, 'a', 'b')\n"
        "return redis.call('HGET', string.gsub(key.ready, 'ready', 'extra'), 'a')\n"
    ),
    "makes a key of its own": (
        "-- KEYS: job ready\nreturn redis.call('SET', key.ready .. ':a', 'b')\n"
    ),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(pair: Pair, recording: Recording, bug: str) -> None:
    before = recording.of("put")[0].before  # nothing but sentinels
    case = run_case(pair, Script("planted", {"planted": PLANTED[bug]}.__getitem__), before)
    assert judge(pair, case)


def test_a_script_with_a_single_key_is_found(pair: Pair, recording: Recording) -> None:
    """The target would run it before its key has arrived."""
    text = "-- KEYS: job\nreturn redis.call('HSET', key.job, 'a', 'b')\n"
    before = recording.of("put")[0].before  # nothing but sentinels
    case = run_case(pair, Script("planted", {"planted": text}.__getitem__), before)
    with pytest.raises(AssertionError, match="changed something"):
        refuse(pair, case)


@pytest.mark.parametrize(
    ("script", "name"),
    [("turn", "ready"), ("turn", "due"), ("tend", "lease"), ("adopt", "parked"), ("beat", "asked")],
)
def test_a_lost_sentinel_is_found(pair: Pair, recording: Recording, script: str, name: str) -> None:
    """Without it, the key vanishes with its last member, and Redis aborts the script after that."""
    cases = [case for case in recording.of(script) if name in case.emptied]
    wrong = [judge(pair, case.without_sentinel(pair, name)) for case in cases]
    assert any(wrong)
