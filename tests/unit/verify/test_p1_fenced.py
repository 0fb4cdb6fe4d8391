"""P1: what the leader writes carries the epoch that led."""

from __future__ import annotations

import msgspec

from controlplane.model.object import Object
from controlplane.store import keys
from controlplane.verify.p1_fenced import FencedCheck
from tests.unit.verify import past
from tests.unit.verify.past import ORDER, Past


def test_writes_of_the_first_candidate_in_the_queue_are_fenced() -> None:
    story = Past()
    epoch = story.elect(lease=1)
    story.elect(lease=2)
    story.commit({keys.term(epoch): past.term(epoch)})
    story.commit({past.place("A"): past.fulfilment("A"), keys.cycle(epoch, 1): past.cycle(epoch, 1)})
    story.commit({keys.order_status(ORDER): past.status("Running", epoch=epoch)})
    found = story.told_to(FencedCheck()).verdict()
    assert (found.ok, found.checked, found.violations) == (True, 4, ())


def test_a_write_of_a_deposed_leader_is_found() -> None:
    story = Past()
    old = story.elect(lease=1)
    new = story.elect(lease=2)
    story.commit({keys.candidate(1): None})
    late = story.commit({keys.order_status(ORDER): past.status("Running", epoch=old)})
    (violation,) = story.told_to(FencedCheck()).verdict().violations
    assert (violation.key, violation.revision) == (keys.order_status(ORDER), late)
    assert violation.why == f"carries epoch {old}, but {new} led"


def test_a_write_of_a_standby_is_found() -> None:
    story = Past()
    story.elect(lease=1)
    standby = story.elect(lease=2)
    story.commit({keys.term(standby): past.term(standby)})
    assert story.told_to(FencedCheck()).verdict().ok is False


def test_a_write_while_nobody_leads_is_found() -> None:
    story = Past()
    story.commit({keys.claim("licence"): past.claim("licence", "A")})
    (violation,) = story.told_to(FencedCheck()).verdict().violations
    assert "nobody led" in violation.why


def test_who_led_is_judged_before_the_transaction_that_changes_it() -> None:
    story = Past()
    old = story.elect(lease=1)
    story.elect(lease=2)
    story.commit({keys.candidate(1): None, keys.order_status(ORDER): past.status("Running", epoch=old)})
    assert story.told_to(FencedCheck()).verdict().ok is True


def test_a_candidate_that_rewrites_its_key_keeps_its_epoch() -> None:
    story = Past()
    epoch = story.elect(lease=1)
    story.commit({keys.candidate(1): msgspec.structs.replace(past.candidate(), proclaimed=1)})
    story.commit({keys.order_status(ORDER): past.status("Running", epoch=epoch)})
    assert story.told_to(FencedCheck()).verdict().ok is True


def test_the_leader_of_the_oldest_revision_is_known_from_the_state() -> None:
    story = Past()
    epoch = story.elect(lease=1)
    since = story.revision
    story.commit({keys.order_status(ORDER): past.status("Running", epoch=epoch)})
    story.commit({keys.order_status(ORDER): past.status("Running", epoch=epoch + 1)})
    found = story.told_to(FencedCheck(), since=since).verdict()
    assert (found.checked, len(found.violations)) == (2, 1)


def test_a_value_without_an_epoch_in_the_leaders_trees_is_found() -> None:
    story = Past()
    story.elect()
    for key, value in ((past.place("A"), b"not json"), (keys.claim("a"), b'{"kind":"Claim"}'), (keys.term(2), b"[]")):
        story.commit({key: value})
    assert len(story.told_to(FencedCheck()).verdict().violations) == 3


def test_a_tree_that_this_version_does_not_know_is_judged_by_its_epoch_too() -> None:
    class Totals(Object, tag="Totals", frozen=True, kw_only=True):
        epoch: int

    story = Past()
    epoch = story.elect()
    story.commit({f"{keys.ROOT}status/totals": Totals(epoch=epoch)})
    assert story.told_to(FencedCheck()).verdict().ok is True
    story.commit({f"{keys.ROOT}rounds/R": Totals(epoch=epoch + 1)})
    assert story.told_to(FencedCheck()).verdict().ok is False


def test_a_term_under_the_key_of_another_epoch_is_found() -> None:
    story = Past()
    epoch = story.elect()
    story.commit({keys.term(epoch + 1): past.term(epoch)})
    (violation,) = story.told_to(FencedCheck()).verdict().violations
    assert "its key names another" in violation.why


def test_what_users_and_joblets_write_needs_no_epoch() -> None:
    story = Past()
    story.elect()
    story.commit({keys.order(ORDER): past.order(), keys.observed("eu", "A"): past.observed("A", "Starting")})
    assert story.told_to(FencedCheck()).verdict().checked == 0
