"""A bare grpc.aio server that answers a submit with the order as it came: what gRPC itself costs here."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import grpc

from controlplane.wire.v1 import orders_pb2, orders_pb2_grpc


class Echo(orders_pb2_grpc.OrdersServicer):
    async def Submit(self, request: orders_pb2.Order, context: object) -> orders_pb2.OrderResponse:
        return orders_pb2.OrderResponse(item=request)


async def serve() -> None:
    server = grpc.aio.server()
    orders_pb2_grpc.add_OrdersServicer_to_server(Echo(), server)  # type: ignore[abstract]
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    await server.wait_for_termination()


@contextmanager
def echo() -> Iterator[str]:
    """Runs it in a process of its own and gives its address."""
    process = subprocess.Popen([sys.executable, "-m", "tests.benchmarks.echo"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield f"127.0.0.1:{process.stdout.readline().strip()}"
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    asyncio.run(serve())
