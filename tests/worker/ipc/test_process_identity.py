"""Whether a process has certainly ended, with real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.worker.yard import until
from windlass.worker.ipc import process_identity
from windlass.worker.ipc.process_identity import has_ended, machine, start_of

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="without /proc no process is recognised"
)


def test_a_process_that_lives_has_not_ended() -> None:
    assert start_of(os.getpid()) > 0
    assert not has_ended(os.getpid(), start_of(os.getpid()))


def test_a_process_that_was_waited_for_has_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        start = start_of(process.pid)
        assert not has_ended(process.pid, start)
    assert start > 0
    assert has_ended(process.pid, start)


def test_a_process_that_no_parent_waits_for_has_ended() -> None:
    """In a container the first process may never do so."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        start = start_of(process.pid)
        process.kill()
        until(lambda: has_ended(process.pid, start), "its end to be seen")
        assert process.returncode is None


def test_a_pid_that_is_used_again_is_another_process() -> None:
    assert has_ended(os.getpid(), start_of(os.getpid()) - 1)


@pytest.mark.parametrize(("pid", "start"), [(0, 1), (-1, 1), (1 << 70, 1), (1, 0)])
def test_what_says_nothing_is_no_proof(pid: int, start: int) -> None:
    assert not has_ended(pid, start)


def test_a_process_that_is_hidden_may_live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """/proc can be mounted so that a user sees no processes of others."""

    def refuse(pid: int, number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(process_identity, "_PROC", tmp_path)
    monkeypatch.setattr(os, "kill", refuse)
    assert not has_ended(1, 1)


def test_a_process_whose_first_thread_has_ended_may_live(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat = Path("/proc/self/stat").read_bytes()
    folder = tmp_path / str(os.getpid())
    for thread in ("1", "2"):
        (folder / "task" / thread).mkdir(parents=True)
    before, _, after = stat.rpartition(b")")
    (folder / "stat").write_bytes(before + b") Z" + after.lstrip()[1:])
    start = start_of(os.getpid())
    monkeypatch.setattr(process_identity, "_PROC", tmp_path)
    assert not has_ended(os.getpid(), start)
    (folder / "task" / "2").rmdir()
    assert has_ended(os.getpid(), start)


def test_the_name_of_a_program_may_contain_anything() -> None:
    code = "import ctypes; ctypes.CDLL(None).prctl(15, b') 1 2 (', 0, 0, 0); print(); input()"
    command = [sys.executable, "-c", code]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert b") 1 2 (" in Path(f"/proc/{process.pid}/comm").read_bytes()
        assert not has_ended(process.pid, start_of(process.pid))
        assert start_of(process.pid) >= start_of(os.getpid()) > 0


def test_a_machine_is_its_boot_and_its_namespaces() -> None:
    boot, *names = machine().split()
    assert boot == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert names[0] == os.readlink("/proc/self/ns/pid")


def test_without_proc_the_machine_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_identity, "_PROC", tmp_path)
    assert machine() == ""
    assert start_of(os.getpid()) == 0


def test_with_the_proc_of_another_namespace_the_machine_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    boot = tmp_path / "sys" / "kernel" / "random"
    boot.mkdir(parents=True)
    (boot / "boot_id").write_text("a boot\n")
    (tmp_path / "self" / "ns").mkdir(parents=True)
    (tmp_path / "self" / "ns" / "pid").symlink_to("pid:[1]")
    monkeypatch.setattr(process_identity, "_PROC", tmp_path)
    (tmp_path / "self" / "stat").write_text(f"{os.getpid()} (name) R 1")
    assert machine() == "a boot pid:[1]"
    (tmp_path / "self" / "stat").write_text(f"{os.getpid() + 1} (name) R 1")
    assert machine() == ""
