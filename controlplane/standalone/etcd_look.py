"""A child process that asks the embedded etcd for its status, because the supervisor must not use gRPC.

`python -m controlplane.standalone.etcd_look URL [REVISION [CA CERT KEY]]` prints etcd's revision and the bytes in use,
as a line of JSON; history before a revision other than 0 is compacted first. Exit code 1, with the reason on stderr,
when etcd does not answer.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress

from controlplane.aio.clock import SystemClock
from controlplane.model.errors import Compacted, ControlPlaneError
from controlplane.standalone.endpoints import PLAIN_ETCD, EtcdFiles
from controlplane.store import maintenance
from controlplane.store.channel import EtcdOptions
from controlplane.store.kv import Store


async def look(url: str, compact: int = 0, tls: EtcdFiles = PLAIN_ETCD) -> dict[str, int]:
    store = Store(EtcdOptions((url,), *tls), SystemClock())
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
        url, compact, *files = (*sys.argv[1:], "0")[: max(2, len(sys.argv) - 1)]
        print(json.dumps(asyncio.run(look(url, int(compact), EtcdFiles(*files)))))
    except ControlPlaneError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
