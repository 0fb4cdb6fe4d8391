"""The first credentials of a plane: made in files and written straight to etcd, by whoever holds etcd's credentials.

`up` makes a token for the user who runs it, and credentials for its joblets. `controlplane bootstrap` makes the first
administrator of a plane that `up` does not run. `python -m controlplane.standalone.first_access FOLDER URL` records the
token of a folder of `up` in its etcd, as a child of the supervisor, which must not use gRPC.
"""

from __future__ import annotations

import asyncio
import getpass
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from controlplane.aio.clock import Clock, SystemClock, chance, wall_milliseconds
from controlplane.aio.files import write_by_rename
from controlplane.cluster_key import read_cluster_key
from controlplane.model import times
from controlplane.model.access import (
    SECRET_BYTES,
    Binding,
    Role,
    Token,
    administrators,
    looks_like_token,
    token_digest,
    token_text,
)
from controlplane.model.errors import AlreadyExists, Broken, ControlPlaneError, Invalid
from controlplane.model.identity import Mint
from controlplane.standalone import folder_tls
from controlplane.standalone.layout import Layout
from controlplane.store import codec, keys, transaction
from controlplane.store.channel import EtcdOptions
from controlplane.store.keys import Tree
from controlplane.store.kv import Store

S = TypeVar("S", bound=msgspec.Struct)

_OWNER_ONLY = 0o077


def make_token_file(path: Path) -> None:
    """Creates the file with a new token, unless there is one; Invalid for a file that others could read or wrote."""
    if not path.exists():
        write_by_rename(path, f"{token_text(chance(SECRET_BYTES))}\n".encode())
        return
    status = path.stat()
    if status.st_mode & _OWNER_ONLY or status.st_uid != os.geteuid():
        raise Invalid("data-dir", f"{path} must belong to you and be open to nobody else: chmod 600 {path}")
    if not looks_like_token(path.read_text().strip()):
        raise Invalid("data-dir", f"{path} holds no token; remove it, and a new one is made")


def make_joblet_tokens(layout: Layout, targets: list[str], driver: str) -> None:
    """A credential for each joblet of `up`, in the joblet's folder."""
    key = read_cluster_key(str(layout.cluster_key))
    assert key is not None
    for target in targets:
        layout.joblet_token(target).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        credential = key.joblet_credential(target, driver, owner=getpass.getuser())
        write_by_rename(layout.joblet_token(target), f"{credential}\n".encode())


async def record_token(store: Store, text: str, clock: Clock) -> None:
    """Makes the token an administrator's, unless it is on record; the subject is the user who runs this."""
    digest = token_digest(text)
    if all(token.digest != digest for token in await _stored(store, keys.TOKENS, Token)):
        await _create(store, digest, getpass.getuser(), clock)


async def first_administrator(store: Store, clock: Clock, make: Callable[[int], bytes], *, force: bool) -> str:
    """The text of a new administrator's token; AlreadyExists when there is an administrator, unless forced."""
    now = times.show(clock.wall())
    tokens, bindings = await _stored(store, keys.TOKENS, Token), await _stored(store, keys.BINDINGS, Binding)
    there = [token.id for token, _ in administrators(tokens, bindings, now)]
    if there and not force:
        raise AlreadyExists(
            f"there are tokens of administrators already ({len(there)}, the first is {there[0]}); "
            "ask one of them, or use --force"
        )
    text = token_text(make(SECRET_BYTES))
    await _create(store, token_digest(text), getpass.getuser(), clock)
    return text


async def _stored(store: Store, tree: Tree[S], struct: type[S]) -> list[S]:
    """Those that can be read."""
    objects = []
    async for page in store.pages(tree.prefix):
        for value in page.values:
            try:
                objects.append(codec.read(value, struct))
            except Broken:
                continue
    return objects


async def _create(store: Store, digest: str, subject: str, clock: Clock) -> None:
    token = Token(
        id=Mint(wall_milliseconds, chance).make(),
        subject=subject,
        roles=(Role.ADMIN,),
        digest=digest,
        created=times.show(clock.wall()),
        creator="bootstrap",
    )
    key = f"{keys.TOKENS.prefix}{token.id}"
    await store.commit(transaction.create_item(key, codec.encode(token)))


async def _record(folder: Path, url: str) -> None:
    clock = SystemClock()
    tls = folder_tls.find(Layout(folder))
    files = tls.etcd_files() if tls is not None else ()
    store = Store(EtcdOptions((url,), *files), clock)
    try:
        await record_token(store, Layout(folder).token.read_text().strip(), clock)
    finally:
        await store.close()


def main() -> None:
    try:
        asyncio.run(_record(Path(sys.argv[1]), sys.argv[2]))
    except (ControlPlaneError, OSError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
