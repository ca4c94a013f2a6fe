"""The engines against the reference model; engines with several partitions have their own model."""

from __future__ import annotations

import shutil
import tempfile
from functools import partial
from pathlib import Path
from typing import ClassVar, cast

import pytest

from tests.contract.model_partitions import PartitionedModel
from tests.contract.variants import Variant
from tests.postgres_databases import give_back_database
from windlass.engine.contract import Engine
from windlass.engine.redis.engine import RedisEngine
from windlass.testing.contract.machine import QueueMachine, run_machine
from windlass.testing.contract.model import Model
from windlass.testing.contract.place import OPTIONS
from windlass.testing.contract.world import START_MS, World


class PartitionedMachine(QueueMachine):
    """The model of several partitions asks them in the order in which the engine does."""

    has_one_partition: ClassVar[bool] = False

    def make_model(self) -> Model:
        # It has the same operations, but is no subclass: its state is in the models inside.
        return cast(Model, PartitionedModel(OPTIONS, START_MS, 4))

    def follow(self, engine: Engine) -> None:
        assert isinstance(engine, RedisEngine)
        cast(PartitionedModel, self.model).follow(engine)


@pytest.mark.timeout(600)  # to shrink a failing example takes time
@pytest.mark.parametrize(
    ("name", "examples"),
    [
        *(
            ("sqlite-memory", 25),
            ("sqlite-file-normal", 25),
            ("redis", 25),
            ("redis-4", 20),
            ("postgres", 6),
        ),
        pytest.param("sqlite-memory", 300, marks=pytest.mark.slow),
        pytest.param("redis", 300, marks=pytest.mark.slow),
        pytest.param("postgres", 100, marks=pytest.mark.slow),
    ],
)
def test_an_engine_does_what_the_model_does(name: str, examples: int) -> None:
    machine = PartitionedMachine if name == "redis-4" else QueueMachine
    run_machine(partial(new_world, name), examples=examples, machine=machine)


def new_world(name: str) -> World:
    folder = Path(tempfile.mkdtemp(prefix="windlass-machine-"))
    return World(TemporaryVariant(name, folder))


class TemporaryVariant(Variant):
    def remove(self) -> None:
        super().remove()
        shutil.rmtree(self.folder)
        give_back_database(self.url)
