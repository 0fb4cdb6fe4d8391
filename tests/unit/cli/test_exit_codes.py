"""`cpctl` as a process: what goes to stdout, what to stderr, and the exit code."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from controlplane.cli import shell
from controlplane.cli.output import AnswerPrinter, Format
from controlplane.model import errors, identity
from controlplane.standalone.endpoints import find_endpoints
from controlplane.wire.v1 import cluster_pb2, explanations_pb2, jobs_pb2, orders_pb2
from tests.unit.client.scripted_replica import ScriptedReplica, always, failing

ORDER = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


async def cpctl(*arguments: str, stdin: bytes = b"", endpoints: str = "", token: str = "") -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "controlplane.cli.cpctl", *arguments,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env={
            "PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "NO_COLOR": "1", "CONTROLPLANE_ENDPOINTS": endpoints,
            "CONTROLPLANE_TOKEN": token,
        },
    )  # fmt: skip
    out, err = await process.communicate(stdin)
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def ask(replica: ScriptedReplica, *arguments: str, stdin: bytes = b"", token: str = "") -> tuple[int, str, str]:
    async with replica.serve():
        return await cpctl(*arguments, stdin=stdin, endpoints=replica.endpoint, token=token)


@pytest.mark.parametrize(
    "arguments", [(), ("nope",), ("get",), ("get", "orders", "--nope"), ("get", "orders", "-o", "x")]
)
async def test_wrong_usage_is_1_and_says_nothing_on_stdout(arguments: tuple[str, ...]) -> None:
    code, out, err = await cpctl(*arguments)
    assert (code, out) == (1, "")
    assert err


async def test_an_unknown_kind_names_the_known_ones() -> None:
    code, out, err = await cpctl("get", "clouds")
    assert (code, out) == (1, "")
    assert err.startswith("error: Invalid: kind: must be one of orders, jobs")


async def test_a_refusal_of_the_server_is_one_line_on_stderr_and_1() -> None:
    refusing = failing(errors.Invalid("priority", "must be 1 to 100, not 0"))
    answer = await ask(ScriptedReplica(Orders_Submit=refusing), "submit", "--packet", "p", "--priority", "0")
    assert answer == (1, "", "error: Invalid: priority: must be 1 to 100, not 0\n")


async def test_nobody_leads_is_2_with_nulls() -> None:
    code, out, _ = await ask(ScriptedReplica(), "leader", "-o", "json")
    assert code == 2
    assert json.loads(out) == {"id": None, "epoch": None, "since": None, "grpc": None, "http": None}


async def test_a_leader_is_0() -> None:
    leader = always(cluster_pb2.Leader(id="replica-1", epoch=3, since="2026-01-01T00:00:00.000Z", grpc="a", http="b"))
    code, out, _ = await ask(ScriptedReplica(Cluster_GetLeader=leader), "leader", "-o", "json")
    assert code == 0
    assert json.loads(out)["id"] == "replica-1"


async def test_every_submit_carries_an_identity_and_the_owner() -> None:
    replica = ScriptedReplica(Orders_Submit=always(orders_pb2.OrderResponse(item=orders_pb2.Order(id=ORDER))))
    code, out, _ = await ask(replica, "submit", "--packet", "film", "--target", "eu-1", "-o", "name")
    assert (code, out) == (0, f"{ORDER}\n")
    [(_, order)] = replica.requests
    assert identity.check(order.id)
    assert order.owner
    assert order.packet.name == "film"
    assert order.target_policy == "strict:eu-1"


@pytest.mark.parametrize("arguments", [("submit", "-f", "-"), ("plan", "-f", "-"), ("apply", "-f", "-")])
async def test_with_a_token_the_owner_is_left_to_the_plane(arguments: tuple[str, ...]) -> None:
    replica = ScriptedReplica(
        Orders_Submit=always(orders_pb2.OrderResponse(item=orders_pb2.Order(id=ORDER))),
        Orders_Plan=always(explanations_pb2.Plan(placeable=True)),
        Cluster_Apply=always(cluster_pb2.ApplyResponse()),
    )
    code, _, _ = await ask(replica, *arguments, "-o", "name", stdin=b"kind: Order\npacket: film\n", token="cp_bob")
    assert code == 0
    [(method, request)] = replica.requests
    order = {"Orders.Submit": lambda: request, "Orders.Plan": lambda: request.order}.get(
        method, lambda: request.objects[0].order
    )()
    assert (order.packet.name, order.owner) == ("film", "")


async def test_an_owner_in_the_file_is_sent_with_a_token_too() -> None:
    replica = ScriptedReplica(Orders_Submit=always(orders_pb2.OrderResponse(item=orders_pb2.Order(id=ORDER))))
    document = b"kind: Order\npacket: film\nowner: ada\n"
    await ask(replica, "submit", "-f", "-", "-o", "name", stdin=document, token="cp_bob")
    assert replica.requests[0][1].owner == "ada"


@pytest.mark.parametrize(("asks", "owner"), [(True, ""), (False, shell.user())])
def test_a_folder_whose_up_asks_for_no_token_leaves_the_owner_to_cpctl(tmp_path: Path, asks: bool, owner: str) -> None:
    (tmp_path / "token").write_text("cp_ada\n")
    (tmp_path / "up.json").write_text(json.dumps({"replicas": [], "token_file": "token" if asks else None}))
    in_folder = shell.Shell(find_endpoints(None, tmp_path, {}), AnswerPrinter(Format.TABLE))
    assert in_folder.default_owner == owner


async def test_a_list_reads_all_pages_and_names_its_revision() -> None:
    async def page(request: Any) -> jobs_pb2.ListJobsResponse:
        name, more = ("a", "next") if not request.page_token else ("b", "")
        return jobs_pb2.ListJobsResponse(revision=9, items=[jobs_pb2.Job(name=name)], next_page_token=more)

    code, out, _ = await ask(ScriptedReplica(Jobs_List=page), "get", "job", "-o", "json")
    assert code == 0
    answer = json.loads(out)
    assert (answer["revision"], [item["name"] for item in answer["items"]]) == (9, ["a", "b"])


async def test_one_order_shows_all_of_its_tasks_and_null_for_what_is_not_known() -> None:
    order = orders_pb2.Order(id=ORDER, tasks_total=2, tasks=[orders_pb2.Task(job="j", index=0)], next_task_token="t")
    rest = orders_pb2.ListTasksResponse(items=[orders_pb2.Task(job="j", index=1)])
    replica = ScriptedReplica(Orders_Get=always(order), Orders_ListTasks=always(rest))
    code, out, _ = await ask(replica, "get", "orders", ORDER, "-o", "json")
    assert code == 0
    shown = json.loads(out)
    assert [task["index"] for task in shown["tasks"]] == [0, 1]
    assert shown["tasks"][0]["target"] is None
    assert shown["tasks"][0]["exit_code"] is None
    assert shown["status"]["phase"] == "Pending"
    assert shown["status"]["counts"]["pending"] == 2


async def test_apply_sends_all_objects_at_once_and_lists_what_became_of_them() -> None:
    applied = cluster_pb2.Applied(kind="Job", name="a", id=ORDER, result="created")
    replica = ScriptedReplica(Cluster_Apply=always(cluster_pb2.ApplyResponse(items=[applied])))
    text = b"kind: Job\nname: a\n---\nkind: Order\npacket: p\n"
    code, out, _ = await ask(replica, "apply", "-f", "-", "-o", "json", stdin=text)
    assert code == 0
    assert json.loads(out) == [{"kind": "Job", "name": "a", "id": ORDER, "result": "created"}]
    [(_, request)] = replica.requests
    assert [item.WhichOneof("object") for item in request.objects] == ["job", "order"]
    assert identity.check(request.objects[1].order.id)


@pytest.mark.parametrize(("phase", "code"), [("Succeeded", 0), ("Failed", 2), ("Cancelled", 2)])
async def test_run_ends_as_its_order_ended(phase: str, code: int) -> None:
    order = orders_pb2.Order(id=ORDER, tasks_total=1, status=orders_pb2.OrderStatus(phase=phase))

    async def watch(request: Any) -> Any:
        yield orders_pb2.OrderEvent(type="put", revision=1, object=orders_pb2.Order(id=ORDER))
        yield orders_pb2.OrderEvent(type="sync", revision=1)
        yield orders_pb2.OrderEvent(type="put", revision=2, object=order)

    submitted = always(orders_pb2.OrderResponse(item=orders_pb2.Order(id=ORDER)))
    replica = ScriptedReplica(Orders_Submit=submitted, Orders_Watch=watch, Orders_Get=always(order))
    found, out, err = await ask(replica, "run", "--count", "2", "-o", "name", "--", "echo", "--help")
    assert (found, out) == (code, f"{ORDER}\n")
    assert f"{phase}:" in err
    job = replica.requests[0][1].packet.object.jobs[0]
    assert (list(job.job.object.command), job.count) == (["echo", "--help"], 2)


async def test_a_reader_that_leaves_ends_cpctl_without_a_traceback() -> None:
    jobs = [jobs_pb2.Job(name=f"job-{number}", image="x" * 1000) for number in range(1000)]
    replica = ScriptedReplica(Jobs_List=always(jobs_pb2.ListJobsResponse(items=jobs)))
    async with replica.serve():
        command = (
            f"{sys.executable} -m controlplane.cli.cpctl get jobs -o json --endpoints {replica.endpoint} | head -1"
        )
        process = await asyncio.create_subprocess_shell(
            command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        out, err = await process.communicate()
    assert (out, err) == (b"{\n", b"")
