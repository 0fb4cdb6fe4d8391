"""When work has to leave a target, and what is written for it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from controlplane.cache.ledger import LiveFulfilment
from controlplane.controller_manager import evictions_and_losses
from controlplane.controller_manager.target_phase import TargetState
from controlplane.model.target import Live, Target, TargetStatus
from controlplane.store import keys
from controlplane.store.transaction import absent
from tests.builders import a_fulfilment, an_identity

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
BEGAN = (NOW - timedelta(minutes=10)).isoformat()
LIVE = Live(target="t", session="1", instance="i", secret_digest="", driver="process")


def a_sight(
    target: Target | None, *, placed: int = 1, since: str = BEGAN, live: Live | None = LIVE, phase: str = "Draining"
) -> TargetState:
    return TargetState(target, live, placed, TargetStatus(target="t", epoch=1, phase=phase, drain_since=since))


@pytest.mark.parametrize(
    ("sight", "seconds"),
    [
        (a_sight(Target(name="t")), None),
        (a_sight(Target(name="t", cordoned=True)), None),
        (a_sight(Target(name="t", drain=True)), 300),
        (a_sight(Target(name="t", drain=True, drain_timeout=660)), 60),
        (a_sight(Target(name="t", drain=True, drain_timeout=600)), 0),
        (a_sight(Target(name="t", drain=True, drain_timeout=0)), -600),
        # Not on record yet, nothing there, nobody there.
        (a_sight(Target(name="t", drain=True), since=""), None),
        (a_sight(Target(name="t", drain=True), placed=0), None),
        (a_sight(Target(name="t", drain=True), live=None), None),
        (a_sight(Target(name="t", drain=True), since="yesterday"), 0),
        (a_sight(None), 0),
        (a_sight(None, live=None), None),
    ],
)
def test_a_drain_counts_from_when_it_was_first_recorded(sight: TargetState, seconds: float | None) -> None:
    assert evictions_and_losses.evicts_in(sight, 900, NOW) == seconds


def test_what_is_being_stopped_already_is_left_alone() -> None:
    running = a_fulfilment(an_identity()).build()
    stopping = replace(running, want="stop", reason="Cancelled")
    placed = iter([(LiveFulfilment(running, 5), None), (LiveFulfilment(stopping, 6), None)])
    (item,) = evictions_and_losses.evictions(placed, epoch=7)
    assert b'"reason":"Evicted"' in item.raw()


def test_nothing_is_taken_from_a_target_whose_joblet_is_there_again() -> None:
    one = a_fulfilment(an_identity()).build()
    (item,) = evictions_and_losses.losses(iter([(LiveFulfilment(one, 5), None)]), epoch=7, now="2026-01-01T12:00:00Z")
    assert absent(keys.live(one.target)) in item.compares
