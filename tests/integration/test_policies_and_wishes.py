"""Failure policies, times, and wishes about tasks, on a running `up`: one for all of them, its commands are real."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from controlplane.client import Client
from controlplane.model import errors, manifest
from controlplane.wire import convert
from controlplane.wire.v1 import orders_pb2, resources_pb2, targets_pb2
from tests.credentials import TOKEN, leave_token

pytestmark = pytest.mark.timeout(300)
SECONDS = 100.0
# Succeeds from the second attempt on, or from the third.
SECOND = ["sh", "-c", '[ "$CONTROLPLANE_ATTEMPT" -ge 2 ]']
THIRD = ["sh", "-c", '[ "$CONTROLPLANE_ATTEMPT" -ge 3 ]']
TOO_LARGE = {"cpu": 1000}


def call(module: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", f"controlplane.cli.{module}", arguments[0], "--data-dir", str(folder)]
    return subprocess.run([*argv, *arguments[1:]], capture_output=True, text=True, timeout=SECONDS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("up") / "data"
    leave_token(path)
    started = call("controlplane", path, "up", "--detach", "--replicas", "2", "--targets", "2")
    assert started.returncode == 0, started.stderr
    yield path
    call("controlplane", path, "down")


@pytest.fixture
async def client(folder: Path) -> AsyncIterator[Client]:
    replicas = json.loads((folder / "up.json").read_text())["replicas"]
    async with Client([replica["grpc"] for replica in replicas], token=TOKEN) as made:
        yield made


async def cpctl(folder: Path, *arguments: str) -> Any:
    """What it prints; it must have gone well."""
    answer = await asyncio.to_thread(call, "cpctl", folder, *arguments, "-o", "json")
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)


async def submit(client: Client, *jobs: dict[str, Any], **said: Any) -> str:
    """Each job is a command and whatever else is said of it; `count` is how often it runs."""
    parts = [{"job": {k: v for k, v in job.items() if k != "count"}, "count": job.get("count", 1)} for job in jobs]
    read = manifest.read({"kind": "Order", "id": client.mint.make(), "packet": {"jobs": parts}, **said})
    return (await client.orders.submit(convert.to_wire(read, orders_pb2.Order))).item.id


async def until(client: Client, order: str, holds: Callable[[orders_pb2.Order], bool]) -> orders_pb2.Order:
    async with asyncio.timeout(SECONDS):
        while True:
            found: orders_pb2.Order = await client.orders.get(order)
            if holds(found):
                return found
            await asyncio.sleep(0.05)


async def ended(client: Client, order: str) -> orders_pb2.Order:
    return await until(client, order, lambda found: found.status.phase in ("Succeeded", "Failed", "Cancelled"))


async def running(client: Client, order: str, count: int = 1) -> orders_pb2.Order:
    return await until(client, order, lambda found: sum(task.phase == "Running" for task in found.tasks) == count)


def retry(**said: Any) -> dict[str, Any]:
    return {"action": "retry", **said}


# Policies -------------------------------------------------------------------------------------------------------------


async def test_retry_tries_again_after_a_while_until_it_succeeds(client: Client) -> None:
    order = await submit(client, {"command": THIRD, "failure_policies": [retry(limit=2, backoff=0.1)]})
    (task,) = (await ended(client, order)).tasks
    assert (task.phase, task.attempt, task.decision) == ("Succeeded", 3, "done")


async def test_retry_ends_at_its_limit_and_says_so(client: Client) -> None:
    order = await submit(client, {"command": ["false"], "failure_policies": [retry(limit=1)]})
    found = await ended(client, order)
    (task,) = found.tasks
    assert (found.status.phase, task.phase, task.attempt, task.exit_code) == ("Failed", "Failed", 2, 1)
    assert (task.decision, task.policy, task.reason) == ("fail", "job[0]", "Failed")
    assert "tried again 1 times, which is its limit" in task.why


async def test_retry_elsewhere_goes_to_another_target(client: Client) -> None:
    command = ["sh", "-c", 'echo "$CONTROLPLANE_TARGET" >&2; [ "$CONTROLPLANE_ATTEMPT" -ge 2 ]']
    order = await submit(client, {"command": command, "failure_policies": [retry(elsewhere=True, backoff=0.5)]})
    waiting = await until(client, order, lambda found: found.tasks[0].decision == "retry")
    (left,) = waiting.tasks[0].avoid
    (task,) = (await ended(client, order)).tasks
    assert (task.phase, task.attempt) == ("Succeeded", 2)
    assert {left, task.target} == {"local-1", "local-2"}


async def test_ignore_counts_a_failure_as_done_and_keeps_it_visible(client: Client) -> None:
    order = await submit(client, {"command": ["sh", "-c", "exit 3"], "failure_policies": [{"action": "ignore"}]})
    found = await ended(client, order)
    (task,) = found.tasks
    assert (found.status.phase, found.status.counts.succeeded) == ("Succeeded", 1)
    assert (task.phase, task.exit_code, task.reason, task.decision) == ("Succeeded", 3, "Failed", "ignore")


async def test_fail_order_ends_all_of_the_order_at_once(client: Client) -> None:
    order = await submit(
        client,
        {"name": "bad", "command": ["sh", "-c", "sleep 1; false"], "failure_policies": [{"action": "fail_order"}]},
        {"name": "long", "command": ["sleep", "600"], "count": 2},
        {"name": "waits", "command": ["true"], "requests": TOO_LARGE, "count": 3},
    )
    found = await ended(client, order)
    assert found.status.phase == "Failed"
    shown = [(task.job, task.phase, task.reason) for task in found.tasks]
    assert shown[0] == ("bad", "Failed", "Failed")
    assert {*shown[1:3]} <= {("long", "Cancelled", "OrderFailed")}
    assert {*shown[3:]} == {("waits", "Cancelled", "OrderFailed")}


async def test_hold_waits_for_a_person_who_releases_it(client: Client, folder: Path) -> None:
    order = await submit(client, {"name": "j", "command": SECOND, "failure_policies": [{"action": "hold"}], "count": 2})
    held = await until(client, order, lambda found: found.status.counts.held == 2)
    assert {(task.phase, task.decision, task.attempt) for task in held.tasks} == {("Held", "hold", 1)}
    await cpctl(folder, "release", f"{order}/j/1", "--wait")
    one = await until(client, order, lambda found: found.status.counts.succeeded == 1)
    assert [(task.phase, task.attempt) for task in one.tasks] == [("Held", 1), ("Succeeded", 2)]
    await client.orders.release_tasks(orders_pb2.TasksRequest(id=order))
    found = await ended(client, order)
    assert (found.status.phase, [task.attempt for task in found.tasks]) == ("Succeeded", [2, 2])


async def test_the_policies_of_the_order_go_first_and_match_codes_reasons_and_attempts(client: Client) -> None:
    order = await submit(
        client,
        {"name": "code", "command": ["sh", "-c", "exit 7"]},
        {"name": "slow", "command": ["sleep", "600"], "time_limit": 0.3},
        {"name": "none", "command": ["no-such-command"]},
        {"name": "twice", "command": ["sh", "-c", "exit 9"]},
        failure_policies=[
            {"on": {"exit_codes": [7]}, "action": "ignore"},
            {"on": {"reasons": ["TimedOut", "StartError"]}, "action": "ignore"},
            {"on": {"attempts": [1]}, **retry()},
        ],
    )
    found = await ended(client, order)
    assert found.status.phase == "Failed"
    assert [(task.job, task.decision, task.policy, task.attempt) for task in found.tasks] == [
        ("code", "ignore", "order[0]", 1),
        ("slow", "ignore", "order[1]", 1),
        ("none", "ignore", "order[1]", 1),
        ("twice", "fail", "default[1]", 2),
    ]


@pytest.mark.parametrize(
    ("policies", "field"),
    [
        ([{"action": "ignore"}, {"on": {"exit_codes": [1]}, "action": "retry"}], "failure_policies[1].on"),
        ([retry(backoff=-1)], "failure_policies[0].backoff"),
        ([{"action": "hold", "limit": 2}], "failure_policies[0].limit"),
        ([{"action": "explode"}], "failure_policies[0].action"),
        ([{"on": {"reasons": ["Bored"]}}], "failure_policies[0].on.reasons[0]"),
        ([{"on": {"exit_codes": [256]}}], "failure_policies[0].on.exit_codes[0]"),
    ],
)
async def test_bad_policies_are_refused_with_the_name_of_the_field(
    client: Client, policies: list[dict[str, Any]], field: str
) -> None:
    message = orders_pb2.Order(id=client.mint.make())
    job = message.packet.object.jobs.add(count=1).job.object
    job.command.append("true")
    for policy in policies:
        found = message.failure_policies.add(action=policy.get("action", "fail"))
        found.on.exit_codes.extend(policy.get("on", {}).get("exit_codes", []))
        found.on.reasons.extend(policy.get("on", {}).get("reasons", []))
        for name in ("limit", "backoff"):
            if name in policy:
                setattr(found, name, policy[name])
    with pytest.raises(errors.Invalid) as caught:
        await client.orders.submit(message)
    assert caught.value.field == field
    with pytest.raises(errors.NotFound):
        await client.orders.get(message.id)


# Time -----------------------------------------------------------------------------------------------------------------


async def test_a_target_may_limit_jobs_that_have_no_limit_of_their_own(client: Client) -> None:
    target = await client.targets.get("local-2")
    limited = targets_pb2.Target(name="local-2", capacity=target.capacity, driver="process", default_time_limit=0.4)
    await client.targets.update(limited)
    jobs = ({"command": ["sleep", "600"]}, {"command": ["sleep", "1"], "time_limit": 60})
    order = await submit(client, *jobs, target_policy="strict:local-2")
    found = await ended(client, order)
    assert [(task.phase, task.reason) for task in found.tasks] == [("Failed", "TimedOut"), ("Succeeded", "")]
    limited.ClearField("default_time_limit")
    await client.targets.update(limited)


async def test_at_the_deadline_what_waits_fails_and_what_runs_is_stopped(client: Client) -> None:
    order = await submit(
        client,
        {"name": "runs", "command": ["sleep", "600"]},
        {"name": "waits", "command": ["true"], "requests": TOO_LARGE, "count": 3},
        deadline=2,
    )
    await running(client, order)
    found = await ended(client, order)
    assert found.status.phase == "Failed"
    assert {(task.phase, task.reason) for task in found.tasks} == {("Failed", "DeadlineExceeded")}
    assert found.status.expired == ["waits"]
    assert found.tasks[0].decision == "fail"


async def test_who_cannot_make_the_deadline_any_more_fails_early(client: Client) -> None:
    order = await submit(
        client, {"command": ["true"], "requests": TOO_LARGE, "time_limit": 3600, "count": 2}, deadline=3601
    )
    assert (await client.orders.get(order)).status.phase == "Pending"
    found = await ended(client, order)
    assert {(task.phase, task.reason, task.attempt) for task in found.tasks} == {("Failed", "DeadlineExceeded", 0)}


async def test_a_policy_decides_about_what_the_deadline_stopped(client: Client) -> None:
    policies = [{"on": {"reasons": ["DeadlineExceeded"]}, "action": "ignore"}]
    order = await submit(client, {"command": ["sleep", "600"], "failure_policies": policies}, deadline=1.5)
    found = await ended(client, order)
    assert (found.status.phase, found.tasks[0].decision) == ("Succeeded", "ignore")


# Wishes ---------------------------------------------------------------------------------------------------------------


async def test_a_task_then_a_job_then_the_order_are_cancelled_and_the_targets_confirm(
    client: Client, folder: Path
) -> None:
    order = await submit(
        client,
        {"name": "a", "command": ["sleep", "600"], "count": 2},
        {"name": "b", "command": ["sleep", "600"], "count": 2},
        {"name": "c", "command": ["true"], "requests": TOO_LARGE, "count": 2},
    )
    await running(client, order, 4)
    after = await cpctl(folder, "cancel", f"{order}/a/1", "--wait", "--timeout", "60s")
    assert (after["status"]["counts"]["cancelled"], after["status"]["counts"]["running"]) == (1, 3)
    await client.orders.cancel_tasks(orders_pb2.TasksRequest(id=order, job="c", index=0))
    await cpctl(folder, "cancel", f"{order}/b", "--wait")
    found = await client.orders.get(order)
    phases = [(task.job, task.phase) for task in found.tasks]
    assert phases[:4] == [("a", "Running"), ("a", "Cancelled"), ("b", "Cancelled"), ("b", "Cancelled")]
    assert phases[4:] == [("c", "Cancelled"), ("c", "Pending")]
    again = await client.orders.cancel_tasks(orders_pb2.TasksRequest(id=order, job="a", index=1))
    assert again.revision == found.revision, "said twice, nothing is written"
    done = await cpctl(folder, "cancel", order, "--wait")
    assert done["status"]["phase"] == "Cancelled"


async def test_an_order_succeeds_without_the_tasks_that_its_user_cancelled(client: Client) -> None:
    order = await submit(client, {"command": ["true"]}, {"name": "j", "command": ["true"], "requests": TOO_LARGE})
    await until(client, order, lambda found: found.status.counts.succeeded == 1)
    await client.orders.cancel_tasks(orders_pb2.TasksRequest(id=order, job="j"))
    assert (await ended(client, order)).status.phase == "Succeeded"


async def test_a_task_moves_to_another_target_and_back_without_having_failed(client: Client, folder: Path) -> None:
    order = await submit(
        client, {"name": "j", "command": ["sleep", "600"], "failure_policies": [{"action": "fail_order"}]}
    )
    first = (await running(client, order)).tasks[0].target
    await cpctl(folder, "move", f"{order}/j/0", "--wait")
    second = (await until(client, order, lambda found: found.tasks[0].attempt == 2)).tasks[0].target
    assert {first, second} == {"local-1", "local-2"}
    await running(client, order)
    await cpctl(folder, "move", f"{order}/j/0", "--to", first, "--wait")
    third = (await until(client, order, lambda found: found.tasks[0].attempt == 3)).tasks[0].target
    assert third == first
    with pytest.raises(errors.NotFound) as caught:
        await client.orders.move_task(orders_pb2.MoveTaskRequest(id=order, job="j", index=0, to="nowhere"))
    assert caught.value.field == "to"
    await client.orders.cancel(order)
    await ended(client, order)


async def test_what_is_left_of_an_order_goes_where_and_when_an_update_says(client: Client, folder: Path) -> None:
    await client.resources.create(resources_pb2.Resource(name="colour", key="COLOUR", value="blue"))
    command = ["sh", "-c", '[ "$COLOUR" = blue ]']
    order = await submit(client, {"command": command}, not_before="2100-01-01T00:00:00Z")
    said = ("--target", "local-2", "--priority", "90", "--deadline", "1h", "--resource", "colour", "--wait")
    after = await cpctl(folder, "update", "order", order, *said)
    assert (after["target_policy"], after["priority"], after["deadline"]) == ("strict:local-2", 90, 3600)
    assert [resource["name"] for resource in after["resources"]] == ["colour"]
    assert after["status"]["phase"] == "Pending"
    await cpctl(folder, "update", "order", order, "--not-before", "")
    found = await ended(client, order)
    assert (found.status.phase, found.tasks[0].target) == ("Succeeded", "local-2")
    with pytest.raises(errors.IllegalTransition):
        await client.orders.update(orders_pb2.UpdateOrderRequest(id=order, deadline=5))


async def test_an_update_may_bring_the_deadline_nearer(client: Client) -> None:
    order = await submit(client, {"command": ["sleep", "600"]}, deadline="2h")
    await running(client, order)
    await client.orders.update(orders_pb2.UpdateOrderRequest(id=order, deadline=1))
    assert (await ended(client, order)).tasks[0].reason == "DeadlineExceeded"


# Several tasks in one fulfilment --------------------------------------------------------------------------------------


async def packed(client: Client, pack: int, **job: Any) -> str:
    count = job.pop("count")
    return await submit(client, packet={"jobs": [{"job": job, "count": count}], "pack": pack})


async def test_of_tasks_that_share_a_fulfilment_the_one_that_fails_is_tried_again_alone(
    client: Client, folder: Path
) -> None:
    script = '[ "$CONTROLPLANE_INDEX" -ne 3 ] || [ "$CONTROLPLANE_ATTEMPT" -ge 2 ]'
    again = [retry(limit=1)]
    order = await packed(
        client, 5, command=["sh", "-c", script], requests={"cpu": 0.5}, count=5, failure_policies=again
    )
    tasks = (await ended(client, order)).tasks
    assert [(task.phase, task.attempt) for task in tasks] == [("Succeeded", 2 if at == 3 else 1) for at in range(5)]
    first, alone = {task.fulfilment for task in tasks if task.index != 3}, tasks[3].fulfilment
    assert len(first) == 1
    assert alone not in first
    verdicts = (await cpctl(folder, "verify"))["promises"]
    assert [found["violations"] for found in verdicts if found["promise"] in ("P1", "P3", "P5", "P7")] == [[]] * 4


async def test_of_tasks_that_share_a_fulfilment_one_can_be_cancelled(
    client: Client, folder: Path, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    order = await packed(client, 3, command=["sh", "-c", f"while ! test -e {go}; do sleep 0.02; done"], count=3)
    (placed,) = {task.fulfilment for task in (await running(client, order, 3)).tasks}
    await cpctl(folder, "cancel", f"{order}/job-1/1", "--wait")
    (found,) = (await cpctl(folder, "get", "fulfilments", "--order", order))["items"]
    assert (found["id"], found["want"], found["stop"]) == (
        placed,
        "run",
        [{"job": "job-1", "index": 1, "reason": "Cancelled"}],
    )
    assert [task["phase"] for task in found["observed"]["tasks"]] == ["Running", "Cancelled", "Running"]
    go.touch()
    assert [task.phase for task in (await ended(client, order)).tasks] == ["Succeeded", "Cancelled", "Succeeded"]


async def test_a_mounted_resource_is_there_as_a_file(client: Client) -> None:
    await client.resources.create(resources_pb2.Resource(name="scene", key="SCENE", value="42", mount="/etc/scene"))
    order = await submit(client, {"command": ["sh", "-c", 'test "$(cat $SCENE)" = 42'], "resources": ["scene"]})
    assert (await ended(client, order)).status.phase == "Succeeded"


def test_all_of_this_kept_the_promises(folder: Path) -> None:
    answer = call("cpctl", folder, "verify", "-o", "json")
    assert answer.returncode == 0, answer.stdout
