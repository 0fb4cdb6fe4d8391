"""What a joblet counts as done: also an end whose acknowledgement is overtaken by what follows from it."""

from __future__ import annotations

import pytest

from controlplane.aio.clock import SystemClock
from controlplane.aio.failpoint import Failpoints
from controlplane.joblet.drivers.simulated import SimulatedDriver, Simulation
from controlplane.joblet.joblet_state import JobletState
from controlplane.joblet.reconcile import observed_task
from controlplane.joblet.stats import Machine
from controlplane.joblet.worker import Worker
from controlplane.model.fulfilment import Observed, TaskRef
from controlplane.wire import payload
from controlplane.wire.v1 import joblets_pb2
from tests.builders import a_fulfilment

TASK = TaskRef(job="job-0", index=0, attempt=1)


@pytest.mark.parametrize("answered", [True, False])
async def test_an_end_counts_whether_or_not_its_report_was_answered(answered: bool) -> None:
    clock, state = SystemClock(), JobletState("s")
    driver = SimulatedDriver(Simulation(duration=60, failure_rate=0, seed=0), state, clock=clock, records=None)
    worker = Worker("t", driver, state, clock=clock, failpoints=Failpoints(""), machine=Machine("", clock))
    own, sent = a_fulfilment("an-order").on("t").task(0).build(), list[Observed]()
    running = Observed(
        id=own.id, target="t", session="before", report=1, phase="Running", tasks=(observed_task(TASK, "Running"),)
    )
    worker.connected("here", lambda raw, _base: sent.append(payload.observed(raw)), lambda: None, lambda: None)
    worker.assign(
        joblets_pb2.Assign(fulfilment=payload.encode(own), observed=payload.encode(running), observed_revision=5)
    )
    worker.sync()
    (report,) = sent
    assert report.phase == "Failed", "nothing of it is left here"
    if answered:
        worker.acknowledge(joblets_pb2.ReportAck(id=own.id, report=report.report, observed_revision=6))
    worker.withdraw(own.id)
    assert worker.stats()["failed"] == 1
