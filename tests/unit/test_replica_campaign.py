"""A replica stands while its cache is fresh, and ends when it is told to, in whatever moment."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from controlplane.replica import Replica


class StubbornElection:
    """Takes a while to end: `ending` is set when it was told to, `ended` lets it."""

    leadership = None

    def __init__(self) -> None:
        self.runs = 0
        self.ending, self.ended = asyncio.Event(), asyncio.Event()

    async def run(self, _lead: Any) -> None:
        self.runs += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.ending.set()
            await self.ended.wait()


class StaleCache:
    is_stale = False

    async def stale(self) -> None:
        return


async def test_a_replica_that_is_told_to_end_while_its_candidacy_ends_does_not_stand_again() -> None:
    election = StubbornElection()
    replica: Any = SimpleNamespace(_cache=StaleCache(), _lead=None)
    campaign = asyncio.create_task(Replica._campaign(replica, election))  # type: ignore[arg-type]
    await election.ending.wait()
    campaign.cancel()
    await asyncio.sleep(0)
    election.ended.set()
    done, _ = await asyncio.wait({campaign}, timeout=5.0)
    assert done, "the cancellation was lost"
    with pytest.raises(asyncio.CancelledError):
        await campaign
    assert election.runs == 1


async def test_an_election_that_breaks_ends_the_replica() -> None:
    class Broken:
        leadership = None

        async def run(self, _lead: Any) -> None:
            raise ValueError("broken")

    class FreshCache:
        is_stale = False

        async def stale(self) -> None:
            await asyncio.Event().wait()

    replica: Any = SimpleNamespace(_cache=FreshCache(), _lead=None)
    with pytest.raises(ValueError, match="broken"):
        await Replica._campaign(replica, Broken())  # type: ignore[arg-type]
