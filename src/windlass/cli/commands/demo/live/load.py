"""The load of the live demo: which calls arrive in which second.

1. `calls_of` gives the calls of one second. Rates follow a wave of some minutes, and newsletters
   come in bursts. The same second and seed give the same calls.
2. `calls_of_next_release` gives calls of a task that the workers of the shop do not know yet.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Final, TypeAlias

import msgspec

from windlass import Windlass
from windlass.cli.commands.demo.live import tasks
from windlass.task import Call, Task

#: The period of the wave, in seconds.
WAVE_S: Final = 420
#: A newsletter is sent this often, in seconds, to this many customers.
BURST_S: Final = 600
BURST: Final = 150
#: Numbers of orders and customers are below this one.
NUMBERS: Final = 9_000

Arguments: TypeAlias = Callable[[Random], Call[Any]]


class Arrivals(msgspec.Struct, frozen=True):
    """The calls of one task: how many arrive in a second on average, by how much of that the wave
    changes their rate, and how to make one."""

    rate: float
    swing: float
    make: Arguments


def _number(random: Random) -> int:
    return random.randrange(NUMBERS)


def _address(random: Random) -> str:
    return f"{random.choice(('ada', 'grace', 'linus', 'edsger'))}@example.com"


ARRIVALS: Final = (
    Arrivals(0.35, 0.6, lambda r: tasks.welcome.bind(_number(r))),
    Arrivals(0.45, 0.6, lambda r: tasks.receipt.bind(_number(r), _address(r))),
    Arrivals(0.50, 0.7, lambda r: tasks.charge.bind(_number(r), r.randrange(300, 20_000))),
    Arrivals(0.10, 0.3, lambda r: tasks.refund.bind(_number(r), r.randrange(300, 9_000))),
    Arrivals(0.70, 0.5, lambda r: tasks.index.bind(_number(r))),
    Arrivals(0.30, 0.8, lambda r: tasks.resize.bind(f"photo-{_number(r)}.jpg", [320, 1280])),
    Arrivals(0.06, 0.0, lambda r: tasks.export.bind(_number(r))),
    Arrivals(0.04, 0.0, lambda r: tasks.render.bind(r.choice(("invoice", "label", "poster")))),
    Arrivals(0.012, 0.0, lambda r: tasks.monthly.bind(f"2026-{r.randrange(1, 13):02}")),
    Arrivals(0.03, 0.0, lambda r: tasks.import_prices.bind("acme", r.randrange(1, 400))),
    Arrivals(0.02, 0.0, lambda r: _later(r).bind(_number(r))),
)


def _later(random: Random) -> Task[..., Any]:
    return tasks.remind.using(run_after=random.randrange(60, 7_200), priority=random.choice((0, 5)))


def calls_of(second: int, seed: int = 0) -> Iterator[Call[Any]]:
    """Make the calls that arrive in this second since 1970."""
    random = Random(f"{seed} {second}")
    wave = math.sin(2 * math.pi * (second % WAVE_S) / WAVE_S)
    for arrivals in ARRIVALS:
        expected = arrivals.rate * (1 + arrivals.swing * wave)
        for _ in range(int(expected) + (random.random() < expected % 1)):
            yield arrivals.make(random)
    if second % BURST_S == 0:
        for customer in range(BURST):
            yield tasks.newsletter.bind(customer, f"issue {second // BURST_S % 100}")


def calls_of_next_release(app: Windlass, number: int) -> list[Call[Any]]:
    """Make calls of a task that only the next release of the shop has. `app` stands for it."""

    @app.task(name="images.upscale")
    def upscale(photo: str, factor: int) -> str:
        return f"{photo}@{factor}x"

    return [upscale.bind(f"photo-{at}.jpg", 4) for at in range(number)]
