"""The world of a cycle: room is what is configured and reported, less what is placed."""

from __future__ import annotations

import pytest

from controlplane.engine.world import TargetRow
from controlplane.model.target import Target, TargetStatus
from controlplane.store import keys
from controlplane.survey.world_builder import WorldBuilder
from tests.builders import A_MOMENT, a_fulfilment, a_session, a_target
from tests.picture import Content, Told


def row(**contents: Content) -> TargetRow | None:
    """The row of target t1, with these things said about it."""
    places = {"target": keys.config("targets", "t1"), "status": keys.target_status("t1"), "live": keys.live("t1")}
    standard: dict[str, Content] = {
        "target": a_target("t1", cpu=8, memory=100),
        "status": TargetStatus(target="t1", epoch=1, phase="Ready"),
        "live": a_session("t1", cpu=4),
    }
    told = Told()
    told.write({places[name]: content for name, content in {**standard, **contents}.items() if content is not None})
    placed = a_fulfilment("01ARYZ6S41TSV4RRFFQ69G5FAV").task(0).requesting(cpu=0.1)
    told.write({keys.desired("t1", placed.identity): placed.build()})
    return next(iter(WorldBuilder(told.ledgers).build(A_MOMENT).targets), None)


def test_room_is_the_smaller_of_configured_and_reported_less_what_is_placed() -> None:
    found = row()
    assert found is not None
    assert found.ready
    assert found.free == {"cpu": 3.9, "memory": 100}


@pytest.mark.parametrize(
    "contents",
    [
        {"status": None},
        {"status": TargetStatus(target="t1", epoch=1, phase="Suspect")},
        {"status": b"poison"},
        {"live": None},
        {"live": b"poison"},
        {"target": Target(name="t1"), "live": a_session("t1", cpu=10**400)},
        {"target": Target(name="t1", capacity={"cpu": 8}, cordoned=True)},
        {"target": Target(name="t1", capacity={"cpu": 8}, drain=True)},
    ],
)
def test_a_target_takes_new_work_only_when_everything_says_so(contents: dict[str, Content]) -> None:
    found = row(**contents)
    assert found is not None
    assert not found.ready


@pytest.mark.parametrize(
    "contents",
    [
        {"target": b"poison"},
        {"target": Target(name="t1", capacity={"cpu": -1})},
        {"target": Target(name="t1", capacity={"cpu": 10**400}), "live": a_session("t1")},
        {"target": Target(name="t1", capacity={"cpu": 1e-310})},
        {"target": Target(name="t1", max_fulfilments=10**30)},
    ],
)
def test_a_target_with_an_amount_that_is_none_is_stepped_over(contents: dict[str, Content]) -> None:
    assert row(**contents) is None


def test_a_poisoned_claim_still_holds_its_resource() -> None:
    told = Told()
    told.write({keys.claim("licence"): b"poison"})
    assert "licence" in WorldBuilder(told.ledgers).build(A_MOMENT).held
