"""What the joblet asks of a driver. Everything in it returns at once; what happens later is told by `notice`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from controlplane.model.fulfilment import Fulfilment, ObservedTask, TaskRef

Notice = Callable[[str], None]


class Driver(Protocol):
    """A driver tells each attempt's newest observation by the fulfilment's identity."""

    def attach(self, notice: Notice) -> None:
        """From now on `notice(fulfilment)` is called when something of it changed."""

    def fulfilments(self) -> Collection[str]:
        """All of which something is here, running or ended, also from before a restart."""

    def seen(self, fulfilment: str) -> Mapping[TaskRef, ObservedTask]: ...

    def start(self, fulfilment: Fulfilment, task: TaskRef) -> None:
        """Only for what is not seen. Afterwards it is seen, whatever became of it."""

    def stop(self, fulfilment: str, task: TaskRef, reason: str) -> None:
        """Ends it as Cancelled, politely first. Asked again it changes nothing."""

    def drop(self, fulfilment: str) -> None:
        """It is no longer desired: what runs is killed at once, and it is not seen any more."""

    def blocks(self, fulfilment: Fulfilment) -> bool:
        """Whether another one that is still alive here holds one of its unique resources."""

    def running(self) -> int: ...

    def busy(self) -> bool:
        """Whether anything is alive here, also of what was dropped and is still dying."""
        ...

    def dying(self) -> int:
        """How many dropped attempts still live; `notice` tells of the end of each."""
