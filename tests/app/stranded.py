"""Check that the names removed by `elsewhere` are missing for every kind of lookup."""

from __future__ import annotations

import importlib
import os
import select
import socket
import sys

from tests.app.elsewhere import MISSING, MODULES


def refused(call: object, *arguments: object) -> bool:
    assert callable(call)
    try:
        call(*arguments)
    except (OSError, ModuleNotFoundError):
        return True
    return False


if __name__ == "__main__":
    assert sys.platform == "win32"
    assert not [
        name for module, names in MISSING.items() for name in names if hasattr(module, name)
    ]
    assert all(refused(importlib.import_module, name) for name in MODULES)
    reader, writer = os.pipe()
    assert refused(select.select, [reader], [], [], 0)
    one, other = socket.socketpair()
    assert refused(os.write, one.fileno(), b"1")
    assert select.select([other], [], [], 0) == ([], [], [])
    for end in (one, other):
        end.close()
