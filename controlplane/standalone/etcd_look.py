"""A child process that asks the embedded etcd for its status, because the supervisor must not use gRPC.

`python -m controlplane.standalone.etcd_look URL` prints etcd's revision and the bytes in use, as a line of JSON; with a
revision after the URL, history before that revision is compacted first. Exit code 1, with the reason on stderr, when
etcd does not answer.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress

from controlplane.aio.clock import SystemClock
from controlplane.model.errors import Compacted, ControlPlaneError
from controlplane.store import maintenance
from controlplane.store.channel import EtcdOptions
from controlplane.store.kv import Store


async def look(url: str, compact: int = 0) -> dict[str, int]:
    store = Store(EtcdOptions((url,)), SystemClock())
    try:
        if compact:
            with suppress(Compacted):  # another process compacted already
                await store.compact(compact)
        condition = await maintenance.condition(store.channels)
        return {"revision": condition.revision, "in_use": condition.in_use}
    finally:
        await store.close()


def main() -> None:
    try:
        print(json.dumps(asyncio.run(look(sys.argv[1], *map(int, sys.argv[2:3])))))
    except ControlPlaneError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
