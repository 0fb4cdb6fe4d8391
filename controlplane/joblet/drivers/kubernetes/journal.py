"""DIR/pods: a file for each pod that this joblet intends to create, written before the create is sent.

The journal keeps a pod from being created twice: a joblet that starts anew finds the intents of earlier joblets, and
never acts on them again. A file is removed when its fulfilment is no longer desired and its pod neither exists nor can
appear any more.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import structlog

from controlplane.aio.files import write_by_rename
from controlplane.model.fulfilment import Fulfilment, TaskRef

log = structlog.get_logger(__name__)


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
        write_by_rename(self._folder / intent.fulfilment, msgspec.json.encode(intent))

    def remove(self, fulfilment: str) -> None:
        """The next joblet finds an intent that cannot be removed, and learns that its pod never comes."""
        try:
            (self._folder / fulfilment).unlink(missing_ok=True)
        except OSError as error:
            log.warning("an intent cannot be removed", fulfilment=fulfilment, error=str(error))

    def all(self) -> Iterator[Intent]:
        """An intent that was being written when its joblet died was never acted on."""
        for path in sorted(self._folder.iterdir()):
            if path.suffix == ".new":
                path.unlink()
                continue
            try:
                yield msgspec.json.decode(path.read_bytes(), type=Intent)
            except msgspec.DecodeError as error:
                log.error("an unreadable intent is ignored", path=str(path), error=str(error))
