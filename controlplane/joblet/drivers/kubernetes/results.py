"""The messages of a task about itself: a text, artefacts, progress. Pure.

A container's file `$CONTROLPLANE_ARTEFACTS` is its termination log, which the kubelet puts into the pod's status when
the container ends: lines that are URLs are artefacts, a line that is a number is the percentage, all other lines are
the text. A cluster keeps at most 4 KiB of each log, less with more than three containers. While a container runs, only
an exec could read its files, and joblets have no right to exec: the percentage of a running task is the pod's
annotation `controlplane/progress.<container>` (`controlplane/progress` will do in a pod with a single container), set
by any program that may patch the pod.
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
class TerminationReport:
    message: str = ""
    artefacts: tuple[str, ...] = ()
    percent: int | None = None


def parse_termination(termination_message: str) -> TerminationReport:
    """The last number counts; URLs keep their order, each once. A URL that is too long is neither artefact nor text."""
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
    return TerminationReport(texts.cut("\n".join(rest), texts.MESSAGE_CHARACTERS, keep="end"), tuple(urls), percent)


def progress(annotations: Mapping[str, str], container: str, *, alone: bool) -> int | None:
    """The percentage of a container that runs; `alone` when it is the only container of its pod."""
    percent = percent_of(annotations.get(f"{PROGRESS}.{container}"))
    if percent is None and alone:
        return percent_of(annotations.get(PROGRESS))
    return percent


def percent_of(text: str | None) -> int | None:
    """0 to 100; None for a text that is no number."""
    if text is None:
        return None
    try:
        number = float(text.strip().removesuffix("%"))
    except ValueError:
        return None
    return min(100, max(0, int(number))) if math.isfinite(number) else None
