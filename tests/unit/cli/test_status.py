"""`cpctl status`: what is isolated is counted and named, in the table and as JSON."""

from __future__ import annotations

import json

from controlplane.wire.v1 import cluster_pb2
from tests.unit.cli.test_exit_codes import ask
from tests.unit.client.scripted_replica import ScriptedReplica, always


def a_status(isolated: int) -> cluster_pb2.StatusResponse:
    answer = cluster_pb2.StatusResponse(id="r1", leader=cluster_pb2.Leader(id="r1", epoch=1), isolated=isolated)
    answer.etcd.CopyFrom(cluster_pb2.EtcdSpace(version="3.6.14", quota=2 << 30, level="Ok"))
    for number in range(min(isolated, 8)):
        answer.isolated_keys.add(
            kind="Order",
            name=f"order-{number}",
            part="scheduler",
            error="OverflowError: date value out of range",
            count=3,
            since="2026-01-01T00:00:00.000Z",
            again="2026-01-01T00:01:00.000Z",
        )
    return answer


async def test_nothing_isolated_says_nothing_of_it() -> None:
    code, out, err = await ask(ScriptedReplica(Cluster_Status=always(a_status(0))), "status")
    assert code == 0
    assert "isolated" not in out + err


async def test_isolated_keys_are_counted_and_some_are_named() -> None:
    code, out, err = await ask(ScriptedReplica(Cluster_Status=always(a_status(12))), "status")
    assert code == 0
    said = out + err
    assert "12 keys are isolated" in said
    assert (
        "Order order-0 (scheduler, 3 x since 2026-01-01T00:00:00.000Z): OverflowError: date value out of range" in said
    )
    assert said.count("OverflowError") == 5


async def test_as_json_every_field_of_an_isolated_key_is_there() -> None:
    code, out, _ = await ask(ScriptedReplica(Cluster_Status=always(a_status(1))), "status", "-o", "json")
    assert code == 0
    assert json.loads(out)["isolated"] == {
        "total": 1,
        "keys": [
            {
                "kind": "Order",
                "name": "order-0",
                "part": "scheduler",
                "error": "OverflowError: date value out of range",
                "count": 3,
                "since": "2026-01-01T00:00:00.000Z",
                "again": "2026-01-01T00:01:00.000Z",
            }
        ],
    }
