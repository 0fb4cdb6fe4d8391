"""What a task says of itself: a message, artefacts, how far it is. Pure.

A container's file `$CONTROLPLANE_ARTEFACTS` is its termination log, which the kubelet puts into the pod's status when
it ends: lines that are URLs are artefacts, a line that is a number is the percent, the rest is the message. Of each log
4 KiB are kept at most, less with more than three containers. While it runs, only an exec could read a file of a
container, and joblets have no right to that: the percent of a running task is the pod's annotation
`controlplane/progress.<container>` (`controlplane/progress` will do where there is one container), put there by whoever
may patch the pod.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from controlplane.model import texts

PROGRESS = "controlplane/progress"
MAX_ARTEFACTS = 100
MAX_URL = 2048
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")
_NUMBER = re.compile(r"[0-9]{1,3}(\.[0-9]*)?%?")


@dataclass(frozen=True, slots=True)
class Said:
    message: str = ""
    artefacts: tuple[str, ...] = ()
    percent: int | None = None


def said(termination_message: str) -> Said:
    """The last number counts, URLs in their order once each. A URL that is too long is neither artefact nor message."""
    urls: dict[str, None] = {}
    rest: list[str] = []
    percent: int | None = None
    for line in map(str.strip, termination_message.replace("\0", "").splitlines()):
        if _URL.fullmatch(line):
            if len(line) <= MAX_URL and len(urls) < MAX_ARTEFACTS:
                urls[line] = None
        elif _NUMBER.fullmatch(line):
            percent = percent_of(line)
        elif line:
            rest.append(line)
    return Said(texts.cut("\n".join(rest), texts.MESSAGE_CHARACTERS, keep="end"), tuple(urls), percent)


def progress(annotations: Mapping[str, str], container: str, *, alone: bool) -> int | None:
    """Of a container that runs."""
    found = percent_of(annotations.get(f"{PROGRESS}.{container}"))
    if found is None and alone:
        return percent_of(annotations.get(PROGRESS))
    return found


def percent_of(text: str | None) -> int | None:
    """0 to 100; None for what is no number."""
    if text is None:
        return None
    try:
        number = float(text.strip().removesuffix("%"))
    except ValueError:
        return None
    return min(100, max(0, int(number))) if math.isfinite(number) else None
