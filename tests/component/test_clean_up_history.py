"""Old terms and cycles go, the newest stay; on a real etcd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from controlplane.aio.clock import SystemClock
from controlplane.controller_manager.clean_up import KEPT_CYCLES, KEPT_TERMS, CleanUp
from controlplane.controller_manager.runner import Runner
from controlplane.model.leadership import Term
from controlplane.store import keys
from controlplane.store.keys import Tree
from tests.component.leader_stage import Replica, following, lead, running
from tests.etcd import Etcd

_AT_ONCE = 100


async def fill(replica: Replica, key: Callable[[int], str], value: msgspec.Struct | bytes, count: int) -> None:
    for start in range(1, count + 1, _AT_ONCE):
        await replica.write({key(n): value for n in range(start, min(start + _AT_ONCE, count + 1))})


@pytest.mark.parametrize(
    ("tree", "key", "kept"),
    [(keys.TERMS, keys.term, KEPT_TERMS), (keys.CYCLES, lambda n: keys.cycle(7, n), KEPT_CYCLES)],
)
async def test_the_newest_are_kept(etcd: Etcd, tree: Tree[Any], key: Callable[[int], str], kept: int) -> None:
    async with following(etcd.endpoint, Replica) as replica:
        await fill(replica, key, Term(epoch=1, id="old", since=""), kept + 120)
        _, writer = await lead(replica)
        clock = SystemClock()
        cleaning = CleanUp(replica.ledgers, replica.settling(writer), clock)
        async with running(Runner(cleaning, replica.ledgers, clock).run()):
            await replica.until(lambda: sum(1 for _ in replica.cache.snapshot.all(tree)) <= kept)
        left = sorted(entry.stored.key for entry in replica.cache.snapshot.all(tree))
        assert left == [key(n) for n in range(121, kept + 121)]
