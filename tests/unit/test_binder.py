"""From placements to transactions."""

from __future__ import annotations

from collections import Counter

from controlplane.engine.decide import Placement
from controlplane.engine.signature import signature_of
from controlplane.model.cluster import ClusterStatus
from controlplane.model.fulfilment import Claim, Fulfilment
from controlplane.model.order import Order
from controlplane.scheduler.binder import Binder, Stamp
from controlplane.store import codec, keys, transaction
from controlplane.store.transaction import MAX_BYTES, Item
from tests.builders import NOW, OrderBuilder, a_fulfilment, an_identity, an_order
from tests.picture import Told

STAMP = Stamp(epoch=7, cycle=3, now=NOW)


def puts(item: Item) -> dict[str, bytes]:
    return {operation.key.decode(): operation.value for operation in item.then if operation.value is not None}


class Stage:
    def __init__(self, builder: OrderBuilder) -> None:
        self.told = Told()
        self.order: Order = builder.build()
        self.told.write({keys.order(self.order.id): self.order})
        self.binder = Binder(self.told.ledgers, an_identity)

    def place(self, *counts: tuple[str, int], job: str = "job-0") -> list[Item]:
        ledger = self.told.ledgers.orders[self.order.id]
        of_job = next(resolved.job for resolved in ledger.resolved.jobs if resolved.job.name == job)
        signature = signature_of(ledger, of_job)
        placements = [Placement(self.order.id, job, target, count, signature) for target, count in counts]
        return list(self.binder.items(placements, STAMP))


def fulfilments(items: list[Item]) -> list[Fulfilment]:
    values = {key: value for item in items for key, value in puts(item).items()}
    found = [
        codec.decode(value, Fulfilment) for key, value in values.items() if key.startswith("/controlplane/desired/")
    ]
    assert all(keys.desired(one.target, one.id) in values for one in found)
    return found


def test_every_task_gets_one_fulfilment_on_the_target_it_was_placed_on() -> None:
    found = fulfilments(Stage(an_order().of(60).jobs(cpu=2)).place(("a", 40), ("b", 20)))
    assert Counter(one.target for one in found) == {"a": 40, "b": 20}
    assert sorted(one.tasks[0].index for one in found) == list(range(60))
    assert {(one.epoch, one.cycle, one.created) for one in found} == {(7, 3, NOW)}
    assert all(one.requests == {"cpu": 2} and len(one.tasks) == 1 for one in found)


def test_a_retry_is_placed_as_the_next_attempt() -> None:
    stage = Stage(an_order().of(2).jobs(cpu=1))
    first = a_fulfilment(stage.order.id).task(1)
    stage.told.write({keys.ended(stage.order.id, first.identity): first.ended("retry")})
    (found,) = fulfilments(stage.place(("a", 1)))
    assert (found.tasks[0].index, found.tasks[0].attempt) == (1, 2)


def test_a_claim_is_made_in_the_item_of_its_placement_and_only_while_nobody_holds_it() -> None:
    (item,) = Stage(an_order().holding("x", "y").jobs(cpu=1)).place(("a", 1))
    (found,) = fulfilments([item])
    claims = [codec.decode(value, Claim) for key, value in puts(item).items() if "/claims/" in key]
    assert {claim.resource for claim in claims} == {"x", "y"} == set(found.holds)
    assert {(claim.fulfilment, claim.order, claim.target, claim.epoch) for claim in claims} == {
        (found.id, found.order, "a", 7)
    }
    assert list(item.compares) == [transaction.absent(keys.claim("x")), transaction.absent(keys.claim("y"))]


def test_a_task_gets_its_env_and_over_it_the_resources_that_it_names() -> None:
    stage = Stage(an_order().with_env(A="1", licence="from env").holding("licence").jobs(cpu=1))
    (found,) = fulfilments(stage.place(("a", 1)))
    assert found.jobs["job-0"].environment == {"A": "1", "licence": "1"}


def test_no_item_is_too_big_for_a_transaction_however_big_the_job_is() -> None:
    stage = Stage(an_order().of(30).with_env(BIG="x" * 100_000).jobs(cpu=1))
    items = stage.place(("a", 30))
    assert len(fulfilments(items)) == 30
    assert all(item.size() < MAX_BYTES for item in items)


def test_after_a_restore_attempts_are_numbered_above_all_that_joblets_know() -> None:
    stage = Stage(an_order().of(2).jobs(cpu=1))
    ended = a_fulfilment(stage.order.id).task(1, attempt=5)
    cluster = ClusterStatus(epoch=1, cluster_id="c", since=NOW, restored=1, attempt_floor=4)
    stage.told.write({keys.CLUSTER_STATUS: cluster, keys.ended(stage.order.id, ended.identity): ended.ended("retry")})
    found = fulfilments(stage.place(("a", 2)))
    assert {(one.tasks[0].index, one.tasks[0].attempt) for one in found} == {(0, 5), (1, 6)}
