"""What a pod's status means for its tasks."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from controlplane.joblet.drivers.kubernetes.observing import STOPPING, Stopping, hopeless, observe, vanished
from controlplane.model.fulfilment import ObservedTask
from tests.unit.joblet.kubernetes.pods import a_pod, a_ref, condition, ended, running, waiting

UNSCHEDULABLE = condition("PodScheduled", "False", "Unschedulable", "0/3 nodes are available: 3 Insufficient cpu.")


def the_task(pod: dict[str, Any]) -> ObservedTask:
    return observe(pod)[a_ref()]


def said(pod: dict[str, Any]) -> tuple[str, str]:
    task = the_task(pod)
    return task.phase, task.reason


def stopped(pod: dict[str, Any], **why: str) -> dict[str, Any]:
    pod["metadata"]["annotations"][STOPPING] = msgspec.json.encode(Stopping(**why)).decode()
    return pod


def test_a_pod_that_waits_for_its_node_is_starting() -> None:
    assert said(a_pod(phase="Pending")) == ("Starting", "")
    assert said({**a_pod(), "status": {}}) == ("Starting", "")


def test_one_that_no_node_takes_says_so() -> None:
    task = the_task(a_pod(phase="Pending", conditions=[UNSCHEDULABLE]))
    assert (task.phase, task.reason) == ("Starting", "Unschedulable")
    assert task.message == "Unschedulable: 0/3 nodes are available: 3 Insufficient cpu."


@pytest.mark.parametrize(
    ("why", "reason"),
    [
        ("ErrImagePull", "ImageError"),
        ("ImagePullBackOff", "ImageError"),
        ("InvalidImageName", "ImageError"),
        ("CreateContainerConfigError", "StartError"),
        ("CreateContainerError", "StartError"),
        ("RunContainerError", "StartError"),
        ("ContainerCreating", ""),
        ("PodInitializing", ""),
    ],
)
def test_why_a_container_waits_is_said_in_the_words_of_policies(why: str, reason: str) -> None:
    task = the_task(a_pod(waiting(why, "details"), phase="Pending"))
    assert (task.phase, task.reason) == ("Starting", reason)
    assert task.message == (f"{why}: details" if reason else "")


def test_a_running_container_tells_since_when_and_how_far() -> None:
    pod = a_pod(running("2026-01-01T00:00:03Z"))
    pod["metadata"]["annotations"]["controlplane/progress"] = "40"
    task = the_task(pod)
    assert (task.phase, task.started, task.percent) == ("Running", "2026-01-01T00:00:03.000Z", 40)


def test_success_with_all_that_the_task_said() -> None:
    pod = a_pod(ended(0, message="https://a.example/1\nall is well\n100\n"), phase="Succeeded")
    assert the_task(pod) == ObservedTask(
        job="render",
        index=0,
        attempt=1,
        phase="Succeeded",
        exit_code=0,
        percent=100,
        message="all is well",
        artefacts=("https://a.example/1",),
        started="2026-01-01T00:00:00.000Z",
        finished="2026-01-01T00:00:05.000Z",
    )


def test_failure_with_its_exit_code() -> None:
    task = the_task(a_pod(ended(3, message="no such scene"), phase="Failed"))
    assert (task.phase, task.reason, task.exit_code, task.message) == ("Failed", "Failed", 3, "no such scene")


def test_too_much_memory() -> None:
    task = the_task(a_pod(ended(137, "OOMKilled"), phase="Failed"))
    assert (task.phase, task.reason, task.exit_code) == ("Failed", "OOMKilled", 137)
    assert task.message


@pytest.mark.parametrize("why", ["ContainerCannotRun", "StartError"])
def test_a_command_that_cannot_be_started(why: str) -> None:
    task = the_task(a_pod(ended(128, why, "exec: no such file"), phase="Failed"))
    assert (task.phase, task.reason, task.exit_code) == ("Failed", "StartError", None)


def test_an_end_that_nobody_saw_is_lost() -> None:
    task = the_task(a_pod(ended(137, "ContainerStatusUnknown"), phase="Failed"))
    assert (task.phase, task.reason, task.exit_code) == ("Failed", "Lost", None)


def test_the_time_limit_passed() -> None:
    status = {"phase": "Failed", "reason": "DeadlineExceeded", "message": "Pod was active too long"}
    assert said(a_pod(ended(137), **status)) == ("Failed", "TimedOut")
    assert said(a_pod(**status)) == ("Failed", "TimedOut")
    # What succeeded before has.
    assert said(a_pod(ended(0), **status)) == ("Succeeded", "")


def test_one_whose_time_passed_is_alive_until_its_container_has_ended() -> None:
    assert said(a_pod(running(), phase="Failed", reason="DeadlineExceeded")) == ("Running", "DeadlineExceeded")


def test_thrown_out_of_its_node() -> None:
    status = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory"}
    assert said(a_pod(**status)) == ("Failed", "Evicted")
    task = the_task(a_pod(ended(137), **status))
    assert (task.reason, task.message) == ("Evicted", "Evicted: The node was low on memory")


@pytest.mark.parametrize("why", ["OutOfcpu", "NodeAffinity", "UnexpectedAdmissionError", "NodeShutdown"])
def test_refused_by_its_node_it_is_not_to_blame(why: str) -> None:
    assert said(a_pod(phase="Failed", reason=why)) == ("Failed", "Evicted")


def test_disrupted_by_the_cluster() -> None:
    disrupted = condition("DisruptionTarget", "True", "PreemptionByScheduler", "for somebody else")
    assert said(a_pod(ended(143), phase="Failed", conditions=[disrupted])) == ("Failed", "Evicted")
    assert said(a_pod(phase="Failed", conditions=[disrupted])) == ("Failed", "Evicted")


def test_what_may_still_run_on_a_node_that_does_not_answer_has_not_ended() -> None:
    lost = condition("Ready", "Unknown", "NodeStatusUnknown")
    for pod in (
        a_pod(running(), reason="NodeLost"),
        a_pod(running(), conditions=[lost]),
        a_pod(running(), phase="Unknown"),
    ):
        pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        assert said(pod) == ("Running", "NodeLost")


def test_given_up_by_the_cluster_with_its_node() -> None:
    assert said(a_pod(phase="Failed", reason="NodeLost")) == ("Failed", "Lost")


def test_a_pod_that_is_deleted_lives_until_its_containers_have_ended() -> None:
    pod = a_pod(running())
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert said(pod) == ("Running", "")


def test_deleted_by_somebody_else_it_was_evicted() -> None:
    pod = a_pod(ended(143), phase="Failed")
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert said(pod) == ("Failed", "Evicted")


def test_stopped_by_its_joblet_it_ends_as_that_said() -> None:
    assert said(stopped(a_pod(ended(143), phase="Failed"), reason="Moved")) == ("Cancelled", "Moved")
    assert said(stopped(a_pod(phase="Failed"), reason="Moved")) == ("Cancelled", "Moved")
    failed = stopped(a_pod(phase="Failed"), phase="Failed", reason="ImageError", message="no such image")
    assert the_task(failed).message == "no such image"
    # It was quicker than the stop.
    assert said(stopped(a_pod(ended(0), phase="Succeeded"), reason="Moved")) == ("Succeeded", "")


def test_restarts_that_should_not_be_are_told() -> None:
    assert "restarted it 2 times" in the_task(a_pod(ended(1, restarts=2), phase="Failed")).message


def test_each_container_is_its_own_task() -> None:
    pod = a_pod(ended(0, message="https://a.example/0"), running(), waiting("ErrImagePull"), ended(4))
    pod["metadata"]["annotations"]["controlplane/progress.task-1"] = "70"
    found = observe(pod)
    assert [found[a_ref(index, index + 1)].phase for index in range(4)] == [
        "Succeeded",
        "Running",
        "Starting",
        "Failed",
    ]
    assert found[a_ref(0, 1)].artefacts == ("https://a.example/0",)
    assert found[a_ref(1, 2)].percent == 70
    assert found[a_ref(3, 4)].exit_code == 4


def test_of_a_pod_of_somebody_else_nothing_is_known() -> None:
    assert observe({"metadata": {"name": "web"}, "status": {"phase": "Running"}}) == {}


def test_what_can_never_start_is_hopeless_at_once_what_may_only_later() -> None:
    assert hopeless(a_pod(waiting("InvalidImageName", "bad")), patience_over=False) == Stopping(
        phase="Failed", reason="ImageError", message="InvalidImageName: bad"
    )
    backing_off = a_pod(waiting("ImagePullBackOff", "not found"), phase="Pending")
    assert hopeless(backing_off, patience_over=False) is None
    assert hopeless(backing_off, patience_over=True) == Stopping(
        phase="Failed", reason="ImageError", message="ImagePullBackOff: not found"
    )


def test_without_a_node_for_long_it_is_tried_elsewhere() -> None:
    pod = a_pod(phase="Pending", conditions=[UNSCHEDULABLE])
    assert hopeless(pod, patience_over=False) is None
    given_up = hopeless(pod, patience_over=True)
    assert given_up is not None
    assert given_up.reason == "Evicted"


def test_a_pod_of_which_something_runs_has_hope() -> None:
    assert hopeless(a_pod(waiting("InvalidImageName"), running()), patience_over=True) is None
    assert hopeless(a_pod(waiting("ContainerCreating")), patience_over=True) is None
    assert hopeless(a_pod(phase="Failed"), patience_over=True) is None


def test_a_pod_that_is_gone_ended_as_it_was_stopped_or_is_lost() -> None:
    assert vanished(a_ref(), None).reason == "Lost"
    assert vanished(a_ref(), a_pod(running())).reason == "Lost"
    gone = vanished(a_ref(), stopped(a_pod(running()), reason="Cancelled"))
    assert (gone.phase, gone.reason) == ("Cancelled", "Cancelled")


NO_SUCH_FILE = 'exec: "/bin/doesnotexist": stat /bin/doesnotexist: no such file or directory: unknown'
COULD_NOT_START = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: "
    f"unable to start container process: error during container init: {NO_SUCH_FILE}"
)


def test_a_container_that_could_not_start_has_no_time_of_its_start() -> None:
    """A kubelet writes the beginning of 1970 there."""
    pod = a_pod(ended(128, "StartError", COULD_NOT_START), phase="Failed")
    pod["status"]["containerStatuses"][0]["state"]["terminated"]["startedAt"] = "1970-01-01T00:00:00Z"
    task = the_task(pod)
    assert (task.phase, task.reason, task.exit_code) == ("Failed", "StartError", None)
    assert (task.started, task.finished) == ("", "2026-01-01T00:00:05.000Z")


@pytest.mark.parametrize("reason", ["StartError", "ContainerCannotRun"])
def test_of_a_long_start_error_the_cause_at_its_end_is_kept(reason: str) -> None:
    task = the_task(a_pod(ended(128, reason, COULD_NOT_START), phase="Failed"))
    assert task.message.startswith("…")
    assert task.message.endswith(NO_SUCH_FILE)


@pytest.mark.parametrize("why", ["ErrImagePull", "CreateContainerError"])
def test_of_a_long_sentence_why_a_container_waits_reason_and_cause_are_kept(why: str) -> None:
    cause = "dial tcp 127.0.0.1:1: connect: connection refused"
    task = the_task(a_pod(waiting(why, f"failed to pull image {'x' * 300}: {cause}"), phase="Pending"))
    assert task.message.startswith(f"{why}: …")
    assert task.message.endswith(cause)
    assert len(task.message) == 200


def test_of_a_long_sentence_of_the_scheduler_its_start_is_kept() -> None:
    sentence = "0/300 nodes are available: 300 Insufficient cpu. " + "preemption: no. " * 50
    pod = a_pod(phase="Pending", conditions=[condition("PodScheduled", "False", "Unschedulable", sentence)])
    message = the_task(pod).message
    assert message.startswith("Unschedulable: 0/300 nodes are available: 300 Insufficient cpu.")
    assert message.endswith("…")


ROOT = [
    'container has runAsNonRoot and image will run as root (pod: "cp-1_work(5c0)", container: task-0)',
    'container has runAsNonRoot and image has non-numeric user (node), cannot verify user is non-root (pod: "cp-1_w")',
    'container\'s runAsUser breaks non-root policy (pod: "cp-1_work(5c0)", container: task-0)',
]


@pytest.mark.parametrize("sentence", ROOT)
def test_an_image_that_would_run_as_root_is_hopeless_at_once_and_says_what_helps(sentence: str) -> None:
    pod = a_pod(waiting("CreateContainerConfigError", sentence), phase="Pending")
    why = hopeless(pod, patience_over=False)
    assert why is not None
    assert (why.phase, why.reason) == ("Failed", "StartError")
    assert sentence.partition(" (pod:")[0] in why.message
    assert "--security baseline" in why.message
    assert the_task(pod).message == why.message


def test_a_missing_secret_may_still_appear() -> None:
    pod = a_pod(waiting("CreateContainerConfigError", 'secret "film" not found'), phase="Pending")
    assert hopeless(pod, patience_over=False) is None
    assert hopeless(pod, patience_over=True) == Stopping(
        phase="Failed", reason="StartError", message='CreateContainerConfigError: secret "film" not found'
    )
