"""One verdict per target: the first reason that stands in the way, and of all targets the nearest miss."""

from __future__ import annotations

import pytest

from controlplane.engine import filtering
from controlplane.engine.filtering import FITS, first_refusals, reason_of
from controlplane.engine.room import Room
from controlplane.engine.signature import Signature
from controlplane.engine.world import TargetRow, World
from tests.builders import a_row, a_signature, a_world


@pytest.mark.parametrize(
    ("signature", "row", "refusal"),
    [
        (a_signature(cpu=1), a_row("t", cpu=1), None),
        (a_signature(cpu=1, policy="strict:t"), a_row("t", cpu=1), None),
        (a_signature(cpu=1, policy="strict:other"), a_row("t", cpu=1), "TargetPolicy"),
        (a_signature(cpu=1, drivers=("kubernetes",)), a_row("t", cpu=1), "DriverUnsupported"),
        (a_signature(cpu=1, drivers=("kubernetes", "process")), a_row("t", cpu=1), None),
        (a_signature(cpu=1), a_row("t", ready=False, cpu=1), "TargetNotReady"),
        (a_signature(cpu=2), a_row("t", cpu=1), "InsufficientCapacity"),
        (a_signature(gpu=1), a_row("t", cpu=1), "InsufficientCapacity"),
        (a_signature(gpu=0, cpu=1), a_row("t", cpu=1), None),
        (a_signature(cpu=1), a_row("t", slots=0, cpu=1), "TargetFull"),
        (a_signature(cpu=1), a_row("t", cpu=-3), "InsufficientCapacity"),
    ],
)
def test_a_target_says_why_it_does_not_take_a_task(signature: Signature, row: TargetRow, refusal: str | None) -> None:
    (code,) = first_refusals(Room(a_world(row)), signature).tolist()
    assert (None if code == FITS else filtering.CODES[code]) == refusal


@pytest.mark.parametrize(
    ("world", "reason"),
    [
        (a_world(), "NoTargets"),
        (a_world(a_row("t", ready=False, cpu=4)), "TargetNotReady"),
        (a_world(a_row("t", ready=False, cpu=4), a_row("u", cpu=1)), "InsufficientCapacity"),
        (a_world(a_row("t", slots=0, cpu=4), a_row("u", cpu=1)), "TargetFull"),
        (a_world(a_row("t", cpu=4), a_row("u", cpu=1)), "Queued"),
        (a_world(a_row("t", cpu=4), held=("x",)), "ResourceHeld"),
        (a_world(held=("x",)), "NoTargets"),
    ],
)
def test_the_reason_of_a_group_is_the_nearest_miss(world: World, reason: str) -> None:
    assert reason_of(Room(world), a_signature(cpu=2, unique=("x",)), "somebody") == reason


@pytest.mark.parametrize(
    ("row", "takes"),
    [
        (a_row("t", cpu=10, memory=7), [3]),
        (a_row("t", slots=2, cpu=10, memory=7), [2]),
        (a_row("t", cpu=10), []),
    ],
)
def test_room_is_bounded_by_the_scarcest_quantity_and_by_slots(row: TargetRow, takes: list[int]) -> None:
    room, signature = Room(a_world(row)), a_signature(cpu=1, memory=2)
    fits = room.fits(signature, filtering.open_rows(room, signature))
    assert fits.tolist() == takes
