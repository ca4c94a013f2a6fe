"""Imported by every interpreter that has this folder on its path: takes away what Linux alone has.

What is not ours is imported first, because it chooses its code by the system, too.
"""

from __future__ import annotations

import asyncio
import ctypes
import io
import multiprocessing
import os
import selectors
import subprocess
import sys
import tempfile
from typing import Any

import click
import rich.console

OF_OTHERS = (asyncio, click, ctypes, multiprocessing, rich.console, selectors, subprocess, tempfile)
MISSING = ("memfd_create", "pidfd_open", "sched_getaffinity", "eventfd", "posix_fallocate")


def _without_proc(real: Any) -> Any:
    def use(path: Any, *rest: Any, **options: Any) -> Any:
        if not isinstance(path, int) and os.fsdecode(path).startswith("/proc"):
            raise FileNotFoundError(2, "No such file or directory", path)
        return real(path, *rest, **options)

    return use


for _name in MISSING:
    delattr(os, _name)
io.open = _without_proc(io.open)
os.stat = _without_proc(os.stat)
sys.platform = "darwin"
sys.stderr.write("without what Linux alone has\n")
