"""The transport between the parts of the plane: binding a port of gRPC, and opening a channel to a replica.

Every gRPC connection but those to etcd begins here, so credentials of servers and channels have one place.
"""

from __future__ import annotations

from collections.abc import Sequence

import grpc

Options = Sequence[tuple[str, int]]
Metadata = tuple[tuple[str, str], ...]


def open_channel(endpoint: str, options: Options = ()) -> grpc.aio.Channel:
    """A channel to the replica at HOST:PORT; the first use connects."""
    return grpc.aio.insecure_channel(endpoint, options=options)


def credentials(token: str) -> Metadata:
    """The metadata of a call with this token, empty without a token."""
    return (("authorization", f"Bearer {token}"),) if token else ()


def bind_port(server: grpc.aio.Server, address: str) -> int:
    """The port of the server from now on; 0 when the address cannot be bound."""
    try:
        return server.add_insecure_port(address)
    except RuntimeError:
        return 0
