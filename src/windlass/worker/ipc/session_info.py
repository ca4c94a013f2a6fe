"""Describe the sessions of this process, for the heartbeats that introduce them."""

from __future__ import annotations

import os
import socket

from windlass.core import installed_version
from windlass.core.introduction import Introduction
from windlass.settings import Settings
from windlass.worker.ipc.process_identity import machine, start_of
from windlass.worker.options import WorkerOptions


def introduce(
    options: WorkerOptions,
    settings: Settings,
    worker: int,
    slots: int,
    started_ms: int,
    *,
    is_solo: bool,
) -> bytes:
    """Describe the sessions of this process."""
    return Introduction(
        host=socket.gethostname(),
        worker=worker,
        child=os.getpid(),
        machine=machine(),
        worker_start=start_of(worker),
        child_start=start_of(os.getpid()),
        app=options.app,
        queues=options.queues,
        labels=options.labels,
        slots=slots,
        is_solo=is_solo,
        started_ms=started_ms,
        version=installed_version(),
        keys=settings.secret.names,
        lease_ms=settings.lease_ms,
        least_children=0 if options.most_processes is None else options.processes,
        most_children=options.most_processes or 0,
    ).pack()
