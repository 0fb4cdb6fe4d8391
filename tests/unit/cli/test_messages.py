"""What a target says of a task, and what a target has, as people read it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from controlplane.cli import tables
from controlplane.cli.description import describe
from controlplane.cli.output import AnswerPrinter, Format
from controlplane.wire.v1 import orders_pb2
from tests.unit.cli.test_exit_codes import ORDER, ask
from tests.unit.client.scripted_replica import ScriptedReplica, always

WHY = "nope: No such file or directory"
TASK = orders_pb2.Task(job="j", index=0, phase="Failed", attempt=1, target="eu-1", reason="StartError", message=WHY)
FAILED = orders_pb2.Order(id=ORDER, tasks_total=1, status=orders_pb2.OrderStatus(phase="Failed"), tasks=[TASK])


async def test_a_failed_run_says_what_the_target_said() -> None:
    async def watch(request: Any) -> Any:
        yield orders_pb2.OrderEvent(type="put", revision=2, object=FAILED)

    submitted = always(orders_pb2.OrderResponse(item=orders_pb2.Order(id=ORDER)))
    replica = ScriptedReplica(Orders_Submit=submitted, Orders_Watch=watch, Orders_Get=always(FAILED))
    code, _, err = await ask(replica, "run", "--", "nope")
    assert code == 2
    assert f"task j/0 on eu-1: StartError: {WHY}\n" in err


async def test_json_of_an_order_carries_the_message_of_each_task() -> None:
    order = orders_pb2.Order(id=ORDER, tasks=[TASK, orders_pb2.Task(job="j", index=1, phase="Running")])
    _, out, _ = await ask(ScriptedReplica(Orders_Get=always(order)), "get", "order", ORDER, "-o", "json")
    assert [task["message"] for task in json.loads(out)["tasks"]] == [WHY, None]


def test_describe_shows_the_message_of_a_task_that_does_not_start(capsys: pytest.CaptureFixture[str]) -> None:
    task = {"job": "j", "index": 0, "phase": "Placed", "attempt": 1, "reason": "ImageError", "message": "refused\nhere"}
    status = {"phase": "Running", "counts": {"placed": 1}, "reasons": []}
    describe(AnswerPrinter(Format.TABLE), "Order", {"kind": "Order", "id": ORDER, "status": status, "tasks": [task]})
    shown = capsys.readouterr().out.splitlines()
    assert shown[-2].split() == ["JOB", "INDEX", "PHASE", "ATTEMPT", "TARGET", "EXIT", "REASON", "MESSAGE"]
    assert shown[-1].split() == ["j", "0", "Placed", "1", "-", "-", "ImageError", "refused", "|", "here"]


def test_free_room_leaves_out_what_a_target_has_none_of() -> None:
    free = {"cpu": 0, "memory": 2**30, "hugepages-1Gi": 0, "hugepages-2Mi": 0}
    target = {"name": "real", "status": {"phase": "Ready", "free": free, "used": {"cpu": 4}}}
    column = next(column for column in tables.TARGETS if column.title == "FREE")
    assert column.value(target) == "cpu 0/4, memory 1Gi/1Gi"


def test_fulfilments_tell_each_message_once_where_there_is_room() -> None:
    tasks = [{"message": "refused"}, {"message": "refused"}, {"message": ""}]
    column = next(column for column in tables.FULFILMENTS if column.title == "MESSAGE")
    assert column.wide
    assert column.value({"observed": {"phase": "Starting", "tasks": tasks}}) == "refused"
    assert column.value({"observed": None}) == "-"
