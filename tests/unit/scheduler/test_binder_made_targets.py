"""Placements on targets that scaling made compare that nothing changed about those; others compare nothing."""

from __future__ import annotations

from msgspec.structs import replace

from controlplane.engine.decision import Placement
from controlplane.engine.signature import signature_of
from controlplane.model.scalepolicy import REMOVE, Made
from controlplane.scheduler.binder import Binder, Stamp
from controlplane.store import keys
from controlplane.store.transaction import Item, absent, mod_is, unchanged_below
from tests.builders import NOW, OrderBuilder, an_identity, an_order
from tests.picture import Told

MADE = Made(id="A", target="farm-1", policy="farm", provider="local", epoch=1, request="A", phase="Up")
KEY = keys.made("farm-1")


class Stage:
    def __init__(self, builder: OrderBuilder, made: Made = MADE) -> None:
        self.told = Told()
        self.order = builder.build()
        self.told.write({keys.order(self.order.id): self.order})
        self.told.write({KEY: made})
        entry = self.told.ledgers.cache.snapshot.get(keys.MADE, "farm-1")
        assert entry is not None
        self.unchanged = mod_is(KEY, entry.revision)
        self.as_decided = mod_is(keys.order(self.order.id), self.told.ledgers.orders[self.order.id].revision)

    def place(self, *counts: tuple[str, int], gang: bool = False) -> list[Item]:
        ledger = self.told.ledgers.orders[self.order.id]
        signature = signature_of(ledger, ledger.resolved.jobs[0].job)
        placements = [Placement(self.order.id, "job-0", target, count, signature, gang) for target, count in counts]
        return list(Binder(self.told.ledgers, an_identity).items(placements, Stamp(7, 3, NOW)))


def test_only_what_goes_to_a_made_target_is_guarded() -> None:
    stage = Stage(an_order().of(40).jobs(cpu=1))
    items = stage.place(("farm-1", 30), ("other", 10))
    guarded = [item for item in items if item.compares != (stage.as_decided,)]
    assert [item.compares for item in guarded] == [(stage.unchanged, stage.as_decided)] * 2
    assert sum(len(item.then) for item in guarded) == 30
    assert all(b"/desired/farm-1/" in operation.key for item in guarded for operation in item.then)
    assert sum(len(item.then) for item in items if item not in guarded) == 10


def test_a_claim_and_its_guard_are_one_item() -> None:
    stage = Stage(an_order().holding("x").jobs(cpu=1))
    (item,) = stage.place(("farm-1", 1))
    assert item.compares == (stage.unchanged, stage.as_decided, absent(keys.claim("x")))


def test_what_is_to_be_removed_cannot_be_placed_on() -> None:
    stage = Stage(an_order().of(2).jobs(cpu=1), replace(MADE, want=REMOVE))
    for gang in (False, True):
        items = stage.place(("farm-1", 1), ("other", 1), gang=gang)
        assert absent(KEY) in [compare for item in items for compare in item.compares]


def test_a_gang_is_guarded_as_a_whole() -> None:
    stage = Stage(an_order().of(2).jobs(cpu=1))
    (item,) = stage.place(("farm-1", 1), ("other", 1), gang=True)
    assert item.compares == (unchanged_below(keys.MADE.prefix, stage.told.ledgers.cache.revision), stage.as_decided)
    (free,) = stage.place(("other", 2), gang=True)
    assert free.compares == (stage.as_decided,)
