"""A proof that is repeated on every engine that a worker can serve."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from tests.contract.variants import fresh_url

ENGINES: Final = ("sqlite-file", "redis", "redis-4")


def on_every_engine(
    prove: Callable[[Path, str], Iterator[str]],
) -> Callable[[Path], Iterator[str]]:
    """`prove` is given a folder and a url for each engine in turn."""

    def prove_everywhere(folder: Path) -> Iterator[str]:
        for engine in ENGINES:
            own = folder / engine
            own.mkdir()
            for line in prove(own, fresh_url(engine, own)):
                yield f"{engine}: {line}"

    return prove_everywhere
