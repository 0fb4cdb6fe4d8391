"""P8, P9 and P10: the caches, who leads, why tasks wait."""

from __future__ import annotations

import pytest

from controlplane.model.leadership import TermEnd
from controlplane.store import keys
from controlplane.store.transaction import Value
from controlplane.verify import p8_cache, p10_reasons
from controlplane.verify.p8_cache import CacheAnswer, Listing
from controlplane.verify.p9_leader import LeaderCheck
from controlplane.wire.v1 import orders_pb2
from tests.unit.verify import past
from tests.unit.verify.past import Past


def told(name: str, hash: str, listed: str = "same") -> CacheAnswer:
    return CacheAnswer(name, 7, hash, 3, listed, 3)


def test_caches_that_equal_the_list_are_good() -> None:
    found = p8_cache.judge([told("replica-1", "same"), told("replica-2", "same")])
    assert (found.ok, found.checked) == (True, 6)


def test_a_cache_that_differs_from_the_list_is_found_even_beside_one_that_cannot_be_asked() -> None:
    found = p8_cache.judge([told("replica-1", "other"), CacheAnswer("replica-2", failure="dead")])
    assert found.ok is False
    assert found.violations[0].revision == 7


def test_a_replica_that_cannot_be_asked_leaves_the_promise_unknown() -> None:
    found = p8_cache.judge([told("replica-1", "same"), CacheAnswer("replica-2", failure="dead")])
    assert (found.ok, found.why) == (None, "replica-2: dead")
    assert p8_cache.judge([]).ok is None


def test_a_cache_that_stands_still_is_found_though_it_equals_a_list_at_its_own_revision() -> None:
    frozen = CacheAnswer("replica-1", 24, behind="stayed behind revision 66, which etcd had 10 s before")
    found = p8_cache.judge([told("replica-2", "same"), frozen, CacheAnswer("replica-3", failure="dead")])
    assert found.ok is False
    (violation,) = found.violations
    assert violation.revision == 24
    assert violation.why == "the cache of replica-1 stayed behind revision 66, which etcd had 10 s before"


def test_caches_of_an_etcd_without_keys_prove_nothing() -> None:
    assert p8_cache.judge([CacheAnswer("replica-1", 1, "same", 0, "same", 0)]).ok is None


def test_the_digest_of_a_list_is_that_of_the_api() -> None:
    whole, pieces = Listing(), Listing()
    values = [Value(f"{keys.ROOT}claims/{name}", b"", 1, at, 0) for at, name in enumerate("abc", start=2)]
    whole.add(values)
    for value in values:
        pieces.add([value])
    assert whole.hash() == pieces.hash() != Listing().hash()


def reigns(*ends: TermEnd | None) -> Past:
    """One term after the other: each candidate enters, writes its term, and goes when the next one comes."""
    story = Past()
    for lease, end in enumerate(ends, start=1):
        epoch = story.elect(lease)
        if lease > 1:
            story.commit({keys.candidate(lease - 1): None})
        story.commit({keys.term(epoch): past.term(epoch, end)})
    return story


FIRST = TermEnd(epoch=0, how="first")


def whys(story: Past, *, since: int = 1) -> list[str]:
    return [violation.why for violation in story.told_to(LeaderCheck(), since=since).verdict().violations]


def test_terms_that_follow_each_other_are_good() -> None:
    story = reigns(FIRST, TermEnd(epoch=2, how="pulse-closed"), TermEnd(epoch=4, how="lease-gone"))
    found = story.told_to(LeaderCheck()).verdict()
    assert (found.ok, found.checked) == (True, 3)
    assert whys(story, since=story.revision) == []


@pytest.mark.parametrize("end", [None, FIRST, TermEnd(epoch=2, how="")])
def test_a_term_that_does_not_say_how_the_one_before_ended_is_found(end: TermEnd | None) -> None:
    assert whys(reigns(FIRST, end)) == ["does not say how term 2 ended"]


def test_a_term_that_speaks_of_another_than_the_one_before_is_found() -> None:
    story = reigns(FIRST, TermEnd(epoch=2, how="pulse-closed"), TermEnd(epoch=2, how="pulse-closed"))
    assert whys(story) == ["says how term 2 ended, but the one before was 4"]


def test_a_term_older_than_the_last_one_is_found() -> None:
    story = reigns(FIRST)
    story.commit({keys.term(1): past.term(1, TermEnd(epoch=2, how="lease-gone"))})
    assert whys(story) == ["came after term 2, but is older"]


def test_a_term_may_be_written_again_but_not_changed() -> None:
    story = reigns(FIRST)
    story.commit({keys.term(2): past.term(2, FIRST)})
    assert whys(story) == []
    story.commit({keys.term(2): past.term(2, TermEnd(epoch=1, how="lease-gone"))})
    assert whys(story) == ["was changed after it had been written"]


def test_a_first_candidate_without_a_term_does_not_lead() -> None:
    story = Past()
    story.elect()
    assert whys(story) == ["nobody leads"]


def test_nobody_in_the_queue_is_broken_only_where_replicas_should_run() -> None:
    story = reigns(FIRST)
    story.commit({keys.candidate(1): None})
    assert story.told_to(LeaderCheck()).verdict(expected=True).ok is False
    assert story.told_to(LeaderCheck()).verdict(expected=False).ok is None


def waiting(pending: int, explained: int, *, cancel: bool = False, phase: str = "Pending") -> orders_pb2.Order:
    order = orders_pb2.Order(id=past.ORDER, revision=5, cancel=cancel)
    order.status.phase = phase
    order.status.counts.pending = pending
    if explained:
        order.status.reasons.add(reason="Queued", count=explained)
    return order


def test_pending_tasks_with_a_reason_each_are_good() -> None:
    found = p10_reasons.judge([waiting(3, 3), waiting(0, 0)])
    assert (found.ok, found.checked) == (True, 2)


def test_a_pending_task_without_a_reason_is_found() -> None:
    (violation,) = p10_reasons.judge([waiting(3, 2)]).violations
    assert violation.why == "3 tasks are pending, but reasons are given for 2"


def test_without_an_open_order_nothing_was_checked() -> None:
    found = p10_reasons.judge([])
    assert (found.ok, found.checked, found.why) == (None, 0, "no order is open")


def test_nothing_of_a_cancelled_or_final_order_needs_a_reason() -> None:
    assert p10_reasons.judge([waiting(1, 0, cancel=True), waiting(1, 0, phase="Failed")]).ok is True
