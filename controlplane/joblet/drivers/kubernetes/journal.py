"""DIR/pods: one file for each pod that this joblet set out to make, written before the API is asked for it.

It is what keeps a pod from being made twice: a joblet that starts anew finds what it meant to do, and never does it
again. A file goes when its fulfilment is no longer desired and its pod can neither be there nor come any more.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import structlog

from controlplane.joblet.home import replace
from controlplane.model.fulfilment import Fulfilment, TaskRef

log = structlog.get_logger()


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """`files`: whether a Secret of the same name goes with the pod."""

    fulfilment: str
    order: str
    target: str
    tasks: tuple[TaskRef, ...]
    holds: tuple[str, ...] = ()
    files: bool = False


def intent_of(fulfilment: Fulfilment, *, files: bool) -> Intent:
    return Intent(
        fulfilment=fulfilment.id,
        order=fulfilment.order,
        target=fulfilment.target,
        tasks=fulfilment.tasks,
        holds=fulfilment.holds,
        files=files,
    )


class Journal:
    def __init__(self, folder: Path) -> None:
        self._folder = folder / "pods"
        self._folder.mkdir(parents=True, exist_ok=True)

    def write(self, intent: Intent) -> None:
        replace(self._folder / intent.fulfilment, msgspec.json.encode(intent).decode())

    def remove(self, fulfilment: str) -> None:
        """One that cannot be removed is found by the joblet's next life, which learns that its pod never comes."""
        try:
            (self._folder / fulfilment).unlink(missing_ok=True)
        except OSError as error:
            log.warning("an intent cannot be removed", fulfilment=fulfilment, error=str(error))

    def all(self) -> Iterator[Intent]:
        """One that was being written when the joblet died was never acted on."""
        for path in sorted(self._folder.iterdir()):
            if path.suffix == ".new":
                path.unlink()
                continue
            try:
                yield msgspec.json.decode(path.read_bytes(), type=Intent)
            except msgspec.DecodeError as error:
                log.error("an intent cannot be read, it is left alone", path=str(path), error=str(error))
