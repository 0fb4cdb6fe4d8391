"""What the joblet asks of a driver. Everything in it returns at once; what happens later is told by `notice`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from controlplane.joblet.gate import Gate
from controlplane.joblet.log_source import LogQuery, LogSource
from controlplane.model.fulfilment import Fulfilment, ObservedTask, TaskRef

Notice = Callable[[str], None]


class Capacity(Protocol):
    @property
    def now(self) -> Mapping[str, float]: ...

    def attach(self, told: Callable[[], None]) -> None:
        """`told` is called when `now` is another."""


class Driver(Protocol):
    """A driver tells each attempt's newest observation by the fulfilment's identity.

    All that drivers differ in is an attribute here and is read: nobody asks which class a driver is of.
    """

    @property
    def stops_apart(self) -> bool:
        """Whether `stop` ends one task of several without its neighbours in the fulfilment.

        Where False, the joblet asks for a stop only when all tasks of the fulfilment that live are to stop.
        """
        ...

    @property
    def gate(self) -> Gate | None:
        """Whether the driver can do its work right now; None for a driver that always can."""
        ...

    @property
    def capacity(self) -> Capacity | None:
        """How much room the driver sees outside; None where the joblet's own settings say it."""
        ...

    async def run(self) -> None:
        """Works beside the stream until it is cancelled."""
        ...

    def logs(self, query: LogQuery) -> LogSource:
        """Also of an attempt that was dropped, for as long as its output is kept.

        NotFound when nothing is kept of it, Refused by a driver that keeps nothing; both may come with the first read.
        """
        ...

    def attach(self, notice: Notice) -> None:
        """From now on `notice(fulfilment)` is called when something of it changed."""

    def fulfilments(self) -> Collection[str]:
        """All of which something is here, running or ended, also from before a restart."""

    def recall(self, fulfilment: Fulfilment) -> None:
        """The fulfilment is desired: what earlier lives of the joblet left of it is seen from now on."""

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
