"""A bounded memory of results."""

from __future__ import annotations

from controlplane.aio.lru import Lru


def test_the_entry_that_was_not_asked_for_longest_makes_room() -> None:
    kept: Lru[str, int] = Lru(2)
    kept.put("a", 1)
    kept.put("b", 2)
    assert kept.get("a") == 1
    kept.put("c", 3)
    assert (kept.get("a"), kept.get("b"), kept.get("c")) == (1, None, 3)


def test_an_entry_is_replaced_in_place() -> None:
    kept: Lru[str, int] = Lru(2)
    kept.put("a", 1)
    kept.put("b", 2)
    kept.put("a", 3)
    assert (kept.get("a"), kept.get("b")) == (3, 2)
    kept.clear()
    assert kept.get("a") is None
