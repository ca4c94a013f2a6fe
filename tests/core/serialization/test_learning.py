"""msgspec inspects a class at its first use, and crashes when two threads do so at once."""

from __future__ import annotations

import signal
import subprocess
import sys

#: A class that msgspec has inspected in part when the other thread uses it: evaluating the
#: annotation in the inner one waits half way, until the other thread is done or stuck.
TWO_THREADS_MEET_A_CLASS = """
import threading
import msgspec
from windlass.core.serialization.values import ValueCodec

is_half_way, may_go_on = threading.Event(), threading.Event()

def stop_half_way():
    if not is_half_way.is_set():
        is_half_way.set()
        may_go_on.wait(60)
    return int

class Inner(msgspec.Struct):
    count: "stop_half_way()"

class Met(msgspec.Struct):
    inner: Inner

def meet():
    return ValueCodec(Met).decode(b'{"inner": {"count": 3}}')

first = threading.Thread(target=meet)
first.start()
is_half_way.wait(60)
seen = []
second = threading.Thread(target=lambda: seen.append(meet()))
second.start()
second.join(0.2)
may_go_on.set()
first.join(60)
second.join(60)
print(seen[0].inner.count)
"""

#: What msgspec runs of its own Python code is the learning of a class.
A_STORED_POLICY_IS_READ = """
import sys
from windlass.core.retry import Retry

data = Retry(3).to_data()
files = set()
sys.setprofile(lambda frame, event, value: files.add(frame.f_code.co_filename))
Retry.from_data(data)
sys.setprofile(None)
print(any("retry.py" in name for name in files), any("msgspec" in name for name in files))
"""

A_STORED_SCHEDULE_IS_READ = """
import sys
from windlass.core.schedules.triggers import Every, Schedule

data = Every("1h").to_data()
files = set()
sys.setprofile(lambda frame, event, value: files.add(frame.f_code.co_filename))
Schedule.from_data(data)
sys.setprofile(None)
print(any("triggers.py" in name for name in files), any("msgspec" in name for name in files))
"""


def test_two_threads_that_meet_a_class_at_once_both_decode_it() -> None:
    done = run(TWO_THREADS_MEET_A_CLASS)
    assert done.returncode != -signal.SIGSEGV, "the process was ended by the decoder"
    assert (done.stdout, done.stderr) == ("3\n", "")


def test_a_stored_retry_policy_is_learnt_before_any_thread_reads_one() -> None:
    done = run(A_STORED_POLICY_IS_READ)
    assert (done.stdout, done.stderr) == ("True False\n", "")


def test_a_stored_schedule_is_learnt_before_any_thread_reads_one() -> None:
    done = run(A_STORED_SCHEDULE_IS_READ)
    assert (done.stdout, done.stderr) == ("True False\n", "")


def run(code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
