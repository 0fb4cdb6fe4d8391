"""P10 over generated worlds: every waiting task has exactly one reason, and every target a sentence."""

from __future__ import annotations

from hypothesis import given

from controlplane.engine import filtering, reason_codes, reasons
from controlplane.engine.decide import decide
from controlplane.engine.room import Room
from controlplane.model import times
from controlplane.model.explanation import GroupExplanation
from controlplane.model.task import TaskState
from controlplane.survey.explaining import explain, survey
from tests.scenes import examples, scenes
from tests.worlds import NOW, Scene

# Reasons that no target has a say in.
OF_THE_ORDER = {reason_codes.PAUSED, reason_codes.NOT_BEFORE, reason_codes.WAITS_FOR_JOBS, reason_codes.BACKING_OFF}


@examples(100)
@given(scenes(preempts=True))
def test_every_task_that_a_cycle_looks_at_is_placed_or_refused_with_one_reason(scene: Scene) -> None:
    backlog, world = survey(scene.told().ledgers, NOW)
    decision = decide(world, backlog.queues())
    assert decision.considered == sum(group.count for group in scene.groups())
    assert decision.placed() + sum(decision.refused.values()) == decision.considered
    assert all(reason and count > 0 for reason, count in decision.refused.items())


@examples(100)
@given(scenes(preempts=True))
def test_every_pending_task_of_an_order_has_exactly_one_reason(scene: Scene) -> None:
    ledgers = scene.told().ledgers
    _, world = survey(ledgers, NOW)
    room = Room(world)
    for ledger in ledgers.orders.values():
        found = reasons.of_order(room, ledger, times.show(NOW))
        lost = sum(job.counts[TaskState.ORPHANED] for job in ledger.jobs.values())
        assert sum(reason.count for reason in found) == ledger.pending() + lost
        assert all(reason.reason and reason.count > 0 for reason in found)


@examples(40)
@given(scenes(preempts=True))
def test_an_explanation_has_a_reason_for_every_group_and_a_sentence_for_every_target(scene: Scene) -> None:
    ledgers = scene.told().ledgers
    for identity, ledger in ledgers.orders.items():
        found = explain(ledgers, identity, NOW)
        assert found.conclusion
        assert sum(group.count for group in found.groups) == ledger.pending()
        for group in found.groups:
            speaks(group, [target.name for target in scene.targets])


def speaks(group: GroupExplanation, targets: list[str]) -> None:
    assert group.reason
    assert [verdict.target for verdict in group.targets] == targets
    for verdict in group.targets:
        assert verdict.target in verdict.sentence
        assert verdict.fits == (not verdict.filter)
        assert all(amount > 0 for amount in verdict.missing.values())
        if verdict.filter in (reason_codes.CAPACITY, reason_codes.FULL):
            assert verdict.missing
    if group.reason not in {*OF_THE_ORDER, reason_codes.QUEUED, reason_codes.GANG}:
        assert not any(verdict.fits for verdict in group.targets)


@examples(40)
@given(scenes())
def test_the_reason_shown_is_the_nearest_miss_of_all_targets(scene: Scene) -> None:
    ledgers = scene.told().ledgers
    for identity in ledgers.orders:
        for group in explain(ledgers, identity, NOW).groups:
            filters = {verdict.filter for verdict in group.targets}
            if group.reason in filtering.CODES:
                assert group.reason == max(filters, key=(reason_codes.NO_TARGETS, *filtering.CODES).index)
            elif group.reason == reason_codes.NO_TARGETS:
                assert not scene.targets
            elif group.reason == reason_codes.HELD:
                assert reason_codes.HELD in filters
