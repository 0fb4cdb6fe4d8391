"""When a finished order may go."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from controlplane.controller_manager.clean_up import due_seconds
from controlplane.model import times
from controlplane.model.identity import Mint
from controlplane.model.order import Counts, OrderStatus

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def made(moment: datetime) -> str:
    return Mint(lambda: int(moment.timestamp() * 1000), bytes).make()


def finished(moment: datetime | None) -> OrderStatus:
    end = times.show(moment) if moment is not None else None
    return OrderStatus(order="", epoch=1, phase="Succeeded", counts=Counts(), finished=end)


def test_the_time_counts_from_the_end_of_the_order() -> None:
    order = made(NOW - timedelta(days=1))
    assert due_seconds(order, finished(NOW - timedelta(minutes=10)), 3600, NOW) == 3000
    assert due_seconds(order, finished(NOW - timedelta(hours=1)), 3600, NOW) == 0


def test_an_identity_from_the_future_is_kept_until_it_is_old_enough_to_be_refused() -> None:
    order = made(NOW + timedelta(hours=2))
    assert due_seconds(order, finished(NOW - timedelta(days=1)), 3600, NOW) == 3 * 3600


def test_an_order_without_a_time_of_its_end_is_kept_for_the_whole_time() -> None:
    assert due_seconds(made(NOW - timedelta(days=1)), finished(None), 3600, NOW) == 3600


def test_an_identity_that_is_none_does_not_keep_its_order_for_ever() -> None:
    assert due_seconds("by hand", finished(NOW - timedelta(hours=2)), 3600, NOW) == -3600


def test_an_identity_of_the_last_millisecond_there_is_keeps_its_order_without_an_error() -> None:
    assert due_seconds("7ZZZZZZZZZZZZZZZZZZZZZZZZZ", finished(NOW), 3600, NOW) == 3600


@pytest.mark.parametrize("moment", ["9999-12-31T23:59:59.999Z", "garbage", "2100-01-01T00:00:00.000Z"])
def test_an_end_that_was_written_by_hand_keeps_its_order_for_the_usual_time(moment: str) -> None:
    status = OrderStatus(order="", epoch=1, phase="Succeeded", counts=Counts(), finished=moment)
    assert due_seconds(made(NOW - timedelta(days=1)), status, 3600, NOW) == 3600


def test_an_identity_of_the_year_9999_does_not_keep_its_order_until_then() -> None:
    assert due_seconds("76EZ91ZP0RNTE75M7QS50FXWBV", finished(NOW - timedelta(hours=2)), 3600, NOW) == -3600


def test_a_time_beyond_all_calendars_is_a_long_time() -> None:
    assert due_seconds(made(NOW), finished(NOW), 1e300, NOW) > 1e299
