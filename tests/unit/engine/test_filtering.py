"""The tuple of filters is the algorithm: what is quicker than asking each of them says the same."""

from __future__ import annotations

from hypothesis import given

from controlplane.engine import filtering, reason_codes, scoring
from controlplane.engine.filtering import FILTERS, FITS, OF_THE_TARGET, first_refusals
from controlplane.engine.room import Room
from controlplane.survey.explaining import survey
from tests.scenes import examples, scenes
from tests.worlds import NOW, Scene

REASONS_BESIDE_FILTERS = frozenset(
    [
        "NO_TARGETS",
        "GANG",
        "HELD",
        "QUOTA",
        "QUEUED",
        "PAUSED",
        "NOT_BEFORE",
        "BACKING_OFF",
        "WAITS_FOR_JOBS",
        "ISOLATED",
        "LOST",
    ]
)


def test_every_reason_that_a_target_gives_is_that_of_one_filter() -> None:
    codes = {name: value for name, value in vars(reason_codes).items() if name.isupper()}
    of_filters = {value for name, value in codes.items() if name not in REASONS_BESIDE_FILTERS}
    assert {each.code for each in FILTERS} == of_filters
    assert len(FILTERS) == len(of_filters)


@examples(100)
@given(scenes())
def test_the_quick_looks_say_what_all_filters_say(scene: Scene) -> None:
    backlog, world = survey(scene.told().ledgers, NOW)
    room = Room(world)
    for queue in backlog.queues():
        for signature in queue.parts or (queue.signature,):
            takers = (first_refusals(room, signature) == FITS).nonzero()[0]
            assert filtering.open_rows(room, signature).tolist() == takers.tolist()
            quick = signature.asks or room.asks or room.neighbours.matter
            assert quick == any(each.asked_by(signature) or each.present_in(room) for each in OF_THE_TARGET)
            static = room.floor.static(signature)
            plain = not any(score.applies(room, signature) for score in scoring.SCORES)
            assert scoring.is_plain(room, signature, static) == plain
