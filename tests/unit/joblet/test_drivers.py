"""What the joblet reads of a driver, for each driver that there is."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec
import pytest

from controlplane.aio.failpoint import Failpoints
from controlplane.joblet.driver import Driver, Notice
from controlplane.joblet.drivers.kubernetes.kubernetes_driver import KubernetesDriver
from controlplane.joblet.drivers.process.process_driver import ProcessDriver
from controlplane.joblet.drivers.simulated import SimulatedDriver
from controlplane.joblet.joblet_state import JobletState
from controlplane.joblet.log_source import LogQuery, LogSource
from controlplane.joblet.reconcile import observed_task
from controlplane.joblet.stats import Machine
from controlplane.joblet.worker import Worker
from controlplane.model.driver_traits import DRIVERS, DriverTraits, traits_of
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

    def __init__(self, traits: DriverTraits) -> None:
        self.traits = traits
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
    scripted = Scripted(real.traits)
    driver: Driver = scripted
    clock, state = ManualClock(), JobletState("s")
    worker = Worker("t", driver, state, clock=clock, failpoints=Failpoints(""), machine=Machine("", clock))
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
    clock, state = ManualClock(), JobletState("s")
    worker = Worker(
        "t", Troubled(SimulatedDriver.traits), state, clock=clock, failpoints=Failpoints(""), machine=Machine("", clock)
    )
    worker.connected("here", lambda raw, base: sent.append(payload.observed(raw).id), lambda: None, lambda: None)
    for fulfilment in (bad, good):
        worker.assign(joblets_pb2.Assign(fulfilment=payload.encode(fulfilment)))
    worker.sync()
    assert sent == [good.id]
    worker.withdraw(good.id)
    assert worker.stats()["desired"] == 1


@pytest.mark.parametrize(
    ("real", "kind"), [(ProcessDriver, "process"), (SimulatedDriver, "simulated"), (KubernetesDriver, "kubernetes")]
)
def test_a_driver_has_the_traits_of_its_kind(real: type[Any], kind: str) -> None:
    assert real.traits == traits_of(kind)
    assert kind in DRIVERS


def test_only_in_a_cluster_holders_outlive_the_silence_of_their_joblet() -> None:
    assert [kind for kind in (*DRIVERS, "unheard-of") if not traits_of(kind).kills_holders] == ["kubernetes"]
