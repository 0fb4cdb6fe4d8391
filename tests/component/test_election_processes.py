"""Elections between real processes on a real etcd, with leases so long that none of them ends by itself."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from controlplane.election.queue_position import PULSE_ENDS
from controlplane.model.leadership import Term
from controlplane.store import codec, keys
from tests.component.election_stage import LONG, PROOF, Line, Process, Replica
from tests.etcd import Etcd


@pytest.fixture
async def watcher(etcd: Etcd) -> AsyncIterator[Replica]:
    """A replica that never campaigns: its store and its view look from outside."""
    async with Replica(etcd.endpoint, "watcher").watching() as looker:
        yield looker


@pytest.fixture
async def three(etcd: Etcd) -> AsyncIterator[list[Process]]:
    """Three processes in the order of the queue, each with the pulse of those ahead; the first leads."""
    async with AsyncExitStack() as stack:
        processes = []
        for name in ("replica-1", "replica-2", "replica-3"):
            process = await stack.enter_async_context(Process(etcd.endpoint, name).running())
            await process.told("queued")
            processes.append(process)
        await processes[0].told("leads")
        for process, behind in ((processes[0], 2), (processes[1], 1)):
            process.command(f"followed {behind}")
            await process.told("followed")
        yield processes


async def term_of(watcher: Replica, line: Line) -> Term:
    found = await watcher.store.get(keys.term(line.epoch))
    assert found is not None
    return codec.decode(found.value, Term)


async def test_the_next_leads_when_the_leader_is_killed(three: list[Process], watcher: Replica) -> None:
    three[0].signal(signal.SIGKILL)
    leads = await three[1].told("leads")
    term = await term_of(watcher, leads)
    assert term.id == "replica-2"
    assert term.ended is not None
    assert term.ended.how == "pulse-closed"
    three[1].signal(signal.SIGKILL)
    again = await three[2].told("leads")
    ended = (await term_of(watcher, again)).ended
    assert ended is not None
    assert (ended.epoch, ended.how) == (leads.epoch, "pulse-closed")


async def test_a_dead_standby_leaves_the_queue_and_never_comes_to_lead(three: list[Process], watcher: Replica) -> None:
    three[1].signal(signal.SIGKILL)
    await watcher.view.until(lambda: [e.candidate.id for e in watcher.view.candidates()] == ["replica-1", "replica-3"])
    three[0].signal(signal.SIGKILL)
    ended = (await term_of(watcher, await three[2].told("leads"))).ended
    assert ended is not None
    assert ended.how == "pulse-closed"


async def test_the_next_leads_when_the_leader_is_told_to_end(three: list[Process], watcher: Replica) -> None:
    three[0].signal(signal.SIGTERM)
    leads = await three[1].told("leads")
    assert await three[0].gone() == 0
    ended = (await term_of(watcher, leads)).ended
    assert ended is not None
    assert ended.how == "stepped-down"


async def test_a_stopped_leader_is_followed_and_refused_when_it_wakes(three: list[Process], watcher: Replica) -> None:
    three[0].signal(signal.SIGSTOP)
    leads = await three[1].told("leads")
    ended = (await term_of(watcher, leads)).ended
    assert ended is not None
    assert ended.how == "pulse-silent"
    three[0].command("write")
    three[0].signal(signal.SIGCONT)
    refused = await three[0].told("refused")
    assert refused.epoch == ended.epoch
    assert await watcher.store.get(PROOF) is None


async def test_a_woken_leader_demotes_itself_and_queues_again(three: list[Process], watcher: Replica) -> None:
    three[0].signal(signal.SIGSTOP)
    leads = await three[1].told("leads")
    three[0].signal(signal.SIGCONT)
    assert (await three[0].told("demoted")).why == "key-gone"
    await watcher.view.until(lambda: [e.candidate.id for e in watcher.view.candidates()][-1] == "replica-1")
    acting = watcher.election.leader()
    assert acting is not None
    assert acting.epoch == leads.epoch


async def test_a_stopped_standby_changes_nothing(three: list[Process], watcher: Replica) -> None:
    """It wakes with a full buffer of beats and an old view, and must conclude nothing from either."""
    epoch = (watcher.election.leader() or pytest.fail("nobody leads")).epoch
    three[2].signal(signal.SIGSTOP)
    # Longer than any silence; the time itself is the fault that is made.
    await asyncio.sleep(2 * LONG.pulse_silence_seconds)
    three[2].signal(signal.SIGCONT)
    three[2].command("followed 0")
    await three[2].told("followed")
    three[0].signal(signal.SIGTERM)
    ended = (await term_of(watcher, await three[1].told("leads"))).ended
    assert ended is not None
    assert ended.epoch == epoch
    assert ended.how not in PULSE_ENDS


async def test_a_blocked_loop_loses_its_lease_to_the_next(three: list[Process], watcher: Replica) -> None:
    three[0].command("block 5")
    leads = await three[1].told("leads")
    ended = (await term_of(watcher, leads)).ended
    assert ended is not None
    assert ended.how == "stepped-down"
    assert (await three[0].told("demoted")).epoch == ended.epoch
    three[0].command("write")
    await three[0].told("refused")
