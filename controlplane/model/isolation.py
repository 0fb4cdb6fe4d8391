"""Isolation: which keys cannot be handled at the moment, and why. An error while a key is handled concerns it alone.

`Ward` is the port of code that handles many keys in one go: it asks which of them are left out for now, and reports the
ones that raise. `Isolation` is what the leader writes down about them in `status/isolated`, for whoever asks any
replica. Nothing here reads a clock.
"""

from __future__ import annotations

from typing import Protocol

from controlplane.model.event import About
from controlplane.model.object import Object, Part

FAILED = "HandlingFailed"
HANDLED = "HandledAgain"
# So many keys are named in the record, the newest ones; the rest is counted.
MOST_NAMED = 100
MOST_ERROR = 300


class Isolated(Part, frozen=True, kw_only=True):
    """One key that is left out. `part` is the component that failed, `count` how often in a row, `again` when the key
    is tried next."""

    about: About
    part: str
    error: str
    count: int = 1
    since: str = ""
    again: str = ""


class Isolation(Object, tag="Isolation", frozen=True, kw_only=True):
    """`status/isolated`: there while the leader leaves keys out. `total` counts also those that are not named."""

    epoch: int
    total: int = 0
    keys: tuple[Isolated, ...] = ()


class Ward(Protocol):
    """Isolated keys of one component, by kind and name of what they are about."""

    def empty(self) -> bool:
        """Whether nothing is isolated, which is how it is most of the time."""
        ...

    def holds(self, kind: str, name: str) -> bool:
        """Whether the key failed and its time to be tried again has not come."""
        ...

    def failed(self, kind: str, name: str, error: Exception) -> None: ...

    def passed(self, kind: str, name: str) -> None:
        """The key was handled without an error."""
        ...


class Bystander:
    """A ward for who only looks, again and again: what raises is stepped over, and looked at anew next time."""

    def empty(self) -> bool:
        return True

    def holds(self, kind: str, name: str) -> bool:
        return False

    def failed(self, kind: str, name: str, error: Exception) -> None:
        """Whoever acts on it reports it."""

    def passed(self, kind: str, name: str) -> None:
        """Nothing is remembered."""


class Casualties:
    """A ward for who asks once and keeps nothing: `orders` and `targets` are left out from the start, the errors of
    what failed are kept by (kind, name)."""

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
        """Nothing is remembered of what went well."""

    @property
    def orders(self) -> list[str]:
        """The orders that are left out."""
        return sorted(name for kind, name in self._held if kind == "Order")


def sentence(error: BaseException) -> str:
    """The error in one line that says its kind, since many errors say little else."""
    text = " ".join(str(error).split())
    kind = type(error).__name__
    return (f"{kind}: {text}" if text else kind)[:MOST_ERROR]
