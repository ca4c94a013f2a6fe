"""Run a proof on every engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from tests.contract.variants import fresh_url

ENGINES: Final = ("sqlite-file", "redis", "redis-4", "postgres")


def on_every_engine(
    prove: Callable[[Path, str], Iterator[str]],
) -> Callable[[Path], Iterator[str]]:
    """Call `prove` with a folder and a URL for each engine in turn."""

    def prove_everywhere(folder: Path) -> Iterator[str]:
        for engine in ENGINES:
            own = folder / engine
            own.mkdir()
            for line in prove(own, fresh_url(engine, own)):
                yield f"{engine}: {line}"

    return prove_everywhere
