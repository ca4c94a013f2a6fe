"""The Lua files: their assembly, their declarations, and that their numbers match Python's."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

import pytest
from redis.crc import key_slot

from windlass.core import durations, history, states, unique
from windlass.core.states import Event, State
from windlass.engine import contract
from windlass.engine.redis import decode, encode, keys, wakeup
from windlass.engine.redis.client import scripts
from windlass.engine.redis.client.scripts import Prefix, Script

FILES = {
    "verb": "-- Does something.\n-- KEYS: due\n--@include two\n--@include one\nreturn one + two\n",
    "lib/one": "-- KEYS: job\nlocal one = key.job  -- why\n",
    "lib/two": "--@include one\nlocal two = 2\n",
}

#: These walk the fields of a key in batches, which have no order.
WALKING = {"check", "list_keys", "repair", "stats", "tend"}


def test_parts_come_once_and_before_what_needs_them() -> None:
    script = Script("verb", FILES.__getitem__)
    lines = script.text.decode().splitlines()
    assert lines[1:] == ["local one = key.job  -- why", "local two = 2", "return one + two"]


def test_a_part_can_be_inserted_where_it_is_needed() -> None:
    files = {**FILES, "verb": "if far then\n--@insert two\n  return two\nend\n"}
    script = Script("verb", files.__getitem__)
    lines = script.text.decode().splitlines()[1:]
    assert lines[0] == "if far then"
    assert lines[1:3] == ["local one = key.job  -- why", "local two = 2"]
    assert script.keys == ("job",)


def test_the_keys_of_all_parts_are_declared() -> None:
    script = Script("verb", FILES.__getitem__)
    assert script.keys == ("job", "due")
    assert script.text.startswith(b"local key = {job = KEYS[1], due = KEYS[2]}\n")


def test_an_unknown_key_is_refused() -> None:
    with pytest.raises(ValueError, match="do not exist: nothing"):
        Script("verb", {"verb": "-- KEYS: nothing\n"}.__getitem__)


def test_numbers_stand_in_the_place_of_their_names() -> None:
    text = "local LAST, FIRST = 10, 2\nlocal LATER = other\nreturn LAST + FIRST + AT_LAST, 'LAST'"
    script = Script("verb", {"verb": text}.__getitem__)
    lines = [line for line in script.text.decode().splitlines()[1:] if line]
    assert lines == ["local LATER = other", "return 10 + 2 + AT_LAST, 'LAST'"]


def test_the_digest_is_that_of_the_text() -> None:
    script = Script("verb", FILES.__getitem__)
    assert script.sha == hashlib.sha1(script.text).hexdigest().encode()


def test_a_command_in_the_protocol_of_redis() -> None:
    prefix = Prefix((b"EVALSHA", b"abc"))
    assert prefix.command((b"", b"\x00\r\n")) == (
        b"*4\r\n$7\r\nEVALSHA\r\n$3\r\nabc\r\n$0\r\n\r\n$3\r\n\x00\r\n\r\n"
    )
    assert scripts.pack(b"PING") == b"*1\r\n$4\r\nPING\r\n"


@pytest.mark.parametrize("name", scripts.names())
def test_a_script_says_what_it_is_for(name: str) -> None:
    header = scripts._read(name)
    assert header.startswith("-- ")
    for word in ("ARGV:", "Returns:"):
        assert f"\n-- {word}" in header


@pytest.mark.parametrize("name", scripts.names())
def test_a_script_touches_only_keys_that_it_declares(name: str) -> None:
    script = scripts.load(name)
    touched = set(re.findall(r"\bkey\.(\w+)", script.text.decode()))
    assert touched <= set(script.keys)


@pytest.mark.parametrize("name", scripts.names())
def test_no_script_searches_or_expires(name: str) -> None:
    """Work is bounded, and no key expires: Redis would abort a script at a missing key."""
    text = scripts.load(name).text.decode()
    commands = set(re.findall(r"(?:call|write)\('(\w+)'", text))
    assert commands
    assert commands.isdisjoint({"KEYS", "SCAN", "ZSCAN", "DEL", "EXPIRE", "RENAME"})
    assert name in WALKING or "HSCAN" not in commands
    assert commands.isdisjoint({"ZPOPMIN", "ZPOPMAX", "ZREMRANGEBYLEX"})


@pytest.mark.parametrize("partition", [0, 1, 1023])
def test_the_keys_of_a_partition_are_in_one_slot(partition: int) -> None:
    slots = {key_slot(keys.key("windlass", partition, name).encode()) for name in keys.KINDS}
    assert len(slots) == 1


def test_the_numbers_in_lua_are_those_of_the_contract() -> None:
    text = scripts._read("lib/constants")
    found = {name: int(number) for name, number in re.findall(r"local (\w+) = (\d+)", text)}
    stray = {"STRAY_BASE_MS": states.stray_delay_ms(0), "STRAY_CAP_MS": states.stray_delay_ms(99)}
    assert found == {
        "BITE": contract.BITE,
        "MAX_PASSED_OVER": contract.MAX_PASSED_OVER,
        "CHUNK": contract.BATCH,
        "MAX_PAIRS": contract.MAX_PAIRS,
        "WIDTH": history.WIDTH,
        "MINUTE_MS": history.MINUTE_MS,
        "HOUR_MS": history.HOUR_MS,
        "KEEP_MINUTES_MS": history.KEEP_MINUTES_MS,
        "KEEP_HOURS_MS": history.KEEP_HOURS_MS,
        "MAX_FAILURES": contract.MAX_FAILURES,
        "MIN_RECORD_MS": contract.MIN_RECORD_MS,
        "IDEMPOTENCY_MS": contract.IDEMPOTENCY_MS,
        "UNKNOWN_NONCE_MS": contract.UNKNOWN_NONCE_MS,
        "GONE_SESSION_MS": 60 * 60 * 1000,
        "SUSPECT_AFTER_LOSSES": states.SUSPECT_AFTER_LOSSES,
        "RENEWED_WITHIN_MS": wakeup.MOST_RENEW_S * 1000,
        "LATEST_MS": durations.LATEST_MS,
        **stray,
    }


def test_the_codes_of_a_record_are_those_that_lua_knows() -> None:
    text = scripts._read("lib/codec")
    lists = dict(re.findall(r"^local (\w+) = \{ (.*) \}$", text, re.MULTILINE))
    known = {name: tuple(re.findall(r"'(\w*)'", names)) for name, names in lists.items()}
    assert known == {
        "STATES": decode._STATES[1:],
        "HOLDS": decode._HOLDS[1:],
        "EVENTS": decode._EVENTS[1:],
    }
    layout = dict(_constants("lib/layout"))
    assert layout["MOST_INLINE_CALL"] == encode.MOST_INLINE_CALL
    codes = {"READY": State.READY, "RUNNING": State.RUNNING, "SUCCEEDED": State.SUCCEEDED}
    assert {name: layout[name] for name in codes} == {
        name: decode._STATES.index(state) for name, state in codes.items()
    }
    assert layout["SUCCEED"] == decode._EVENTS.index(Event.SUCCEED)


def _constants(path: str) -> Iterator[tuple[str, int]]:
    declared = re.compile(r"^local ([A-Z_, ]+) = ([\d, ]+)(?: +--.*)?$", re.MULTILINE)
    for names, values in declared.findall(scripts._read(path)):
        yield from zip(names.split(", "), map(int, values.split(", ")), strict=True)


def test_the_hold_of_a_unique_key_in_lua_is_the_one_in_python() -> None:
    text = scripts._read("lib/unique")
    (block,) = re.findall(r"local HOLDING = \{(.*?)\n\}", text, re.DOTALL)
    (queued,) = re.findall(r"local QUEUED = \{(.*?)\}", text)
    found = {
        name: set(re.findall(r"(\w+) = true", states_of if "true" in states_of else queued))
        for name, states_of in re.findall(r"(\w+)'?\]? = (QUEUED|\{[^}]*\})", block)
    }
    assert found == {str(until): set(held) for until, held in unique.HOLDING.items()}


def test_the_state_machine_in_lua_is_the_one_in_python() -> None:
    text = scripts._read("lib/moves")
    (block,) = re.findall(r"local TARGETS = \{(.*?)\}", text, re.DOTALL)
    targets = dict(re.findall(r"(\w+) = '(\w+)'", block))
    events = {
        str(event): str(target)
        for (state, event), target in states.TABLE.items()
        if target is not None and (state, event) != (states.State.RUNNING, states.Event.CANCEL)
    }
    del events["progress"]  # not a move
    del events["claim"], events["succeed"]  # have their own moves, which the contract tests cover
    assert targets == events
    (block,) = re.findall(r"local AFTER_CANCEL_REQUEST = \{(.*?)\}", text, re.DOTALL)
    assert set(re.findall(r"(\w+) = true", block)) == states.AFTER_CANCEL_REQUEST
