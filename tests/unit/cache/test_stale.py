"""When a cache counts as stale: frozen ones soon, late ones that still move only after long."""

from __future__ import annotations

import pytest

from controlplane.aio.clock import SystemClock
from controlplane.cache.freshness import STALE_SECONDS, Freshness
from controlplane.store.channel import EtcdOptions
from controlplane.store.kv import Store
from tests.clock import ManualClock


class Stage:
    """A cache at revision 5, known to have been fresh at the beginning."""

    def __init__(self, store: Store) -> None:
        self.clock = ManualClock()
        self.revision = 5
        self.told = 0
        self.freshness = Freshness(
            store, self.clock, holds=lambda: self.revision, waited_for=lambda: 0, advance=self._advance
        )
        self.freshness.confirm(self.clock.monotonic())

    def _advance(self, revision: int) -> None:
        self.revision = max(self.revision, revision)

    def _tell(self) -> None:
        self.told += 1

    def look(self, head: int) -> None:
        """A quorum of etcd tells its newest revision."""
        self.freshness._looks.append((head, self.clock.monotonic()))

    def judge(self, *, still_seconds: float) -> bool:
        self.freshness._judge(still_seconds, self._tell)
        return self.freshness.is_stale


@pytest.fixture
async def stage() -> Stage:
    return Stage(Store(EtcdOptions(("http://127.0.0.1:1",)), SystemClock()))


async def test_the_age_counts_from_the_question_whose_answer_the_cache_holds(stage: Stage) -> None:
    stage.clock.pass_seconds(1)
    stage.look(5)
    stage.clock.pass_seconds(1)
    stage.look(7)
    stage.clock.pass_seconds(1)
    assert stage.freshness.age_seconds == pytest.approx(2)
    stage.revision = 7
    assert stage.freshness.age_seconds == pytest.approx(1)


async def test_a_cache_that_stands_still_behind_etcd_is_stale_until_it_is_fresh(stage: Stage) -> None:
    stage.look(6)
    stage.clock.pass_seconds(STALE_SECONDS + 0.1)
    assert stage.judge(still_seconds=STALE_SECONDS)
    assert stage.judge(still_seconds=STALE_SECONDS)
    assert stage.told == 1
    stage.look(6)
    stage.revision = 6
    assert not stage.judge(still_seconds=0)


async def test_a_cache_that_is_late_but_moves_is_not_stale(stage: Stage) -> None:
    stage.clock.pass_seconds(3 * STALE_SECONDS)
    assert not stage.judge(still_seconds=0.5)
    stage.clock.pass_seconds(100)
    assert stage.judge(still_seconds=0.5)


async def test_an_idle_etcd_makes_nobody_stale(stage: Stage) -> None:
    for _ in range(20):
        stage.clock.pass_seconds(1)
        stage.look(5)
        assert not stage.judge(still_seconds=100)


async def test_a_hint_of_an_older_etcd_counts_for_the_age_but_moves_nothing(stage: Stage) -> None:
    stage.clock.pass_seconds(1)
    stage.look(9)
    stage.freshness._passed(9, False)
    assert stage.freshness.age_seconds == pytest.approx(0)
    assert stage.revision == 5
    stage.freshness._passed(9, True)
    assert stage.revision == 9
