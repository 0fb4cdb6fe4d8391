"""The way back in time: what a replica knew at a revision is known again from etcd's history."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from controlplane.cache.past import ledgers_at, ledgers_of, ledgers_through, snapshot_at
from controlplane.cache.snapshot import Snapshot
from controlplane.model.errors import Compacted
from controlplane.store import keys
from tests.builders import a_fulfilment, an_order
from tests.component.leader_stage import Replica
from tests.unit.cache.test_ledgers import Chronicle, shape


def shown(snapshot: Snapshot) -> dict[str, tuple[int, bytes]]:
    return {entry.stored.key: (entry.revision, entry.stored.value) for entry in snapshot.everything()}


async def test_ledgers_of_a_past_revision_equal_those_that_were_live_then(replica: Replica) -> None:
    chronicle = Chronicle(lambda most: random.randrange(most) if most else 0)
    random = Random(3)
    remembered: dict[int, tuple[dict[str, Any], dict[str, tuple[int, bytes]]]] = {}
    for at in range(240):
        revision = await replica.write(chronicle.write())
        if at % 8 == 0:
            remembered[revision] = shape(replica.ledgers), shown(replica.cache.snapshot)
    assert any(order["live"] for ledgers, _ in remembered.values() for order in ledgers["orders"].values())
    for revision, (ledgers, world) in remembered.items():
        past = await ledgers_at(replica.store, revision)
        assert past.cache.revision == revision
        assert shown(past.cache.snapshot) == world
        assert shape(past) == ledgers
    moments = sorted(remembered)[:-1]
    moving = [
        (past.cache.revision, shape(past), shown(past.cache.snapshot))
        async for past in ledgers_through(replica.store, moments)
    ]
    assert moving == [(moment, *remembered[moment]) for moment in moments]


async def test_a_snapshot_at_hand_gives_the_same_ledgers_without_asking_etcd(replica: Replica) -> None:
    order = an_order().of(3).jobs(cpu=2).build()
    placed = a_fulfilment(order.id).on("eu").task(0).holding("licence")
    await replica.write({keys.order(order.id): order, keys.desired("eu", placed.identity): placed.build()})
    snapshot, then = replica.cache.snapshot, shape(replica.ledgers)
    await replica.write({keys.desired("eu", placed.identity): None, keys.order(order.id): None})
    assert shape(ledgers_of(snapshot)) == then != shape(replica.ledgers)


async def test_what_cannot_be_read_is_stepped_over_in_the_past_too(replica: Replica) -> None:
    order = an_order().build()
    revision = await replica.write(
        {keys.order(order.id): order, keys.desired("eu", "junk"): b"{", "/controlplane/x": b"1"}
    )
    past = await ledgers_at(replica.store, revision)
    assert set(past.orders) == {order.id}
    assert past.poisoned == replica.ledgers.poisoned == {"desired/eu/junk"}


async def test_a_compacted_revision_is_said_to_be_gone(replica: Replica) -> None:
    revision = await replica.write({keys.config("jobs", "a"): b"1"})
    later = await replica.write({keys.config("jobs", "a"): b"2"})
    await replica.store.compact(later)
    with pytest.raises(Compacted):
        await snapshot_at(replica.store, revision)
    assert (await snapshot_at(replica.store, later)).revision == later
