"""The Lua scripts of this engine: one file per operation in `lua/`, shared parts in `lua/lib/`.

1. A file lists its keys in its header (`-- KEYS: meta job`) and the parts that it needs
   (`--@include records`). Every part is included once, before the code that needs it.
2. All code after `--@nest` is wrapped in its own function. A function that is defined there copies
   the outer names that it uses; otherwise Lua would look up each name among all names in use.
3. `--@insert name` is replaced by that part and the parts that it needs. Inside a function or a
   condition, Lua defines their functions only when it gets there.
4. A script declares the keys of all its parts. In Lua they are `key.meta`, `key.job` and so on.
5. `Script.prefixes` are the constant heads of a call in Redis's protocol, made once per partition.
6. A server whose memory is full refuses scripts whose first write may need memory, and accepts all
   others. A script that adds nothing (no `--@adds`) can start with a removal of nothing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from windlass.engine.redis import keys

_LUA: Final = Path(__file__).parent.parent / "lua"
_KEYS: Final = re.compile(r"^-- KEYS:(.*)$", re.MULTILINE)
_COMMAND: Final = re.compile(rb"\b(?:p?call|write)\('([A-Z]+)'")
_CONSTANT: Final = r"(?:\d+|'[^',\n]*')"
_CONSTANTS: Final = re.compile(
    rf"^ *local ([A-Z_]+(?:, [A-Z_]+)*) = ({_CONSTANT}(?:, {_CONSTANT})*)(?: *--.*)?$", re.MULTILINE
)
_WORD_OR_TEXT: Final = re.compile(r"'[^'\n]*'|\b[A-Z][A-Z_]+\b")
_ADDS: Final = re.compile(r"^--@adds$", re.MULTILINE)
#: A write that needs no memory and changes nothing, because this field is never set.
_REMOVE_NOTHING: Final = "redis.call('HDEL', key.meta, 'nothing')"
_NEST: Final = "--@nest\n"
_INCLUDE: Final = re.compile(r"^--@include (\w+)$", re.MULTILINE)
_INSERT: Final = re.compile(r"^--@insert (\w+)$", re.MULTILINE)


class Script:
    """One script: the text to send to the server, and the keys that the script declares."""

    def __init__(self, name: str, read: Callable[[str], str]) -> None:
        parts = list(_parts(name, read, set()))
        self.name = name
        self.keys = _declared(parts)
        table = ", ".join(f"{key} = KEYS[{number}]" for number, key in enumerate(self.keys, 1))
        body = _inlined(_without_comments(_nested(parts)))
        head = f"local key = {{{table}}}\n"
        self.text = f"{head}{body}".encode()
        self.sha = hashlib.sha1(self.text, usedforsecurity=False).hexdigest().encode()
        #: Text for a server with full memory; None if the script may not run there.
        self.text_when_full: bytes | None = None
        self.adds = any(map(_ADDS.search, parts))
        if "meta" in self.keys and not self.adds:
            self.text_when_full = f"{head}{_REMOVE_NOTHING}\n{body}".encode()

    def prefixes(self, namespace: str, partition: int, arguments: Sequence[bytes] = ()) -> Prefixes:
        """Pack the heads of calls in a partition, up to the arguments that all calls share."""
        names = [keys.key(namespace, partition, name).encode() for name in self.keys]
        rest = (b"%d" % len(names), *names, *arguments)
        return Prefixes(
            Prefix((b"EVALSHA", self.sha, *rest)),
            Prefix((b"EVAL", self.text, *rest)),
            (b"EVAL", self.text_when_full, *rest) if self.text_when_full else None,
            self.adds,
        )


class Prefix:
    """The first arguments of a command, packed once."""

    __slots__ = ("_number", "_packed")

    def __init__(self, arguments: Sequence[bytes]) -> None:
        self._number = len(arguments)
        self._packed = b"".join(
            [b"$%d\r\n%b\r\n" % (len(argument), argument) for argument in arguments]
        )

    def command(self, arguments: Sequence[bytes]) -> bytes:
        """Pack the command in Redis's protocol."""
        words = [b"*%d\r\n" % (self._number + len(arguments)), self._packed]
        for argument in arguments:
            words += (b"$%d\r\n" % len(argument), argument, b"\r\n")  # copies a long one once
        return b"".join(words)


class Prefixes(NamedTuple):
    """Constant heads of the calls of one script in one partition."""

    by_digest: Prefix
    whole: Prefix  # for a server that lost the script
    when_full: tuple[bytes, ...] | None  # for a server whose memory is full; seldom packed
    adds: bool


def pack(*arguments: bytes) -> bytes:
    """Pack a plain command in Redis's protocol."""
    return Prefix(arguments).command(())


@cache
def load(name: str) -> Script:
    return Script(name, _read)


def names() -> list[str]:
    """List all scripts."""
    found = (file.name for file in _LUA.iterdir())
    return sorted(name.removesuffix(".lua") for name in found if name.endswith(".lua"))


def commands() -> list[bytes]:
    """List every command that a script sends, to check the permissions of the Redis user."""
    return sorted({command for name in names() for command in _COMMAND.findall(load(name).text)})


def _read(path: str) -> str:
    return _LUA.joinpath(f"{path}.lua").read_text(encoding="utf-8")


def _parts(path: str, read: Callable[[str], str], seen: set[str]) -> Iterator[str]:
    """Iterate over the texts of all included files, each once, then of the file itself."""
    seen.add(path)
    text = read(path)
    for included in _INCLUDE.findall(text):
        if f"lib/{included}" not in seen:
            yield from _parts(f"lib/{included}", read, seen)
    yield _INSERT.sub(lambda found: "".join(_parts(f"lib/{found[1]}", read, seen)), text)


def _declared(parts: Sequence[str]) -> tuple[str, ...]:
    declared = {name for part in parts for line in _KEYS.findall(part) for name in line.split()}
    unknown = declared.difference(keys.KINDS)
    if unknown:
        raise ValueError(f"a script declares keys that do not exist: {', '.join(sorted(unknown))}")
    return tuple(name for name in keys.KINDS if name in declared)


def _nested(parts: Sequence[str]) -> list[str]:
    nested = [part.replace(_NEST, "return (function()\n") for part in parts]
    return [*nested, *("end)()" for part in parts if _NEST in part)]


def _without_comments(parts: Iterable[str]) -> str:
    lines = (line for part in parts for line in part.splitlines())
    return "\n".join(line for line in lines if line.strip() and not line.lstrip().startswith("--"))


def _inlined(text: str) -> str:
    """Replace named constants by their numbers. Lua looks up each outer name of a function when the
    function is defined, and every call of a script defines all functions again."""
    numbers: dict[str, str] = {}
    for names, values in _CONSTANTS.findall(text):
        numbers.update(zip(names.split(", "), values.split(", "), strict=True))
    return _WORD_OR_TEXT.sub(lambda word: numbers.get(word[0], word[0]), _CONSTANTS.sub("", text))
