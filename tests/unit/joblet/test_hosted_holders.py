"""A holder that another host was about to start is not called lost while it may still come."""

from __future__ import annotations

import asyncio

import pytest

from controlplane.aio.clock import SystemClock
from controlplane.aio.failpoint import Failpoints
from controlplane.joblet.drivers.simulated import SimulatedDriver, Simulation
from controlplane.joblet.joblet_state import JobletState
from controlplane.joblet.reconcile import may_still_appear, observed_task
from controlplane.joblet.stats import Machine
from controlplane.joblet.worker import Worker
from controlplane.model.fulfilment import Fulfilment, Observed, TaskRef
from controlplane.wire import payload
from controlplane.wire.v1 import joblets_pb2
from tests.builders import a_fulfilment

TASK = TaskRef(job="job-0", index=0, attempt=1)


def holder(*, holds: tuple[str, ...] = ("licence",)) -> Fulfilment:
    return a_fulfilment("an-order").on("t").task(0).holding(*holds).build()


def begun(fulfilment: Fulfilment, phase: str = "Starting") -> Observed:
    task = observed_task(TASK, phase)
    return Observed(id=fulfilment.id, target="t", session="elsewhere", report=1, phase=phase, tasks=(task,))


def test_only_what_may_come_and_would_hold_something_is_waited_for() -> None:
    own = holder()
    assert may_still_appear(own, begun(own), (), trusted=False)
    assert not may_still_appear(own, begun(own), (), trusted=True)
    assert not may_still_appear(own, begun(own), (TASK,), trusted=False)
    assert not may_still_appear(own, begun(own, "Running"), (), trusted=False)
    assert not may_still_appear(own, None, (), trusted=False)
    free = holder(holds=())
    assert not may_still_appear(free, begun(free), (), trusted=False)


@pytest.mark.parametrize("doubt", [0.0, 0.3])
async def test_a_holder_is_called_lost_when_there_is_no_doubt_any_more(doubt: float) -> None:
    clock, state, sent = SystemClock(), JobletState("s"), list[tuple[float, Observed]]()
    driver = SimulatedDriver(Simulation(duration=1, failure_rate=0, seed=0), state, clock=clock, records=None)
    worker = Worker("t", driver, state, clock=clock, failpoints=Failpoints(""), machine=Machine("", clock))
    told = asyncio.Event()

    def send(raw: bytes, base: int) -> None:
        sent.append((clock.monotonic(), payload.observed(raw)))
        told.set()

    own, began = holder(), clock.monotonic()
    worker.hold_back(doubt)
    worker.connected("here", send, lambda: None, lambda: None)
    worker.assign(
        joblets_pb2.Assign(fulfilment=payload.encode(own), observed=payload.encode(begun(own)), observed_revision=5)
    )
    worker.sync()
    assert bool(sent) == (doubt == 0)
    async with asyncio.timeout(30):
        await told.wait()
    ((at, report),) = sent
    assert at - began >= doubt
    assert (report.phase, report.tasks[0].reason) == ("Failed", "Lost")
