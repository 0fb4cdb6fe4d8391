"""Logs of `controlplane replica` and `joblet`: a line of key=value pairs per event on stderr, with the component."""

from __future__ import annotations

import structlog
from structlog.typing import EventDict

from controlplane.aio.log_writer import LogWriter
from controlplane.model import texts

_RENDER = structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "component", "event"])


def log_to(descriptor: int) -> None:
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            _add_component,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _line,
        ],
        logger_factory=LogWriter(descriptor),
        cache_logger_on_first_use=True,
    )


def _add_component(logger: LogWriter, method: str, fields: EventDict) -> EventDict:
    """The module that logs, without the name of the package."""
    fields["component"] = logger.name.removeprefix("controlplane.")
    return fields


def _line(logger: object, method: str, fields: EventDict) -> str:
    """The line with control characters escaped: texts from outside must not steer the reader's terminal."""
    return texts.escaped(_RENDER(logger, method, fields))
