"""Housekeeping of a joblet's process and folder: as many descriptors as allowed, and records and logs kept small."""

from __future__ import annotations

import asyncio
import os
import resource
from pathlib import Path

from controlplane.aio.clock import Clock
from controlplane.aio.trimming import trim
from controlplane.joblet.attempt_records import AttemptRecords

EVERY_SECONDS = 60.0
MOST_LOG_BYTES = 16 << 20
MOST_SHIM_LOG_BYTES = 1 << 20


def raise_descriptor_limit() -> int:
    """Raises the limit of open files: each attempt takes a descriptor or two, and most shells allow a thousand. Returns
    the former limit, which commands expect."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return soft


async def keep_small(folder: Path, records: AttemptRecords, clock: Clock) -> None:
    """Trims records and logs in the folder until cancelled."""
    while True:
        await asyncio.to_thread(_trim_logs, folder)
        records.trim()
        await clock.sleep(EVERY_SECONDS)


def _trim_logs(folder: Path) -> None:
    trim(folder / "shim.log", MOST_SHIM_LOG_BYTES)
    own = _own_log()
    if own is not None and own.is_relative_to(folder):
        trim(own, MOST_LOG_BYTES)


def _own_log() -> Path | None:
    """The file behind stderr, where this process logs; None when stderr is no file."""
    try:
        return Path(os.readlink("/proc/self/fd/2"))
    except OSError:
        return None
