"""Records of attempts that are too large for a write: texts for people are cut, so that every end is recorded. Pure.

Each attempt has an equal share of the room. Artefacts are kept from the first on as long as they fit, then as much of
the message as fits; the message says how many artefacts are missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from controlplane.model import texts
from controlplane.model.fulfilment import EndedTask, ObservedTask

T = TypeVar("T", ObservedTask, EndedTask)

# A note must fit whatever the share is.
_LEAST_CHARACTERS = 80
# The most bytes that JSON takes for a character.
_BYTES_A_CHARACTER = 6
_FEW_AVOIDED = 2


def slim(tasks: Sequence[T], most_bytes: int) -> tuple[T, ...]:
    """Artefacts and messages of at most `most_bytes` together, but for a short note where texts were cut."""
    share = most_bytes // max(len(tasks), 1)
    return tuple(_slim(task, share) for task in tasks)


def shorten(tasks: Sequence[EndedTask]) -> tuple[EndedTask, ...]:
    """The last resort: without texts, and with the last of the targets to avoid."""
    return tuple(
        msgspec.structs.replace(task, message="", why="", artefacts=(), avoid=task.avoid[-_FEW_AVOIDED:])
        for task in tasks
    )


def _slim(task: T, share: int) -> T:
    left, kept = share, 0
    for url in task.artefacts:
        left -= len(msgspec.json.encode(url)) + 1
        if left < 0:
            break
        kept += 1
    missing = len(task.artefacts) - kept
    note = f"({missing} artefacts are too large to be kept) " if missing else ""
    room = max(left // _BYTES_A_CHARACTER, _LEAST_CHARACTERS)
    message = texts.cut(note + task.message, room)
    return msgspec.structs.replace(task, artefacts=task.artefacts[:kept], message=message)
