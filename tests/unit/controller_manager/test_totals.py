"""Totals: rates over two times, sums of what is open, ends that are counted once whoever leads."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from controlplane.cache.ended_orders import EndedOrderCounter
from controlplane.controller_manager.totals_keeper import Sums, TargetCensus, same
from controlplane.model.order import Counts, OrderStatus
from controlplane.model.totals import Meter, OrderEnds, Processed, Totals, end_of
from controlplane.store import keys
from controlplane.store.watch import Change
from tests.picture import Content, History, Picture


def a_status(order: str, phase: str, **counts: int) -> OrderStatus:
    return OrderStatus(order=order, epoch=1, phase=phase, counts=Counts(**counts))


class Scene:
    """A cache that is told what happened, and what was processed according to it."""

    def __init__(self) -> None:
        self.history = History()
        self.cache = Picture()
        self.counter = EndedOrderCounter(self.cache)

    def write(self, contents: Mapping[str, Content]) -> None:
        self.cache.tell(self.history.write(contents))

    def end(self, order: str, phase: str, **counts: int) -> None:
        self.write({keys.order_status(order): a_status(order, phase, **counts)})

    def totals(self) -> Totals:
        """As a leader would write them now."""
        ends = self.counter.ends
        return Totals(epoch=1, revision=self.cache.revision, orders=ends.orders, closed=ends.tasks)

    def restarted(self) -> EndedOrderCounter:
        """Of a replica that lists all there is."""
        cache = Picture()
        counter = EndedOrderCounter(cache)
        values = reversed(list(self.history.values.values()))
        cache.tell([Change(value.key, self.history.revision, value) for value in values])
        return counter


def test_an_end_counts_its_order_and_its_tasks() -> None:
    ends = end_of(a_status("o", "Failed", succeeded=2, failed=1, cancelled=1))
    assert ends.orders == Processed(total=1, failed=1)
    assert ends.tasks == Processed(total=4, succeeded=2, failed=1, cancelled=1)


def test_each_end_is_counted_once() -> None:
    scene = Scene()
    scene.end("o1", "Running", running=1)
    scene.end("o1", "Succeeded", succeeded=1)
    scene.end("o1", "Succeeded", succeeded=1)
    scene.end("o2", "Cancelled", cancelled=3)
    scene.write({keys.order_status("o1"): None})
    assert scene.counter.ends.orders == Processed(total=2, succeeded=1, cancelled=1)
    assert scene.counter.ends.tasks == Processed(total=4, succeeded=1, cancelled=3)


def test_what_is_stored_replaces_what_it_counts() -> None:
    scene = Scene()
    scene.end("o1", "Succeeded", succeeded=1)
    stored = scene.totals()
    scene.end("o2", "Failed", failed=1)
    scene.write({keys.TOTALS: stored})
    scene.end("o3", "Failed", failed=1)
    assert scene.counter.ends.orders == Processed(total=3, succeeded=1, failed=2)


@pytest.mark.parametrize("written_after", [0, 1, 2, 3])
def test_a_replica_that_starts_later_counts_the_same(written_after: int) -> None:
    scene = Scene()
    for number in range(3):
        if number == written_after:
            scene.write({keys.TOTALS: scene.totals()})
        scene.end(f"o{number}", "Succeeded", succeeded=2)
    assert scene.restarted().ends == scene.counter.ends
    assert scene.counter.ends.tasks.total == 6


def test_orders_that_were_cleaned_up_stay_counted() -> None:
    scene = Scene()
    scene.end("o1", "Succeeded", succeeded=1)
    scene.write({keys.TOTALS: scene.totals()})
    scene.write({keys.order_status("o1"): None})
    assert scene.restarted().ends.orders.total == 1


def test_totals_that_are_older_or_poisoned_change_nothing() -> None:
    scene = Scene()
    scene.end("o1", "Succeeded", succeeded=1)
    old = scene.totals()
    scene.end("o2", "Succeeded", succeeded=1)
    scene.write({keys.TOTALS: scene.totals()})
    scene.write({keys.TOTALS: old})
    scene.write({keys.TOTALS: b"not json"})
    assert scene.counter.ends.orders.total == 2


def test_a_status_that_cannot_be_read_is_stepped_over() -> None:
    scene = Scene()
    scene.write({keys.order_status("o1"): b'{"phase":"Failed"'})
    assert scene.counter.ends == OrderEnds()


def test_open_orders_add_their_differences() -> None:
    sums = Sums()
    sums.set("o1", Counts(pending=3))
    sums.set("o2", Counts(pending=1, running=1))
    sums.set("o1", Counts(pending=1, placed=1, succeeded=1))
    assert sums.counts == Counts(pending=2, placed=1, running=1, succeeded=1)
    sums.set("o2", None)
    sums.set("never-seen", None)
    assert (sums.counts, sums.orders) == (Counts(pending=1, placed=1, succeeded=1), 1)


def test_targets_are_busy_or_free_or_neither() -> None:
    floor = TargetCensus()
    floor.set("t1", True, True, True)
    floor.set("t2", True, True, False)
    floor.set("t3", True, False, False)
    floor.set("t4", True, False, True)
    found = floor.totals()
    assert (found.total, found.ready, found.busy, found.free) == (4, 2, 2, 1)
    floor.set("t1", True, True, False)
    floor.set("t4", False, False, True)
    found = floor.totals()
    assert (found.total, found.ready, found.busy, found.free) == (3, 2, 0, 2)


def test_rates_are_of_the_last_ten_seconds_and_the_last_minute() -> None:
    meter = Meter()
    for second in range(121):
        rates = meter.sample(float(second), second * 10 if second <= 60 else 600, second)
        if second == 60:
            assert (rates.orders_10s, rates.orders_1m, rates.tasks_1m) == (10, 10, 1)
        if second == 75:
            assert (rates.orders_10s, rates.orders_1m, rates.tasks_10s) == (0, 7.5, 1)
    assert (rates.orders_10s, rates.orders_1m, rates.tasks_1m) == (0, 0, 1)


def test_a_pause_in_which_nobody_sampled_does_not_make_rates_smaller() -> None:
    meter = Meter()
    meter.sample(0.0, 0, 0)
    meter.sample(1000.0, 60, 120)
    rates = meter.sample(1005.0, 60, 120)
    assert (rates.orders_10s, rates.orders_1m, rates.tasks_10s, rates.tasks_1m) == (6, 1, 12, 2)


def test_the_same_numbers_are_the_same_totals_whoever_wrote_them() -> None:
    before = Totals(epoch=1, revision=5, at="then", queued=3)
    assert same(before, Totals(epoch=2, revision=9, at="now", queued=3))
    assert not same(before, Totals(epoch=1, revision=5, at="then", queued=4))
