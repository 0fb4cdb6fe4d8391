"""A cluster's joblet on a full disk: a pod is asked for only when its intent and its start are on record, once each."""

from __future__ import annotations

import errno

import pytest

from controlplane.aio.failpoint import Failpoints
from controlplane.joblet.drivers.kubernetes.journal import Intent, Journal, intent_of
from controlplane.joblet.drivers.kubernetes.pod import PodDefaults
from controlplane.joblet.drivers.kubernetes.pod_creator import PodCreator
from controlplane.joblet.drivers.kubernetes.pod_run import PodRun, Stage
from controlplane.joblet.joblet_state import JobletState
from tests.builders import a_fulfilment
from tests.clock import ManualClock


class FullDisk(Journal):
    """Takes nothing before there is room."""

    def __init__(self) -> None:
        self.full = True
        self.written: list[Intent] = []

    def write(self, intent: Intent) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.written.append(intent)


def test_an_intent_is_written_once_and_the_records_go_on_where_they_stopped() -> None:
    fulfilment = a_fulfilment("an-order").on("t").task(0).build()
    run = PodRun(intent_of(fulfilment, files=False), Stage.QUEUED, fulfilment)
    journal, begun = FullDisk(), list[PodRun]()

    def begin(run: PodRun) -> None:
        begun.append(run)
        if len(begun) == 1:
            raise OSError(errno.ENOSPC, "No space left on device")

    creator = PodCreator(
        None,  # type: ignore[arg-type]
        PodDefaults(namespace="n"),
        journal,
        JobletState("s"),
        clock=ManualClock(),
        failpoints=Failpoints(""),
        in_view=lambda: True,
        intended=begin,
        changed=lambda run: None,
    )
    with pytest.raises(OSError, match="No space left"):
        creator._intend(run, files=False)
    assert (run.stage, begun) == (Stage.QUEUED, [])
    journal.full = False
    with pytest.raises(OSError, match="No space left"):
        creator._intend(run, files=False)
    creator._intend(run, files=False)
    assert len(journal.written) == 1
    assert run.stage is Stage.INTENDED
