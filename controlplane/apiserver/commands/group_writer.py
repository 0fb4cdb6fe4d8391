"""GroupWriter: writes of many clients in one transaction of etcd.

Each item is nested with its own compares, so a refused item leaves the others alone. Failures are explained for people;
OutcomeUnknown stays OutcomeUnknown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from controlplane.aio.group_commit import GroupCommit
from controlplane.model.errors import ControlPlaneError, Unavailable
from controlplane.store import keys, transaction
from controlplane.store.kv import Store
from controlplane.store.transaction import Item, Outcome

GATHER_SECONDS = 0.02
_NO_SPACE = "space exceeded"
_REPORTS = f"{keys.ROOT}inventory/".encode()


class GroupWriter:
    def __init__(self, store: Store, when_full: Callable[[], None] = lambda: None) -> None:
        """`when_full` is called after a write which etcd refused for want of space."""
        self._store = store
        self._when_full = when_full
        self._groups: GroupCommit[Item, Outcome] = GroupCommit(
            self._flush, transaction.group_size, gather_seconds=GATHER_SECONDS
        )

    async def write(self, item: Item) -> Outcome:
        return await self._groups.submit(item)

    async def write_all(self, items: Sequence[Item]) -> list[Outcome | ControlPlaneError]:
        """Each item's own outcome or error; the items are not atomic together."""
        settled: list[Outcome | ControlPlaneError] = []
        for result in await self._groups.submit_all(items):
            if isinstance(result, Exception) and not isinstance(result, ControlPlaneError):
                raise result
            settled.append(result)
        return settled

    async def drain(self) -> None:
        await self._groups.drain()

    async def _flush(self, items: list[Item]) -> Sequence[Outcome]:
        try:
            if len(items) == 1:
                return [await self._store.commit(items[0])]
            return await self._store.commit_group(items)
        except Unavailable as error:
            if _NO_SPACE in str(error):
                self._when_full()
                if len(items) == 1 and _is_report(items[0]):
                    return await self._store.commit_group(items)
            raise Unavailable(_in_words(str(error))) from None


def _is_report(item: Item) -> bool:
    """Reports of joblets go on in a full etcd, which does not count nested operations: ends of tasks free space."""
    return all(key.startswith(_REPORTS) for key in item.written())


def _in_words(details: str) -> str:
    if _NO_SPACE in details:
        return f"etcd is out of space and takes no writes until it has been compacted and defragmented ({details})"
    return f"etcd cannot be written to ({details})"
