"""Same input, same output, byte for byte: whatever the order of hearing about it, and however it was kept."""

from __future__ import annotations

from random import Random

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from controlplane.cache.ledgers import Ledgers, Touched
from controlplane.engine.decide import decide
from controlplane.engine.decision import Decision
from controlplane.model.target import TargetStatus
from controlplane.store import keys
from controlplane.survey.backlog import Backlog
from controlplane.survey.explaining import explain, survey
from controlplane.survey.world_builder import WorldBuilder
from tests.builders import a_fulfilment, a_session, a_target, an_order
from tests.picture import Told
from tests.scenes import examples, scenes
from tests.worlds import NOW, Scene


def decided(ledgers: Ledgers, random: Random | None = None) -> Decision:
    backlog, world = survey(ledgers, NOW)
    queues = backlog.queues()
    if random is not None:
        random.shuffle(queues)
    return decide(world, queues)


class Follower:
    """What a scheduler keeps from cycle to cycle."""

    def __init__(self, ledgers: Ledgers) -> None:
        self._ledgers = ledgers
        self._builder = WorldBuilder(ledgers)
        self._backlog = Backlog(ledgers)
        self._touched: set[str] = set()
        ledgers.subscribe(self._hear)

    def _hear(self, touched: Touched) -> None:
        self._touched |= touched.orders

    def decide(self) -> Decision:
        touched, self._touched = self._touched, set()
        self._backlog.update(touched, NOW, self._builder.book(self._ledgers.cache.snapshot))
        apart, preempting = self._backlog.apart, self._backlog.preempting
        return decide(self._builder.build(NOW, spread_orders=apart, preempting=preempting), self._backlog.queues())


@examples(100)
@given(scenes(preempts=True), st.randoms(use_true_random=False))
def test_a_world_is_decided_the_same_again_in_whatever_order_queues_come(scene: Scene, random: Random) -> None:
    ledgers = scene.told().ledgers
    first = decided(ledgers)
    assert decided(ledgers) == first
    assert decided(ledgers, random).digest() == first.digest()


@examples(100)
@given(scenes(preempts=True), st.randoms(use_true_random=False))
def test_who_heard_of_everything_bit_by_bit_decides_like_who_hears_it_at_once(scene: Scene, random: Random) -> None:
    contents = list(scene.contents().items())
    random.shuffle(contents)
    told = Told()
    follower = Follower(told.ledgers)
    for key, content in contents:
        told.write({key: content})
        if random.random() < 0.2:
            follower.decide()
    digest = follower.decide().digest()
    assert digest == decided(told.rebuilt()).digest()
    assert digest == decided(scene.told().ledgers).digest()


@examples(25)
@given(scenes(preempts=True))
def test_an_explanation_is_the_same_again(scene: Scene) -> None:
    told = scene.told()
    again = told.rebuilt()
    for identity in told.ledgers.orders:
        assert explain(told.ledgers, identity, NOW) == explain(again, identity, NOW)


def test_what_came_and_went_leaves_no_trace_in_an_owners_share() -> None:
    """Tenths have no exact place among binary numbers: added and taken away again, they must not leave a bit behind."""
    told = Told()
    told.write(
        {
            keys.config("targets", "t1"): a_target("t1", cpu=1.4),
            keys.target_status("t1"): TargetStatus(target="t1", epoch=1, phase="Ready"),
            keys.live("t1"): a_session("t1", cpu=1.4),
        }
    )
    used = {"ann": (0.1, 0.2, 0.3), "bob": (0.2,)}
    for owner, amounts in used.items():
        for amount in amounts:
            placed = msgspec.structs.replace(a_fulfilment("gone").requesting(cpu=amount).task(0).build(), owner=owner)
            told.write({keys.desired("t1", placed.id): placed})
    for placed in list(told.ledgers.targets["t1"].fulfilments.values()):
        if placed.requests["cpu"] != 0.2:
            told.write({keys.desired("t1", placed.id): None})
    for owner in used:
        order = msgspec.structs.replace(an_order().jobs(cpu=1).build(), owner=owner)
        told.write({keys.order(order.id): order})
    followed = decided(told.ledgers)
    assert followed.placed() == 1
    assert followed.placements == decided(told.rebuilt()).placements
