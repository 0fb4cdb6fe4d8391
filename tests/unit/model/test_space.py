"""How full etcd is, and what is said about it."""

from __future__ import annotations

import pytest

from controlplane.model.space import Level, Space, level_of

OK, NEAR, FULL = Level.OK, Level.NEAR, Level.FULL


def space(in_use: int, *, size: int = 0, alarm: bool = False, level: Level = OK) -> Space:
    return Space("c", "3.4.23", size or in_use, in_use, 100, alarm, level)


@pytest.mark.parametrize(
    ("used", "before", "after"),
    [
        (0.79, OK, OK), (0.80, OK, NEAR), (0.89, OK, NEAR), (0.90, OK, FULL),
        (0.74, NEAR, OK), (0.75, NEAR, NEAR), (0.90, NEAR, FULL),
        (0.85, FULL, FULL), (0.84, FULL, NEAR), (0.75, FULL, NEAR), (0.74, FULL, OK),
    ],
)  # fmt: skip
def test_a_level_is_left_below_where_it_was_entered(used: float, before: Level, after: Level) -> None:
    assert level_of(used, alarm=False, before=before) is after


@pytest.mark.parametrize("before", list(Level))
def test_an_alarm_means_full_however_little_is_in_use(before: Level) -> None:
    assert level_of(0.0, alarm=True, before=before) is FULL


def test_a_big_file_that_is_mostly_empty_is_no_lack_of_room_but_worth_a_word() -> None:
    assert "defragment" in space(20, size=90).sentence()
    assert space(20, size=70).sentence() == ""
    assert space(79, size=90).sentence() == ""


def test_what_is_said_names_what_helps() -> None:
    assert "alarm disarm" in space(10, alarm=True, level=FULL).sentence()
    assert "clean_up" in space(85, level=NEAR).sentence()
