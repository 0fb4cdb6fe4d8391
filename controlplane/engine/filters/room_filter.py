"""A filter which depends on the room of the cycle: the state of targets, rules, neighbours, or free amounts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from controlplane.engine.arrays import Mask, Rows
from controlplane.engine.room import Room
from controlplane.engine.signature import Signature
from controlplane.model.quantity import Number


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a target refuses a task. `text` is the rest of a sentence which begins with the name of the target;
    `waiting_helps` means the refusal can end without action by a person."""

    text: str
    waiting_helps: bool
    need: Mapping[str, Number] = field(default_factory=dict)
    have: Mapping[str, Number] = field(default_factory=dict)
    missing: Mapping[str, Number] = field(default_factory=dict)
    held_by: tuple[str, ...] = ()


class RoomFilter(ABC):
    code: ClassVar[str]
    # Whether the end of other work can lift the refusal: then room is kept there, and preemption looks there.
    ends_with_other_work: ClassVar[bool] = False

    def asked_by(self, signature: Signature) -> bool:
        """Whether the signature itself asks for the filter."""
        return False

    def present_in(self, room: Room) -> bool:
        """Whether targets of the room may refuse tasks which do not ask for the filter."""
        return False

    @abstractmethod
    def refused(self, room: Room, signature: Signature, rows: Rows) -> Iterable[Mask]:
        """Masks over the given rows, of the targets refusing such a task; called only when `asked_by` or `present_in`
        is True."""

    @abstractmethod
    def why(self, room: Room, signature: Signature, row: int) -> Refusal:
        """Why the target refuses such a task; called only for refusing targets."""
