"""The credentials of planes that tests run: one administrator's token for all of them, and a cluster key."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any, cast

import grpc

from controlplane.aio.files import write_by_rename
from controlplane.model.access import SECRET_BYTES, Role, Token, token_digest, token_text
from controlplane.model.errors import OutcomeUnknown, Unavailable
from controlplane.store import codec, keys
from controlplane.store.kv import Store
from controlplane.store.transaction import Item, put
from controlplane.wire import transport

TOKEN = token_text(b"t" * SECRET_BYTES)
METADATA = transport.credentials(TOKEN)
_IDENTITY = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


async def record_token(store: Store) -> None:
    """Makes TOKEN an administrator's in an etcd whose replicas a test starts itself, as soon as that etcd answers."""
    token = Token(id=_IDENTITY, subject="tester", roles=(Role.ADMIN,), digest=token_digest(TOKEN))
    item = Item(then=(put(f"{keys.TOKENS.prefix}{token.id}", codec.encode(token)),))
    async with asyncio.timeout(60):
        while True:
            try:
                await store.commit(item)
                return
            except (Unavailable, OutcomeUnknown):
                await asyncio.sleep(0.1)


def leave_token(folder: Path) -> None:
    """Makes TOKEN the token of the `up` that is going to run in the folder."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_by_rename(folder / "token", f"{TOKEN}\n".encode())


def cluster_key(folder: Path) -> Path:
    """A key file for the replicas of a test."""
    path = folder / "cluster.key"
    folder.mkdir(parents=True, exist_ok=True)
    write_by_rename(path, b"k" * SECRET_BYTES)
    return path


def token_channel(endpoint: str, ca_file: str = "") -> grpc.aio.Channel:
    """A channel whose stubs send TOKEN with every call."""
    return cast(grpc.aio.Channel, _TokenChannel(transport.opener_for(ca_file).open(endpoint)))


class _TokenChannel:
    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    def __getattr__(self, kind: str) -> Any:
        """unary_unary and its like, as generated stubs ask for them."""
        make = getattr(self._channel, kind)
        return lambda *given, **named: partial(make(*given, **named), metadata=METADATA)

    async def close(self) -> None:
        await self._channel.close()

    async def __aenter__(self) -> Any:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()
