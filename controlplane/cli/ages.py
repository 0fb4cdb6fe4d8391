"""Ages of time stamps in short form: `5s`, `3m`, `2h`, `4d`."""

from __future__ import annotations

from datetime import datetime

from controlplane.model import times
from controlplane.model.errors import Invalid


def since(stamp: str | None, now: datetime) -> str:
    """The age of a time stamp; `-` without a stamp."""
    if not stamp:
        return "-"
    try:
        moment = times.parse(stamp, "time")
    except Invalid:
        return "?"
    return show((now - moment).total_seconds())


def show(seconds: float) -> str:
    whole = max(0, int(seconds))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if whole >= 2 * size:
            return f"{whole // size}{unit}"
    return f"{whole}s"
