"""The steps of replacing a child while its worker keeps running, with fake children."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import cast

import pytest

from tests.worker.yard import until
from windlass.worker.ipc.channel import Command, DrainChild, HandBack
from windlass.worker.supervisor import retirement
from windlass.worker.supervisor.child_process import ChildProcess
from windlass.worker.supervisor.reactor import Reactor
from windlass.worker.supervisor.retirement import Retirements

pids = count(1)


class Wooden:
    """As much of a child as is looked at; it hears everything and does nothing."""

    def __init__(self, *, is_solo: bool = False, hears: bool = True) -> None:
        self.pid = next(pids)
        self.is_solo = is_solo
        self.is_retiring = self.is_patient = self.is_leaving = False
        self.has_heard = hears
        self.sent: list[Command] = []

    def send(self, command: Command) -> None:
        self.sent.append(command)


class Scene:
    reactor: Reactor  # of the test

    def __init__(self, *, grace_s: float = 60.0, most: int = 2) -> None:
        self.replacements = 0
        self.killed: list[Wooden] = []
        self._retirements = Retirements(self.reactor, most, self._replace, self._kill)
        self._retirements.grace_s = grace_s
        self.notice_ready = self._retirements.notice_ready

    def _replace(self) -> None:
        self.replacements += 1

    def _kill(self, child: ChildProcess) -> None:
        self.killed.append(cast(Wooden, child))

    def retire(self, child: Wooden, *, at_once: bool = False, is_patient: bool = False) -> None:
        retiring = cast(ChildProcess, child)
        self._retirements.retire(retiring, "for a test", at_once=at_once, is_patient=is_patient)

    def forget(self, child: Wooden) -> None:
        self._retirements.forget(cast(ChildProcess, child))

    def wait_for(self, happened: Callable[[], object]) -> None:
        def look() -> object:
            self.reactor.after(0.005, lambda: None)  # so that the wait below has an end
            self.reactor.wait()
            return happened()

        until(look, "what was waited for")


@pytest.fixture(autouse=True)
def reactor(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with Reactor([]) as reactor:
        monkeypatch.setattr(Scene, "reactor", reactor, raising=False)
        yield


def test_a_child_goes_on_until_its_replacement_is_ready() -> None:
    scene, child = Scene(), Wooden()
    scene.retire(child)
    assert (scene.replacements, child.is_retiring, child.sent) == (1, True, [])
    scene.notice_ready()
    assert child.sent == [DrainChild()]
    scene.notice_ready()
    assert child.sent == [DrainChild()]


def test_a_child_can_be_told_to_stop_claiming_at_once() -> None:
    scene, child = Scene(), Wooden()
    scene.retire(child, at_once=True)
    assert (scene.replacements, child.sent) == (1, [DrainChild()])


def test_a_child_that_leaves_is_not_replaced() -> None:
    scene, child = Scene(), Wooden()
    child.is_leaving = True
    scene.retire(child, at_once=True, is_patient=True)
    assert (scene.replacements, child.is_retiring, child.sent) == (0, True, [DrainChild()])


def test_to_ask_again_only_hurries_it() -> None:
    scene, child = Scene(), Wooden()
    scene.retire(child)
    scene.retire(child, at_once=True)
    scene.retire(child, at_once=True)
    assert (scene.replacements, child.sent) == (1, [DrainChild()])


def test_one_for_jobs_that_run_alone_has_no_replacement() -> None:
    scene, child = Scene(), Wooden(is_solo=True)
    scene.retire(child)
    assert (scene.replacements, child.sent) == (0, [DrainChild()])


def test_after_the_grace_it_hands_back_and_then_it_is_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retirement, "KILL_S", 0.01)
    scene, child = Scene(grace_s=0.01), Wooden()
    scene.retire(child, at_once=True)
    scene.wait_for(lambda: scene.killed)
    assert child.sent == [DrainChild(), HandBack()]
    assert scene.killed == [child]


def test_a_child_that_does_not_hear_is_killed_before_the_grace_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retirement, "UNRESPONSIVE_S", 0.01)
    scene, deaf, hearing = Scene(), Wooden(hears=False), Wooden()
    scene.retire(hearing, at_once=True)
    scene.retire(deaf, at_once=True)
    scene.wait_for(lambda: scene.killed)
    assert scene.killed == [deaf]


def test_with_too_many_the_oldest_hands_back_at_once() -> None:
    scene = Scene(most=2)
    children = [Wooden() for _ in range(4)]
    for child in children:
        scene.retire(child, at_once=True)
    assert [HandBack() in child.sent for child in children] == [True, True, False, False]


def test_with_patience_it_may_take_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retirement, "UNRESPONSIVE_S", 0.01)
    monkeypatch.setattr(retirement, "KILL_S", 0.01)
    scene = Scene(grace_s=0.01, most=1)
    patient, other, last = Wooden(hears=False), Wooden(), Wooden()
    scene.retire(patient, is_patient=True)
    scene.notice_ready()
    scene.retire(other, at_once=True)
    scene.retire(last, at_once=True)
    scene.wait_for(lambda: len(scene.killed) == 2)
    assert (patient.sent, scene.killed) == ([DrainChild()], [other, last])


@pytest.mark.parametrize("is_ready", [False, True])
def test_the_patience_is_over_when_there_is_a_hurry(is_ready: bool) -> None:
    scene, child = Scene(grace_s=0.01), Wooden()
    scene.retire(child, is_patient=True)
    if is_ready:
        scene.notice_ready()
    scene.retire(child, at_once=True)
    scene.wait_for(lambda: HandBack() in child.sent)
    assert (scene.replacements, child.sent) == (1, [DrainChild(), HandBack()])


def test_those_that_have_ended_do_not_count() -> None:
    scene = Scene(most=1)
    first, second, third = Wooden(), Wooden(), Wooden()
    scene.retire(first)
    scene.forget(first)
    scene.notice_ready()
    scene.retire(second, at_once=True)
    scene.forget(second)
    scene.retire(third, at_once=True)
    assert [child.sent for child in (first, second, third)] == [[], [DrainChild()], [DrainChild()]]
