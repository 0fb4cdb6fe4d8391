"""Isolation: keys that cannot be handled at the moment, and why. An error about a key concerns that key alone.

`Ward` is the port of code that handles many keys in a go: the ward knows which keys are left out for now, and takes the
errors of the others. `Isolation` is the leader's record in `status/isolated`, which every replica can show. No clock is
read here.
"""

from __future__ import annotations

from typing import Protocol

from controlplane.model.bounds import Count, Line, Many, Revision, Text, TimeOrEmpty
from controlplane.model.event import About
from controlplane.model.object import Object, Part

FAILED = "HandlingFailed"
HANDLED = "HandledAgain"
# The most keys named in the record, the newest; the rest is counted.
MOST_NAMED = 100
MOST_ERROR = 300


class Isolated(Part, frozen=True, kw_only=True):
    """A key that is left out. `part` is the failing component, `count` the failures in a row, `again` the time of the
    next try.
    """

    about: About
    part: Line
    error: Text
    count: Count = 1
    since: TimeOrEmpty = ""
    again: TimeOrEmpty = ""


class Isolation(Object, tag="Isolation", frozen=True, kw_only=True):
    """`status/isolated`: present while the leader leaves keys out. `total` also counts keys that are not named."""

    epoch: Revision
    total: Count = 0
    keys: Many[Isolated] = ()


class Ward(Protocol):
    """Isolated keys of a component, by kind and name of the object."""

    def empty(self) -> bool:
        """Whether no key is isolated, the usual state."""
        ...

    def holds(self, kind: str, name: str) -> bool:
        """Whether the key failed and must not be tried again yet."""
        ...

    def failed(self, kind: str, name: str, error: Exception) -> None: ...

    def passed(self, kind: str, name: str) -> None:
        """The key was handled without an error."""
        ...


class Bystander:
    """A ward for repeated reads: failing keys are stepped over, and tried anew next time."""

    def empty(self) -> bool:
        return True

    def holds(self, kind: str, name: str) -> bool:
        return False

    def failed(self, kind: str, name: str, error: Exception) -> None:
        """Reported by the component that acts on the key."""

    def passed(self, kind: str, name: str) -> None:
        """Not remembered."""


class Casualties:
    """A ward for a single question: `orders` and `targets` are left out from the start; errors are kept by (kind,
    name).
    """

    def __init__(self, orders: tuple[str, ...] = (), targets: tuple[str, ...] = ()) -> None:
        self._held = {("Order", name) for name in orders} | {("Target", name) for name in targets}
        self.errors: dict[tuple[str, str], Exception] = {}

    def empty(self) -> bool:
        return not self._held

    def holds(self, kind: str, name: str) -> bool:
        return (kind, name) in self._held

    def failed(self, kind: str, name: str, error: Exception) -> None:
        self._held.add((kind, name))
        self.errors[kind, name] = error

    def passed(self, kind: str, name: str) -> None:
        """Successes are not remembered."""

    @property
    def orders(self) -> list[str]:
        """The orders that are left out."""
        return sorted(name for kind, name in self._held if kind == "Order")


def sentence(error: BaseException) -> str:
    """The error in a line that begins with its class, since many errors say little else."""
    text = " ".join(str(error).split())
    kind = type(error).__name__
    return (f"{kind}: {text}" if text else kind)[:MOST_ERROR]
