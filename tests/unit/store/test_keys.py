"""Keys: what is made can be taken apart again, and nothing else can."""

from __future__ import annotations

import pytest

from controlplane.store import keys


@pytest.mark.parametrize(
    ("key", "tree", "parts"),
    [
        (keys.candidate(0x1F), "election", ("1f",)),
        (keys.term(7), "terms", ("00000000000000000007",)),
        (keys.SETTINGS, "config", ("settings",)),
        (keys.config("jobs", "render"), "config/jobs", ("render",)),
        (keys.order("01A"), "config/orders", ("01A",)),
        (keys.desired("eu-1", "01F"), "desired", ("eu-1", "01F")),
        (keys.claim("licence"), "claims", ("licence",)),
        (keys.ended("01A", "01F"), "status/ended", ("01A", "01F")),
        (keys.order_status("01A"), "status/orders", ("01A",)),
        (keys.target_status("eu-1"), "status/targets", ("eu-1",)),
        (keys.cycle(7, 12), "cycles", ("00000000000000000007", "00000000000000000012")),
        (keys.TOTALS, "status", ("totals",)),
        (keys.event("01E"), "events", ("01E",)),
        (keys.live("eu-1"), "inventory", ("eu-1", keys.LIVE)),
        (keys.observed("eu-1", "01F"), "inventory", ("eu-1", "01F")),
    ],
)
def test_a_key_parses_into_its_tree_and_its_names(key: str, tree: str, parts: tuple[str, ...]) -> None:
    assert keys.parse(key) == (tree, parts)


@pytest.mark.parametrize(
    "key",
    ["", "/other/x", "/controlplane/", "/controlplane/desired/eu-1", "/controlplane/desired/eu-1/",
     "/controlplane/claims//",
     "/controlplane/config/orders/a/b", "/controlplane/nothing/x", "/controlplane/status/ended/a"],
)  # fmt: skip
def test_a_key_that_fits_no_tree_is_left_alone(key: str) -> None:
    assert keys.parse(key) is None


def test_cycles_and_terms_sort_by_number() -> None:
    assert keys.cycle(9, 10) < keys.cycle(10, 1)
    assert keys.cycle(9, 9) < keys.cycle(9, 10)
    assert keys.term(99) < keys.term(100)


def test_the_end_of_a_prefix_lies_behind_all_of_its_keys_and_before_the_next() -> None:
    end = keys.after_prefix("/controlplane/")
    assert "/controlplane/\uffff".encode() < end <= b"/controlplane0"
