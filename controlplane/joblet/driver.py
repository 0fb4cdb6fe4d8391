"""The port between the joblet and a driver. Every call returns at once; later changes arrive through `notice`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from controlplane.joblet.gate import Gate
from controlplane.joblet.log_source import LogQuery, LogSource
from controlplane.model.driver_traits import DriverTraits
from controlplane.model.fulfilment import Fulfilment, ObservedTask, TaskRef

Notice = Callable[[str], None]


class CapacitySource(Protocol):
    """The room of a target as its driver sees it in the outside world."""

    @property
    def now(self) -> Mapping[str, float]: ...

    def attach(self, changed: Callable[[], None]) -> None:
        """`changed` is called when `now` changed."""


class Driver(Protocol):
    """Runs attempts and shows the newest observation of each, by the identity of the fulfilment.

    Drivers differ in the attributes here, which the joblet reads; it never asks for the class of a driver.
    """

    @property
    def traits(self) -> DriverTraits:
        """Those of the driver's kind. Where single tasks cannot be stopped, the joblet asks for a stop only when all
        tasks of the fulfilment that live are to stop."""
        ...

    @property
    def gate(self) -> Gate | None:
        """Whether the driver can do its work right now; None for a driver that always can."""
        ...

    @property
    def capacity(self) -> CapacitySource | None:
        """The room that the driver sees outside; None where the settings of the joblet name the capacity."""
        ...

    async def run(self) -> None:
        """Works beside the stream until cancelled."""
        ...

    def logs(self, query: LogQuery) -> LogSource:
        """Also of a dropped attempt, for as long as its output is kept.

        NotFound when no output is kept, Refused by a driver that keeps none; both may come with the first read.
        """
        ...

    def attach(self, notice: Notice) -> None:
        """From now on `notice(fulfilment)` is called when an attempt of the fulfilment changed."""

    def fulfilments(self) -> Collection[str]:
        """All fulfilments with an attempt here, running or ended, also from before a restart."""

    def recall(self, fulfilment: Fulfilment) -> None:
        """The fulfilment is desired: the attempts that earlier joblets left of it are in `seen` from now on."""

    def seen(self, fulfilment: str) -> Mapping[TaskRef, ObservedTask]: ...

    def start(self, fulfilment: Fulfilment, task: TaskRef) -> None:
        """Only for an attempt that is not in `seen`. Afterwards the attempt is there, whatever became of it."""

    def stop(self, fulfilment: str, task: TaskRef, reason: str) -> None:
        """Ends the attempt as Cancelled, with a grace. A repeated stop changes nothing."""

    def drop(self, fulfilment: str) -> None:
        """The fulfilment is no longer desired: running attempts are killed at once, and leave `seen`."""

    def blocks(self, fulfilment: Fulfilment) -> bool:
        """Whether another fulfilment that is still alive here holds a unique resource of this one."""

    def running(self) -> int: ...

    def busy(self) -> bool:
        """Whether any attempt is alive here, dropped attempts that are still dying included."""
        ...

    def dying(self) -> int:
        """How many dropped attempts still live; `notice` reports the end of each."""
