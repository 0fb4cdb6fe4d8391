"""One fulfilment at a cluster: what is seen of it, whatever comes in which order."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from controlplane.joblet.drivers.kubernetes.journal import Intent
from controlplane.joblet.drivers.kubernetes.observing import STOPPING, Stopping
from controlplane.joblet.drivers.kubernetes.pod import FULFILMENT, TASKS
from controlplane.joblet.drivers.kubernetes.pod_run import PodRun, Stage, run_of_pod
from controlplane.model.fulfilment import TaskRef

REF = TaskRef(job="render", index=0, attempt=1)
INTENT = Intent(fulfilment="f-1", order="o-1", target="kube-1", tasks=(REF,))


def a_pod(phase: str = "Pending", *, exit_code: int | None = None, stopping: Stopping | None = None) -> dict[str, Any]:
    annotations = {TASKS: msgspec.json.encode(INTENT.tasks).decode()}
    if stopping is not None:
        annotations[STOPPING] = msgspec.json.encode(stopping).decode()
    state: dict[str, Any] = {"running": {}} if phase == "Running" else {}
    if exit_code is not None:
        state = {"terminated": {"exitCode": exit_code}}
    statuses = [{"name": "task-0", "state": state}] if state else []
    return {
        "metadata": {"name": "cp-f-1", "labels": {FULFILMENT: "f-1"}, "annotations": annotations},
        "status": {"phase": phase, "containerStatuses": statuses},
    }


def phase_of(run: PodRun) -> tuple[str, str]:
    seen = run.observed[REF]
    return seen.phase, seen.reason


@pytest.mark.parametrize(
    ("stage", "alive"),
    [(stage, stage not in (Stage.GONE, Stage.REFUSED)) for stage in Stage],
)
def test_what_may_be_there_counts_as_alive(stage: Stage, alive: bool) -> None:
    run = PodRun(INTENT, Stage.QUEUED)
    if stage in (Stage.GONE, Stage.REFUSED):
        run.never_came()
    run.stage = stage
    assert run.alive is alive
    assert run.living() == int(alive)


def test_a_create_that_cannot_act_any_more_is_lost() -> None:
    run = PodRun(INTENT, Stage.UNKNOWN)
    run.never_came()
    assert phase_of(run) == ("Failed", "Lost")
    assert not run.alive


def test_one_that_was_to_be_stopped_and_never_came_is_cancelled() -> None:
    run = PodRun(INTENT, Stage.UNKNOWN)
    run.stopping = Stopping(reason="Cancelled")
    run.never_came()
    assert phase_of(run) == ("Cancelled", "Cancelled")


def test_a_pod_that_vanished_is_lost_unless_it_had_ended() -> None:
    run = PodRun(INTENT, Stage.UNKNOWN)
    run.see(a_pod("Running"), Stage.WATCHED)
    run.lose()
    assert phase_of(run) == ("Failed", "Lost")
    ended = PodRun(INTENT, Stage.UNKNOWN)
    ended.see(a_pod("Running"), Stage.WATCHED)
    ended.lose(a_pod("Succeeded", exit_code=0))
    assert phase_of(ended) == ("Succeeded", "")


def test_a_stop_has_happened_when_the_pod_is_gone() -> None:
    run = PodRun(INTENT, Stage.UNKNOWN)
    run.see(a_pod("Running"), Stage.WATCHED)
    run.lose(a_pod("Running", stopping=Stopping(reason="Preempted")))
    assert phase_of(run) == ("Cancelled", "Preempted")


def test_a_pod_that_comes_after_its_end_was_told_changes_nothing_that_was_told() -> None:
    run = PodRun(INTENT, Stage.UNKNOWN)
    run.never_came()
    run.mark_ended()
    run.see(a_pod("Running"), Stage.WATCHED)
    assert phase_of(run) == ("Failed", "Lost")
    assert run.alive, "but it lives, and has to go"
    assert run.count() == (0, 1)
    run.lose()
    assert phase_of(run) == ("Failed", "Lost")
    assert run.count() == (0, 0)


def test_a_pod_of_a_former_life_says_who_it_is() -> None:
    run = run_of_pod(a_pod("Running"), "f-1", "kube-1")
    run.see(a_pod("Running"), Stage.WATCHED)
    assert (run.id, phase_of(run)) == ("f-1", ("Running", ""))
    assert run.count() == (1, 0)
