"""Up to where history is forgotten, and by whom."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from controlplane.controller_manager.compaction import Mark, Seen, is_ours, plan, terms
from controlplane.model import times
from controlplane.model.leadership import Term
from controlplane.store import keys
from tests.picture import Told

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR = 3600.0


def ago(minutes: float, revision: int) -> Mark:
    return Mark(NOW - timedelta(minutes=minutes), revision)


MARKS = [ago(180, 100), ago(90, 200), ago(60, 300), ago(30, 400), ago(9, 500), ago(0, 600)]


@pytest.mark.parametrize(
    ("history", "crowded", "oldest", "expected"),
    [
        (HOUR, False, 1, 300),
        (HOUR, False, 299, 300),
        (HOUR, False, 300, 0),
        (HOUR, True, 1, 400),
        (HOUR, True, 400, 0),
        (4 * HOUR, False, 1, 0),
    ],
)
def test_what_is_older_than_history_goes_and_more_when_etcd_is_crowded(
    history: float, crowded: bool, oldest: int, expected: int
) -> None:
    assert plan(MARKS, NOW, history=history, crowded=crowded, oldest=oldest) == expected


def test_without_a_mark_that_is_old_enough_nothing_goes() -> None:
    assert plan([], NOW, history=HOUR, crowded=True, oldest=1) == 0


def test_a_leader_watches_for_a_whole_history_before_it_compacts() -> None:
    assert not is_ours(Seen(0.0, None), HOUR, HOUR)
    assert is_ours(Seen(0.0, None), 1.2 * HOUR, HOUR)


def test_a_leader_leaves_compaction_to_whoever_did_it_lately() -> None:
    assert not is_ours(Seen(0.0, 9 * HOUR), 10 * HOUR, HOUR)
    assert is_ours(Seen(0.0, 9 * HOUR), 10.2 * HOUR, HOUR)


def test_the_records_of_terms_tell_a_new_leader_when_was_what() -> None:
    told = Told()
    told.write({keys.term(1): Term(epoch=1, id="a", since=times.show(NOW))})
    told.write({keys.term(2): Term(epoch=2, id="b", since="yesterday"), keys.term(3): b"poison"})
    assert terms(told.ledgers.cache.snapshot) == [Mark(NOW, 2)]
