"""What the joblet reads of a driver, for each driver that there is."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec
import pytest

from controlplane.aio.failpoint import Failpoints
from controlplane.joblet.driver import Driver, Notice
from controlplane.joblet.drivers.kubernetes.driver import KubernetesDriver
from controlplane.joblet.drivers.process import ProcessDriver
from controlplane.joblet.drivers.simulated import SimulatedDriver
from controlplane.joblet.home import Home
from controlplane.joblet.log_source import LogQuery, LogSource
from controlplane.joblet.reconcile import observed_task
from controlplane.joblet.stats import Machine
from controlplane.joblet.worker import Worker
from controlplane.model.errors import Refused
from controlplane.model.fulfilment import Fulfilment, Observed, ObservedTask, TaskRef, TaskStop
from controlplane.wire import payload
from controlplane.wire.v1 import joblets_pb2
from tests.builders import a_fulfilment
from tests.clock import ManualClock

REFS = tuple(TaskRef(job="job-0", index=index, attempt=1) for index in range(3))


class Scripted:
    """Has three tasks of one fulfilment running, and remembers what it was asked to stop."""

    gate = None
    capacity = None

    def __init__(self, stops_apart: bool) -> None:
        self.stops_apart = stops_apart
        self.stopped: list[TaskRef] = []

    def attach(self, notice: Notice) -> None: ...

    def fulfilments(self) -> Collection[str]:
        return ()

    def recall(self, fulfilment: Fulfilment) -> None: ...

    def seen(self, fulfilment: str) -> Mapping[TaskRef, ObservedTask]:
        return {ref: observed_task(ref, "Running") for ref in REFS}

    def start(self, fulfilment: Fulfilment, task: TaskRef) -> None: ...

    def stop(self, fulfilment: str, task: TaskRef, reason: str) -> None:
        self.stopped.append(task)

    def drop(self, fulfilment: str) -> None: ...

    def blocks(self, fulfilment: Fulfilment) -> bool:
        return False

    def running(self) -> int:
        return len(REFS)

    def busy(self) -> bool:
        return True

    def dying(self) -> int:
        return 0

    async def run(self) -> None: ...

    def logs(self, query: LogQuery) -> LogSource:
        raise Refused("nothing is written")


def asked_to_stop(real: type[Any], *stops: int) -> list[TaskRef]:
    """What a joblet asks of a driver that says of itself what the real one says, when these tasks are to stop."""
    scripted = Scripted(real.stops_apart)
    driver: Driver = scripted
    clock, home = ManualClock(), Home("s")
    worker = Worker("t", driver, home, clock=clock, failpoints=Failpoints(""), machine=Machine("", clock))
    packed = msgspec.structs.replace(
        a_fulfilment("an-order").on("t").task(0).build(),
        tasks=REFS,
        stop=tuple(TaskStop(job="job-0", index=index, reason="Cancelled") for index in stops),
    )
    tasks = tuple(observed_task(ref, "Running") for ref in REFS)
    running = Observed(id=packed.id, target="t", session="here", report=1, phase="Running", tasks=tasks)
    worker.connected("here", lambda raw, base: None, lambda: None, lambda: None)
    worker.assign(
        joblets_pb2.Assign(fulfilment=payload.encode(packed), observed=payload.encode(running), observed_revision=5)
    )
    worker.sync()
    return scripted.stopped


@pytest.mark.parametrize("real", [ProcessDriver, SimulatedDriver])
def test_one_task_of_several_is_stopped_by_itself(real: type[Any]) -> None:
    assert asked_to_stop(real, 1) == [REFS[1]]


def test_one_task_of_several_in_a_pod_is_not_stopped_before_the_others_are_to_stop() -> None:
    assert asked_to_stop(KubernetesDriver, 1) == []
    assert asked_to_stop(KubernetesDriver, 0, 1, 2) == list(REFS)


async def test_trouble_with_one_fulfilment_is_its_own() -> None:
    """Whatever OSError a driver raises: the others go on, and this one is looked at again."""

    class Troubled(Scripted):
        def recall(self, fulfilment: Fulfilment) -> None:
            if fulfilment.id == bad.id:
                raise OSError(28, "No space left on device")

        def drop(self, fulfilment: str) -> None:
            raise OSError(28, "No space left on device")

    bad, good = a_fulfilment("one").on("t").task(0).build(), a_fulfilment("two").on("t").task(0).build()
    sent: list[str] = []
    clock, home = ManualClock(), Home("s")
    worker = Worker("t", Troubled(True), home, clock=clock, failpoints=Failpoints(""), machine=Machine("", clock))
    worker.connected("here", lambda raw, base: sent.append(payload.observed(raw).id), lambda: None, lambda: None)
    for fulfilment in (bad, good):
        worker.assign(joblets_pb2.Assign(fulfilment=payload.encode(fulfilment)))
    worker.sync()
    assert sent == [good.id]
    worker.withdraw(good.id)
    assert worker.stats()["desired"] == 1
