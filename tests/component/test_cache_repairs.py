"""What a watch got wrong is found and repaired, and poison hurts only itself."""

from __future__ import annotations

import pytest
from aetcd import rpc

from controlplane.cache.reflector import Cache, enter
from controlplane.store import keys
from controlplane.store.transaction import Value
from controlplane.store.watch import Change
from tests.builders import a_fulfilment, a_target, an_order
from tests.component.leader_stage import PATIENCE_SECONDS, Replica
from tests.component.test_cache_follows import assert_equals_a_list

A, B, C = (keys.config("jobs", name) for name in "abc")


def tamper(cache: Cache, key: str, value: Value | None) -> None:
    """As if the watch had told something wrong, or not told it."""
    enter(cache._trees, Change(key, cache.revision, value))
    cache._snapshot = None


async def test_a_check_of_a_sound_cache_finds_nothing(replica: Replica) -> None:
    await replica.write({A: b"1", B: b"2"})
    assert await replica.cache.check() == 0
    assert replica.cache.repaired == 0


async def test_what_the_watch_missed_invented_or_kept_is_repaired_told_and_counted(replica: Replica) -> None:
    await replica.write({A: b"old", B: b"1"})
    old = await replica.store.get(A)
    await replica.write({A: b"new"})
    tamper(replica.cache, A, old)
    tamper(replica.cache, B, None)
    tamper(replica.cache, C, Value(C, b"never was", 2, 2, 0))
    told: dict[str, bytes | None] = {}
    replica.cache.subscribe(
        lambda deltas, _revision: told.update({d.parts[0]: d.new.stored.value if d.new else None for d in deltas})
    )
    assert await replica.cache.check() == 3
    assert told == {"a": b"new", "b": b"1", "c": None}
    assert replica.cache.repaired == 3
    await assert_equals_a_list(replica)


async def put_raw(replica: Replica, key: str, value: bytes) -> int:
    """As etcdctl does, without our limits."""
    request = rpc.PutRequest(key=key.encode(), value=value)
    answer = await replica.store.channels.write(lambda channel, left: rpc.KVStub(channel).Put(request, timeout=left))
    return int(answer.header.revision)


POISON = {
    "bad JSON": b"{",
    "no text": b"\xff\xfe",
    "wrong types": b'{"kind":"Order","id":7}',
    "another kind": b'{"kind":"Job","name":"x"}',
    "huge": b"x" * 1_400_000,
    "deep": b"[" * 200_000,
}


@pytest.mark.parametrize("name", POISON)
async def test_poison_in_any_tree_is_counted_and_everything_else_goes_on(replica: Replica, name: str) -> None:
    order = an_order().of(2).jobs(cpu=1).build()
    one = a_fulfilment(order.id).task(0)
    poisoned = {
        keys.order("01ARYZ6S41TSV4RRFFQ69G5FAV"),
        keys.desired("t1", "x"),
        keys.ended(order.id, "x"),
        keys.order_status(order.id),
        keys.observed("t1", one.identity),
        keys.claim("x"),
        keys.config("targets", "x"),
        keys.SETTINGS,
    }
    await replica.write({keys.order(order.id): order, keys.desired("t1", one.identity): one.build()})
    revision = 0
    for key in (*poisoned, "/controlplane/nonsense"):
        revision = await put_raw(replica, key, POISON[name])
    await replica.cache.reached(revision, PATIENCE_SECONDS)
    assert {f"{keys.ROOT}{short}" for short in replica.ledgers.poisoned} == poisoned
    await replica.write({keys.config("targets", "t1"): a_target("t1", cpu=1)})
    other = an_order().build()
    await replica.write({keys.order(other.id): other})
    assert set(replica.ledgers.orders) == {order.id, other.id}
    await assert_equals_a_list(replica)
