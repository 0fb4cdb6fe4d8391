"""What P6 is judged by: from a decision, however bad, who was placed and who waits where he could have been."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from controlplane.engine.decision import Batch, Decision
from controlplane.model import times
from controlplane.model.order import Order
from controlplane.model.rule import Effect, Rule
from controlplane.model.settings import Quota, Settings
from controlplane.model.target import TargetStatus
from controlplane.replay import Replayed
from controlplane.replay.past_cycles import RepeatedCycle
from controlplane.store import keys
from controlplane.survey.explaining import survey
from controlplane.verify import p6_priority
from controlplane.verify.gathering import replayed_cycles
from tests.builders import NOW, OrderBuilder, a_session, a_target, an_order
from tests.picture import Content, Told

REPLAYED = Replayed(
    cycle=1, epoch=1, revision=1, engine="e", expected="h", got="h", same=True, placed=2, considered=3
)  # fmt: skip
HIGH = an_order().with_priority(90).jobs(cpu=2)


def overtaking(
    high: OrderBuilder, refused: str = "InsufficientCapacity", more: dict[str, Content] | None = None
) -> tuple[Order, RepeatedCycle]:
    """Two tasks of a lower order take the target's only room, and `high` waits."""
    told = Told()
    first, second = high.build(), an_order().with_priority(10).of(2).jobs(cpu=1).build()
    told.write({keys.config("targets", "t1"): replace(a_target("t1", cpu=2), labels={"zone": "a"})})
    told.write({keys.live("t1"): a_session("t1", cpu=2)})
    told.write({keys.target_status("t1"): TargetStatus(target="t1", epoch=1, phase="Ready")})
    told.write({keys.order(first.id): first, keys.order(second.id): second})
    told.write({f"{keys.ROOT}{key}": content for key, content in (more or {}).items()})
    backlog, world = survey(told.ledgers, times.parse(NOW, "now"))
    signature = next(queue.signature for queue in backlog.queues() if queue.priority == 10)
    batch = Batch(second.id, "job-0", signature, False, [0], [2])
    decision = Decision(["t1"], (batch,), 3, {refused: 1})
    return first, RepeatedCycle(REPLAYED, told.ledgers, world, backlog.queues(), decision)


def test_a_task_that_needs_nothing_but_room_is_seen_to_wait() -> None:
    high, again = overtaking(HIGH)
    seen = replayed_cycles.as_evidence(again)
    assert [(one.target, one.count, one.priority) for one in seen.placed] == [("t1", 2, 10)]
    assert [(one.order, one.priority, one.targets) for one in seen.waiting] == [(high.id, 90, frozenset({"t1"}))]
    assert p6_priority.judge([seen]).ok is False


def test_the_same_with_the_priorities_the_other_way_round_is_right() -> None:
    _, again = overtaking(an_order().with_priority(5).jobs(cpu=2))
    assert p6_priority.judge([replayed_cycles.as_evidence(again)]).ok is True


@pytest.mark.parametrize(
    "high",
    [
        an_order().with_priority(90).holding("licence").jobs(cpu=2),
        an_order().with_priority(90).with_drivers("kubernetes").jobs(cpu=2),
        an_order().with_priority(90).strict("t2").jobs(cpu=2),
        an_order().with_priority(90).jobs(cpu=3),
        an_order().with_priority(90).paused().jobs(cpu=2),
    ],
)
def test_a_task_that_could_not_have_been_placed_there_is_not_overtaken(high: OrderBuilder) -> None:
    _, again = overtaking(high)
    assert p6_priority.judge([replayed_cycles.as_evidence(again)]).ok is True


@pytest.mark.parametrize(
    ("key", "content"),
    [
        ("config/rules/night", Rule(name="night", when="true", then=Effect(forbid=True))),
        ("config/settings", Settings(quotas={"*": Quota(live_tasks=2)})),
    ],
)
def test_where_more_than_room_decides_only_the_hash_is_judged(key: str, content: Content) -> None:
    _, again = overtaking(HIGH, more={key: content})
    assert replayed_cycles.as_evidence(again).waiting == ()


def test_where_room_is_kept_for_others_only_the_hash_is_judged() -> None:
    _, again = overtaking(HIGH, refused="Reserved")
    assert replayed_cycles.as_evidence(again).waiting == ()
