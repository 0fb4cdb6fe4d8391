"""A watcher that decodes what it hears and does nothing else: `python -m tests.benchmarks.watcher ETCD PREFIX`."""

from __future__ import annotations

import asyncio
import sys

import msgspec

from controlplane.aio.clock import SystemClock
from controlplane.store.channel import EtcdOptions
from controlplane.store.kv import Store
from controlplane.store.watch import watch


async def main(etcd: str, prefix: str) -> None:
    store = Store(EtcdOptions((etcd,)), SystemClock())
    async for batch in watch(store.channels, prefix, await store.revision() + 1):
        for change in batch.changes:
            if change.value is not None:
                msgspec.json.decode(change.value.value)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
