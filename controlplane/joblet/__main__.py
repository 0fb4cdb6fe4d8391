"""`python -m controlplane.joblet SETTINGS.json`: one joblet from a file of its settings."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import msgspec
import structlog

from controlplane.aio.log_writer import LogWriter
from controlplane.joblet.joblet_settings import JobletSettings
from controlplane.joblet.main import run
from controlplane.model.errors import ControlPlaneError


def main() -> int:
    structlog.configure(logger_factory=LogWriter(sys.stderr.fileno()))
    try:
        settings = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=JobletSettings)
        asyncio.run(run(settings))
    except (ControlPlaneError, msgspec.DecodeError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
