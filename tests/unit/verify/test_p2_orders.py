"""P2: an acknowledged order is never lost, and one identity is one order."""

from __future__ import annotations

import msgspec

from controlplane.model import identity
from controlplane.model.settings import Settings
from controlplane.store import keys
from controlplane.verify.p2_orders import OrdersCheck
from tests.unit.verify import past
from tests.unit.verify.past import ORDER, Past

MADE = identity.milliseconds(ORDER)


def submitted() -> Past:
    story = Past()
    story.elect()
    story.commit({keys.order(ORDER): past.order()})
    return story


def whys(story: Past, *, since: int = 1) -> list[str]:
    return [violation.why for violation in story.told_to(OrdersCheck(), since=since).verdict().violations]


def test_an_order_that_is_changed_by_its_user_and_cleaned_up_when_final_is_kept() -> None:
    story = submitted()
    story.commit({keys.order(ORDER): past.order(cancel=True)})
    story.commit({keys.order_status(ORDER): past.status("Cancelled")})
    story.commit({keys.order_status(ORDER): None, keys.order(ORDER): None})
    found = story.told_to(OrdersCheck()).verdict()
    assert (found.ok, found.checked) == (True, 3)


def test_an_order_that_is_deleted_while_it_runs_is_lost() -> None:
    story = submitted()
    story.commit({keys.order_status(ORDER): past.status("Running")})
    story.commit({keys.order(ORDER): None})
    assert whys(story) == ["was deleted before it was final"]


def test_a_status_that_becomes_final_in_the_deleting_transaction_is_too_late() -> None:
    story = submitted()
    story.commit({keys.order_status(ORDER): past.status("Succeeded"), keys.order(ORDER): None})
    assert whys(story) == ["was deleted before it was final"]


def test_an_identity_that_is_used_again_after_clean_up_is_found() -> None:
    story = submitted()
    story.commit({keys.order_status(ORDER): past.status("Succeeded")})
    story.commit({keys.order(ORDER): None})
    story.commit({keys.order(ORDER): past.order()})
    assert whys(story) == ["was created again after it had been deleted"]


def test_an_order_whose_content_changes_is_found() -> None:
    story = submitted()
    story.commit({keys.order(ORDER): past.order(digest="other")})
    assert whys(story) == ["changed the digest of its request"]
    story = submitted()
    story.commit({keys.order(ORDER): past.order(resolved=b'{"pack":2}')})
    assert whys(story) == ["changed what it resolved to"]
    story = submitted()
    story.commit({keys.order(ORDER): msgspec.structs.replace(past.order(), id="01ARZ3NDEKTSV4RRFFQ69G5FAW")})
    assert whys(story) == ["holds the order 01ARZ3NDEKTSV4RRFFQ69G5FAW"]


def test_an_order_that_is_overwritten_by_poison_is_lost_but_poison_of_its_own_is_nobodys_order() -> None:
    story = submitted()
    story.commit({keys.order("poison"): b"{"})
    story.commit({keys.order("poison"): None})
    assert whys(story) == []
    story.commit({keys.order(ORDER): b"{"})
    assert whys(story) == ["was overwritten by what is no order"]


def test_the_state_at_the_oldest_revision_counts_as_submitted_and_final() -> None:
    story = submitted()
    story.commit({keys.order_status(ORDER): past.status("Succeeded")})
    since = story.revision
    story.commit({keys.order(ORDER): None})
    assert whys(story, since=since) == []
    story.commit({keys.order(ORDER): past.order()})
    assert len(whys(story, since=since)) == 1


def test_an_acknowledged_order_that_etcd_never_had_is_lost() -> None:
    check = submitted().told_to(OrdersCheck())
    check.acknowledged([ORDER], now_milliseconds=MADE)
    assert check.verdict().ok is True
    lost = identity.from_bytes((identity.milliseconds(ORDER) << 80).to_bytes(16, "big"))
    check.acknowledged([lost], now_milliseconds=MADE)
    (violation,) = check.verdict().violations
    assert violation.key == keys.order(lost)
    assert check.missing([ORDER, lost]) == 1


def test_an_acknowledged_order_older_than_the_clean_up_time_may_be_gone() -> None:
    story = submitted()
    story.commit({keys.SETTINGS: Settings(clean_up=10)})
    lost = identity.from_bytes((identity.milliseconds(ORDER) << 80).to_bytes(16, "big"))
    check = story.told_to(OrdersCheck())
    check.acknowledged([lost], now_milliseconds=MADE + 10_001)
    assert check.verdict().ok is True
    check.acknowledged([lost], now_milliseconds=MADE + 9_999)
    assert check.verdict().ok is False


def test_an_order_that_went_before_it_was_final_is_missing() -> None:
    story = submitted()
    story.commit({keys.order(ORDER): None})
    assert story.told_to(OrdersCheck()).missing([ORDER]) == 1
