"""From placements to transactions."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import msgspec
import pytest

from controlplane.engine.decision import Placement
from controlplane.engine.signature import signature_of
from controlplane.model.cluster import ClusterStatus
from controlplane.model.errors import LimitExceeded
from controlplane.model.fulfilment import Claim, Fulfilment
from controlplane.model.isolation import Casualties
from controlplane.model.job import Constraint, Constraints, Job, Toleration
from controlplane.model.order import Order, ResolvedJob
from controlplane.model.resource import Resource
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

    def place(self, *counts: tuple[str, int], job: str = "job-0", stamp: Stamp = STAMP) -> list[Item]:
        ledger = self.told.ledgers.orders[self.order.id]
        of_job = next(resolved.job for resolved in ledger.resolved.jobs if resolved.job.name == job)
        signature = signature_of(ledger, of_job)
        placements = [Placement(self.order.id, job, target, count, signature) for target, count in counts]
        return list(self.binder.items(placements, stamp))


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


def test_up_to_so_many_tasks_share_a_fulfilment_where_they_are_packed() -> None:
    found = fulfilments(Stage(an_order().packed(5).of(17).jobs(cpu=0.1, memory=2)).place(("a", 12), ("b", 5)))
    assert [(one.target, len(one.tasks)) for one in found] == [("a", 5), ("a", 5), ("a", 2), ("b", 5)]
    assert sorted(task.index for one in found for task in one.tasks) == list(range(17))
    assert [one.requests["cpu"] for one in found] == [0.5, 0.5, 0.2, 0.5]
    assert all(one.requests["memory"] == 2 * len(one.tasks) for one in found)
    assert all(one.jobs["job-0"].requests == {"cpu": 0.1, "memory": 2} for one in found)


def test_tasks_that_need_the_same_unique_resource_never_share_a_fulfilment() -> None:
    stage = Stage(an_order().packed(5).of(4).holding("x").jobs(cpu=1))
    items = stage.place(("a", 1), ("b", 1))
    assert [len(one.tasks) for one in fulfilments(items)] == [1, 1]


def test_a_retry_is_packed_with_others_and_keeps_its_own_attempt() -> None:
    stage = Stage(an_order().packed(3).of(3).jobs(cpu=1))
    first = a_fulfilment(stage.order.id).task(1)
    stage.told.write({keys.ended(stage.order.id, first.identity): first.ended("retry")})
    (found,) = fulfilments(stage.place(("a", 3)))
    assert {(task.index, task.attempt) for task in found.tasks} == {(1, 2), (0, 1), (2, 1)}


def test_a_fulfilment_of_one_task_has_the_bytes_that_it_always_had() -> None:
    stage = Stage(an_order().jobs(cpu=2))
    (item,) = stage.place(("a", 1))
    ((key, value),) = puts(item).items()
    identity, order = key.rsplit("/", 1)[-1], stage.order.id
    assert (
        value
        == (
            f'{{"kind":"Fulfilment","id":"{identity}","epoch":7,"cycle":3,"order":"{order}","target":"a",'
            '"tasks":[{"job":"job-0","index":0,"attempt":1}],"jobs":{"job-0":{"command":["true"],"requests":{"cpu":2}}},'
            f'"requests":{{"cpu":2}},"created":"{NOW}"}}'
        ).encode()
    )


def test_mounted_resources_travel_as_files_and_their_variable_holds_the_path() -> None:
    stage = Stage(an_order().jobs(cpu=1))
    scene = Resource(name="scene", key="SCENE", value="{}", mount="/etc/scene.json")
    stage.told.write({keys.order(stage.order.id): msgspec.structs.replace(stage.order, resources=(scene,))})
    (found,) = fulfilments(stage.place(("a", 1)))
    spec = found.jobs["job-0"]
    assert (spec.environment, spec.files) == ({"SCENE": "/etc/scene.json"}, {"/etc/scene.json": "{}"})


def test_what_is_said_about_nodes_goes_to_the_cluster_and_what_is_said_about_targets_does_not() -> None:
    hard = (Constraint(label="zone", values=("a",)), Constraint(label="node/disk", op="Exists"))
    job = Job(
        name="job-0",
        image="i",
        constraints=Constraints(hard=hard),
        tolerations=(Toleration(key="gpu", op="Exists"),),
        image_pull_secrets=("film",),
    )
    stage = Stage(replace(an_order(), resolved=(ResolvedJob(job=job),)))
    (found,) = fulfilments(stage.place(("a", 1)))
    spec = found.jobs["job-0"]
    assert spec.nodes == Constraints(hard=(Constraint(label="disk", op="Exists"),))
    assert (spec.tolerations, spec.image_pull_secrets) == (job.tolerations, ("film",))
    assert signature_of(stage.told.ledgers.orders[stage.order.id], job).hard == hard[:1]


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
    free = [transaction.absent(keys.claim("x")), transaction.absent(keys.claim("y"))]
    assert [compare for compare in item.compares if b"/claims/" in compare] == free


def test_a_placement_compares_once_that_its_order_is_what_it_was_decided_on() -> None:
    stage = Stage(an_order().of(60).jobs(cpu=1))
    other = an_order().build()
    stage.told.write({keys.order(other.id): other})
    signature = signature_of(
        stage.told.ledgers.orders[other.id], stage.told.ledgers.orders[other.id].resolved.jobs[0].job
    )
    placements = [
        Placement(stage.order.id, "job-0", "a", 60, signature),
        Placement(other.id, "job-0", "a", 1, signature),
    ]
    first, second, last = stage.binder.items(placements, STAMP)
    as_decided = transaction.mod_is(keys.order(stage.order.id), 2)
    assert first.compares == second.compares == (as_decided,)
    assert last.compares == (as_decided, transaction.mod_is(keys.order(other.id), 3))


def test_orders_that_were_refused_together_travel_alone_in_the_next_cycle_and_together_again_after_it() -> None:
    stage = Stage(an_order().of(3).jobs(cpu=1))
    others = [an_order().build() for _ in range(3)]
    stage.told.write({keys.order(other.id): other for other in others})
    ledger = stage.told.ledgers.orders[others[0].id]
    signature = signature_of(ledger, ledger.resolved.jobs[0].job)
    placements = [Placement(other.id, "job-0", "a", 1, signature) for other in others]
    placements.append(Placement(stage.order.id, "job-0", "a", 3, signature))
    (together,) = stage.binder.items(placements, STAMP)
    stage.binder.refused(together)
    apart = list(stage.binder.items(placements, STAMP))
    assert sorted(len(item.then) for item in apart) == [1, 1, 1, 3]
    assert all(len(item.compares) == 1 for item in apart)
    for item in apart:
        stage.binder.refused(item)
    assert len(list(stage.binder.items(placements, STAMP))) == 1


def test_an_order_that_changed_since_the_cycle_was_decided_is_left_to_the_next() -> None:
    stage = Stage(an_order().jobs(cpu=1))
    decided = replace(STAMP, revision=stage.told.history.revision)
    assert len(stage.place(("a", 1), stamp=decided)) == 1
    stage.told.write({keys.order(stage.order.id): msgspec.structs.replace(stage.order, priority=7)})
    assert stage.place(("a", 1), stamp=decided) == []


@pytest.mark.parametrize("wish", [{"cancel": True}, {"paused": True}])
def test_an_order_that_wants_no_more_room_is_not_placed_whenever_that_was_decided(wish: dict[str, bool]) -> None:
    stage = Stage(an_order().jobs(cpu=1))
    stage.told.write({keys.order(stage.order.id): msgspec.structs.replace(stage.order, **wish)})
    assert stage.place(("a", 1)) == []


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


def too_large(count: int = 1) -> OrderBuilder:
    return an_order().of(count).with_env(BIG="x" * 1_100_000).jobs(cpu=1)


def test_an_order_whose_fulfilment_is_too_large_is_left_out_with_a_reason_and_the_others_are_placed() -> None:
    stage, ward = Stage(an_order().of(3).jobs(cpu=1)), Casualties()
    large = too_large().build()
    stage.told.write({keys.order(large.id): large})
    placements = []
    for order in (large, stage.order):
        ledger = stage.told.ledgers.orders[order.id]
        signature = signature_of(ledger, ledger.resolved.jobs[0].job)
        placements.append(Placement(order.id, "job-0", "a", order.tasks_total, signature))
    items = list(Binder(stage.told.ledgers, an_identity, ward).items(placements, STAMP))
    assert {one.order for one in fulfilments(items)} == {stage.order.id}
    assert list(ward.errors) == [("Order", large.id)]
    assert isinstance(ward.errors["Order", large.id], LimitExceeded)


def test_nothing_of_a_gang_that_does_not_fit_into_a_transaction_is_placed() -> None:
    stage, ward = Stage(an_order().of(100).with_env(BIG="x" * 30_000).jobs(cpu=1)), Casualties()
    ledger = stage.told.ledgers.orders[stage.order.id]
    signature = signature_of(ledger, ledger.resolved.jobs[0].job)
    placements = [Placement(stage.order.id, "job-0", target, 50, signature, gang=True) for target in ("a", "b")]
    assert list(Binder(stage.told.ledgers, an_identity, ward).items(placements, STAMP)) == []
    assert list(ward.errors) == [("Order", stage.order.id)]


def test_an_item_is_closed_before_it_grows_above_the_bound() -> None:
    """Small ones first, then one that is as large as an item may be: together they would be too large."""
    stage = Stage(an_order().of(20).with_env(SOME="x" * 12_000).jobs(cpu=1).with_env(BIG="x" * 900_000).of(1).jobs())
    ledger = stage.told.ledgers.orders[stage.order.id]
    placements = [
        Placement(stage.order.id, part.job.name, "a", part.count, signature_of(ledger, part.job))
        for part in ledger.resolved.jobs
    ]
    items = list(Binder(stage.told.ledgers, an_identity).items(placements, STAMP))
    assert len(fulfilments(items)) == 21
    assert all(item.size() <= MAX_BYTES for item in items)


def test_an_item_names_the_orders_that_it_is_about() -> None:
    stage = Stage(an_order().of(30).jobs(cpu=1))
    assert {item.about for item in stage.place(("a", 30))} == {(stage.order.id,)}
