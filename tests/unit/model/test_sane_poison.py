"""Well-formed poison in every field of every struct: through codec, ledgers, world, cycle, events and views."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import msgspec
import pytest

from controlplane.aio.clock import SystemClock
from controlplane.apiserver.edge import object_messages as messages
from controlplane.apiserver.edge.object_messages import ObjectMessages
from controlplane.apiserver.edge.order_messages import OrderMessages
from controlplane.apiserver.queries.views.event_view import EventView
from controlplane.apiserver.queries.views.fulfilment_view import FulfilmentView
from controlplane.apiserver.queries.views.named_view import NamedView, ScalePolicyView, TargetView
from controlplane.apiserver.queries.views.object_view import Filter, ObjectView, sound
from controlplane.apiserver.queries.views.order_view import OrderView
from controlplane.apiserver.queries.views.owner_index import OrderIndex, OwnerIndex
from controlplane.apiserver.queries.views.term_view import CycleView, TermView
from controlplane.apiserver.queries.views.waiting_reasons import Reasons
from controlplane.cache.effective_settings import settings_of
from controlplane.cache.ended_orders import EndedOrderCounter
from controlplane.cache.ledgers import Ledgers
from controlplane.cache.observer import Observer
from controlplane.cache.snapshot import Entry
from controlplane.engine.decide import decide
from controlplane.model.errors import Broken
from controlplane.model.job import Job
from controlplane.model.packet import Packet
from controlplane.model.resource import Resource
from controlplane.model.rule import Rule
from controlplane.model.scalepolicy import Made
from controlplane.model.secret import Secret
from controlplane.model.target import TargetStatus
from controlplane.model.totals import Totals
from controlplane.store import codec, keys
from controlplane.store.transaction import Value
from controlplane.survey.explaining import survey
from controlplane.wire import convert
from controlplane.wire.v1 import cluster_pb2, jobs_pb2, packets_pb2, resources_pb2, rules_pb2, secrets_pb2
from tests import poison
from tests.builders import A_MOMENT, a_session, a_target, an_order
from tests.picture import Told
from tests.poison import Poison

FIELDS: dict[str, dict[str, list[Poison]]] = defaultdict(dict)
for _field, _found in poison.everything():
    FIELDS[_field.partition(".")[0]][_field] = _found
# After a restore nothing is placed until joblets have reported: that is what this field is for.
_HOLDS_EVERYTHING = {"ClusterStatus.restoring"}
MINE = "mine-only"


class Plane:
    """A target and an order that have nothing to do with any poison, and all that reads what is beside them."""

    def __init__(self) -> None:
        self.told = Told()
        self.observer = Observer(self.told.ledgers)
        self.processed = EndedOrderCounter(self.told.picture)
        self.order = an_order().jobs(mine=1).strict(MINE).build()
        self.told.write(
            {
                keys.config("targets", MINE): a_target(MINE, mine=1),
                keys.live(MINE): a_session(MINE, mine=1),
                keys.target_status(MINE): TargetStatus(target=MINE, epoch=1, phase="Ready"),
                keys.config("targets", poison.TARGET): a_target(poison.TARGET, cpu=4),
                keys.order(self.order.id): self.order,
            }
        )

    def places(self, ledgers: Ledgers) -> bool:
        backlog, world = survey(ledgers, A_MOMENT)
        decision = decide(world, backlog.queues())
        return any(batch.order == self.order.id for batch in decision.batches)

    def shows(self, ledgers: Ledgers) -> set[str]:
        """Every list to its end; what it names of our own."""
        snapshot = ledgers.cache.snapshot
        index = OrderIndex(ledgers.cache)  # type: ignore[arg-type]
        events = OwnerIndex(ledgers.cache, keys.EVENTS)  # type: ignore[arg-type]
        orders = OrderView(ledgers, index, Reasons(ledgers, SystemClock()))
        views: list[tuple[ObjectView[Any], ObjectMessages[Any, Any]]] = [
            (orders, OrderMessages(ledgers)), (TargetView(), messages.TARGETS),
            (ScalePolicyView(), messages.SCALE_POLICIES), (NamedView(Secret), messages.named(secrets_pb2.Secret)),
            (EventView(events), messages.EVENTS), (FulfilmentView(ledgers, index), messages.FULFILMENTS),
            (CycleView(), messages.CYCLES), (TermView(), messages.TERMS),
            (NamedView(Job), messages.named(jobs_pb2.Job)), (NamedView(Packet), messages.named(packets_pb2.Packet)),
            (NamedView(Resource), messages.named(resources_pb2.Resource)),
            (NamedView(Rule), messages.named(rules_pb2.Rule)),
        ]  # fmt: skip
        shown: set[str] = set()
        for view, encoder in views:
            for key in view.keys(snapshot, Filter(), ""):
                encoder.bare(key).SerializeToString()
                seen = sound(view, snapshot, key)
                if seen is None:
                    continue
                message = encoder.encoded(key, orders.explained(seen.item) if view is orders else seen.item)
                if message is not None:
                    convert.to_plain(message)
                    message.SerializeToString()
                    shown.add(key)
        return shown


@pytest.mark.parametrize("struct", FIELDS)
def test_poison_in_any_field_hurts_nobody_else(struct: str) -> None:
    for field, found in FIELDS[struct].items():
        for some in [[one] for one in found] if struct in _SINGLE else [found]:
            plane = Plane()
            for one in some:
                plane.told.write({one.key: one.value})
            for ledgers in (plane.told.ledgers, plane.told.rebuilt()):
                assert field in _HOLDS_EVERYTHING or plane.places(ledgers), f"nothing is placed beside {field}"
                assert {plane.order.id, MINE} <= plane.shows(ledgers), f"a list is not whole beside {field}"


_SINGLE = {single.struct.__name__ for single in keys.SINGLES}


def test_every_tree_has_a_struct_and_so_its_poison() -> None:
    known = {*poison.TREES, *(single.place[0] for single in keys.SINGLES)}
    assert set(keys.TREES) == known


def test_a_sample_of_every_struct_is_sane() -> None:
    """Else its poison would be refused for another reason than the one that it is made for."""
    plane = Plane()
    for tree in poison.TREES:
        sample = poison._standing(tree, poison.a_sample(tree.struct), "sane")
        plane.told.write({sample.key: sample.value})
    assert dict(plane.told.ledgers.poison) == {}


@pytest.mark.parametrize("ends", [10**30, 2**63, -1])
def test_totals_count_on_when_the_poison_is_put_right(ends: int) -> None:
    plane = Plane()
    plane.told.write({keys.TOTALS: b'{"kind":"Totals","epoch":1,"orders":{"total":%d}}' % ends})
    assert plane.processed.ends.orders.total == 0
    plane.told.write({keys.TOTALS: Totals(epoch=1, revision=1, orders=Totals(epoch=1).orders)})
    convert.to_wire(Totals(epoch=1, orders=plane.processed.ends.orders), cluster_pb2.Totals)


def test_totals_of_a_revision_to_come_say_nothing() -> None:
    plane = Plane()
    plane.told.write({keys.TOTALS: b'{"kind":"Totals","epoch":1,"revision":%d,"orders":{"total":9}}' % 2**62})
    assert plane.processed.ends.orders.total == 0


@pytest.mark.parametrize(
    ("stored", "field", "kept"),
    [
        ({"clean_up": 1e300}, "clean_up", 3600),
        ({"failure_memory": 1e300}, "failure_memory", 600),
        ({"history": 1e300}, "history", 3600),
        ({"event_ttl": 1e300}, "event_ttl", 3600),
        ({"joblet_lease": 1e300}, "joblet_lease", 6),
        ({"cycle_budget": 0}, "cycle_budget", 5000),
        ({"cycle_budget": -5}, "cycle_budget", 5000),
        ({"default_requests": {"cpu": -1}}, "default_requests", {"cpu": 1}),
        ({"quotas": {"*": {"live_tasks": -1}}}, "quotas", {}),
        ({"heartbeat": 0}, "heartbeat", 1),
        ({"clean_up": "x"}, "clean_up", 3600),
    ],
)
def test_an_insane_setting_is_the_default_and_the_others_hold(
    stored: dict[str, object], field: str, kept: object
) -> None:
    plane = Plane()
    plane.told.write({keys.SETTINGS: msgspec.json.encode({"kind": "Settings", "kill_grace": 3, **stored})})
    settings = settings_of(plane.told.picture.snapshot)
    assert (getattr(settings, field), settings.kill_grace) == (kept, 3)
    assert list(plane.told.ledgers.poison) == ["config/settings"]
    assert field in plane.told.ledgers.poison["config/settings"]


def test_what_is_under_another_key_than_its_own_is_named_with_its_rule() -> None:
    made = poison.a_sample(Made)
    made["target"] = "../../../elsewhere"
    plane = Plane()
    plane.told.write({keys.made("x"): msgspec.json.encode(made)})
    assert list(plane.told.ledgers.poison) == ["status/made/x"]
    entry = plane.told.picture.snapshot.get(keys.MADE, "x")
    assert entry is not None
    assert entry.readable() is None


def test_an_order_cannot_pass_off_its_content_as_another_orders() -> None:
    plane = Plane()
    honest = an_order().with_env(WHO="honest").jobs(cpu=1).build()
    rogue = an_order().with_env(WHO="rogue").jobs(cpu=1).build()
    plane.told.write({keys.order(rogue.id): msgspec.structs.replace(rogue, resolved_digest=honest.resolved_digest)})
    plane.told.write({keys.order(honest.id): honest})
    ledgers = plane.told.ledgers
    assert ledgers.orders[honest.id].resolved.jobs[0].job.env == {"WHO": "honest"}
    assert ledgers.orders[rogue.id].resolved.jobs[0].job.env == {"WHO": "rogue"}
    assert ledgers.orders[rogue.id].order.resolved_digest != ledgers.orders[honest.id].order.resolved_digest


def test_poison_is_read_back_from_a_key_by_its_own_place_only() -> None:
    value = Value(keys.config("jobs", "a"), b'{"kind":"Job","name":"b"}', 1, 1, 0)
    with pytest.raises(Broken, match="belongs under config/jobs/b"):
        codec.read(value, Job)


def test_poison_is_decoded_once_however_often_somebody_looks() -> None:
    """Controllers look at every intent on every change: poison must not cost them more than what is sane."""
    value = Value(keys.made("x"), b'{"kind":"Made","target":"..","id":"' + b"x" * 100_000 + b'"}', 1, 1, 0)
    entry = Entry[Made](keys.MADE, ("x",), value)
    assert entry.readable() is None
    with pytest.raises(Broken) as first:
        entry.read()
    # What it was decoded from is gone, and the answer stays.
    entry.stored = Value(keys.made("x"), b"", 1, 1, 0)
    with pytest.raises(Broken) as again:
        entry.object()
    assert str(again.value) == str(first.value)
