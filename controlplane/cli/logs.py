"""How the long-running commands log: one line of key=value an event, on stderr."""

from __future__ import annotations

import sys

import structlog
from structlog.typing import EventDict

from controlplane.aio.log_writer import LogWriter
from controlplane.model import texts

_RENDER = structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "event"])


def to_stderr() -> None:
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _line,
        ],
        logger_factory=LogWriter(sys.stderr.fileno()),
        cache_logger_on_first_use=True,
    )


def _line(logger: object, method: str, fields: EventDict) -> str:
    """Names and errors that others sent are in it: nothing may steer the terminal of whoever reads the log."""
    return texts.escaped(_RENDER(logger, method, fields))
