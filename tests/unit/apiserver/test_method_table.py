"""The table of methods is held to the services of proto/ when a replica starts."""

from __future__ import annotations

import pytest

from controlplane.apiserver.call import Call
from controlplane.apiserver.edge.grpc_calls import rpc_handlers
from controlplane.apiserver.edge.methods import streaming, unary
from controlplane.model.errors import Broken
from controlplane.wire.v1 import logs_pb2

LOGS = "controlplane.v1.Logs"


async def read(call: Call, request: logs_pb2.ReadLogRequest):  # type: ignore[no-untyped-def]
    yield logs_pb2.LogPiece()


async def answer(call: Call, request: logs_pb2.ReadLogRequest) -> logs_pb2.LogPiece:
    return logs_pb2.LogPiece()


async def answer_other(call: Call, request: logs_pb2.LogsRequest) -> logs_pb2.LogPiece:
    return logs_pb2.LogPiece()


READ = streaming(logs_pb2.ReadLogRequest, logs_pb2.LogPiece, read)


def test_a_complete_table_gives_a_handler_for_each_method() -> None:
    assert set(rpc_handlers(LOGS, {"Read": READ})) == {"Read"}


@pytest.mark.parametrize(
    ("methods", "words"),
    [
        ({}, "Read has no handler"),
        ({"Read": READ, "Write": READ}, "no method Write"),
        ({"Read": unary(logs_pb2.ReadLogRequest, logs_pb2.LogPiece, answer)}, "of other messages"),
        ({"Read": unary(logs_pb2.LogsRequest, logs_pb2.LogPiece, answer_other)}, "of other messages"),
    ],
)
def test_a_table_that_does_not_match_the_service_fails_the_start(methods: dict[str, object], words: str) -> None:
    with pytest.raises(Broken, match=words):
        rpc_handlers(LOGS, methods)  # type: ignore[arg-type]
