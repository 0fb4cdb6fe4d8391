"""The engine against a second chooser that shares no code with it: same tasks, same targets, same reasons."""

from __future__ import annotations

from collections import Counter

from hypothesis import given

from controlplane.engine.decide import decide
from controlplane.engine.decision import Decision
from controlplane.survey.explaining import survey
from tests.chooser import Chooser
from tests.scenes import examples, scenes
from tests.worlds import NOW, Scene


def decided(scene: Scene) -> Decision:
    backlog, world = survey(scene.told().ledgers, NOW)
    return decide(world, backlog.queues())


@examples(300)
@given(scenes())
def test_the_engine_does_what_a_slow_and_obvious_chooser_does(scene: Scene) -> None:
    decision = decided(scene)
    state = scene.state()
    refused = Chooser(state, scene.groups()).choose()
    placed: Counter[tuple[str, str, str]] = Counter()
    for placement in decision.placements:
        placed[placement.order, placement.job, placement.target] += placement.count
    assert placed == Counter(state.placed)
    assert decision.refused == refused
