"""One election at a time: who leads, what ends a term, and what is written down about it."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from controlplane.election.election_settings import ElectionSettings
from controlplane.election.held_leadership import Leadership
from controlplane.model import errors
from controlplane.model.leadership import Term
from controlplane.store import keys
from controlplane.store.transaction import Item, put
from tests.component.election_stage import PROOF, Replica, followed, proof
from tests.etcd import Etcd
from tests.proxy import proxied

SHORT = ElectionSettings(ttl_seconds=2, pulse_silence_seconds=1.0, loop_silence_seconds=1.0, tick_seconds=0.05)


async def test_one_of_three_leads_and_all_know_it(etcd: Etcd) -> None:
    async with AsyncExitStack() as stack:
        replicas = []
        for name in ("a", "b", "c"):
            replicas.append(await stack.enter_async_context(Replica(etcd.endpoint, name).running()))
            await replicas[-1].queued()
        leadership = await replicas[0].terms.get()
        for replica in replicas:
            await replica.view.until(replica.election.leader)
            term = replica.election.leader()
            assert term is not None
            assert (term.id, term.epoch) == ("a", leadership.epoch)
            assert term.ended is not None
            assert term.ended.how == "first"
        assert [replica.terms.empty() for replica in replicas[1:]] == [True, True]


async def test_etcdctl_names_the_leader(etcd: Etcd) -> None:
    async with Replica(etcd.endpoint, "a").running() as first:
        leadership = await first.terms.get()
        listening = await asyncio.create_subprocess_exec(
            "etcdctl",
            f"--endpoints={etcd.endpoint}",
            "elect",
            "-l",
            "/controlplane/election",
            stdout=asyncio.subprocess.PIPE,
        )
        assert listening.stdout is not None
        try:
            key = await listening.stdout.readline()
            value = await listening.stdout.readline()
        finally:
            listening.kill()
            await listening.communicate()
        assert key.decode().strip() == leadership.key
        assert b'"id":"a"' in value


async def test_the_work_of_a_term_begins_when_the_view_shows_its_record(etcd: Etcd) -> None:
    seen: asyncio.Future[Term | None] = asyncio.get_running_loop().create_future()
    replica = Replica(etcd.endpoint, "a")

    async def lead(leadership: Leadership) -> None:
        seen.set_result(replica.view.last_term())
        await leadership.lost.wait()

    async with replica.running(lead):
        term = await seen
    assert term is not None
    assert term.id == "a"


@pytest.mark.parametrize("fault", ["revoke", "delete"])
async def test_a_leader_whose_key_goes_demotes_itself_and_campaigns_again(etcd: Etcd, fault: str) -> None:
    async with Replica(etcd.endpoint, "a").running() as replica:
        first = await replica.terms.get()
        if fault == "revoke":
            etcd.etcdctl("lease", "revoke", first.key.rpartition("/")[2])
        else:
            etcd.etcdctl("del", first.key)
        assert await replica.ended.get() is first
        second = await replica.terms.get()
        assert second.epoch > first.epoch
        assert [term.ended.how for term in replica.view.terms() if term.ended] == ["first", "lease-gone"]
        with pytest.raises(errors.Deposed):
            await replica.store.commit_group([proof("late")], fence=first.fence)
        assert await replica.store.get(PROOF) is None


async def test_a_standby_whose_lease_goes_queues_again_behind(etcd: Etcd) -> None:
    async with Replica(etcd.endpoint, "a").running() as first:
        leadership = await first.terms.get()
        async with Replica(etcd.endpoint, "b").running() as second:
            await second.queued()
            old = second.view.candidates()[1]
            etcd.etcdctl("lease", "revoke", f"{old.lease:x}")
            await second.view.until(
                lambda: len(second.view.candidates()) == 2 and second.view.candidates()[1].key != old.key
            )
            assert not leadership.lost.is_set()


async def test_stepping_down_hands_over_and_queues_again(etcd: Etcd) -> None:
    async with Replica(etcd.endpoint, "a").running() as first:
        leadership = await first.terms.get()
        async with Replica(etcd.endpoint, "b").running() as second:
            await second.queued()
            await followed(first, 1)
            assert await first.election.step_down() == leadership.epoch
            assert first.ended.get_nowait() is leadership
            await second.terms.get()
            last = second.view.last_term()
            assert last is not None
            assert last.ended is not None
            assert (last.ended.epoch, last.ended.how) == (leadership.epoch, "stepped-down")
            with pytest.raises(errors.Refused):
                await first.election.step_down()
            await second.view.until(lambda: [e.candidate.id for e in second.view.candidates()] == ["b", "a"])


@pytest.mark.parametrize("failure", [None, RuntimeError("the work broke")])
async def test_work_that_ends_by_itself_ends_the_term(etcd: Etcd, failure: Exception | None) -> None:
    epochs: asyncio.Queue[int] = asyncio.Queue()

    async def lead(leadership: Leadership) -> None:
        epochs.put_nowait(leadership.epoch)
        if failure is not None:
            raise failure

    async with Replica(etcd.endpoint, "a").running(lead):
        assert await epochs.get() < await epochs.get()


async def test_a_cancelled_election_leaves_no_key_behind(etcd: Etcd) -> None:
    async with Replica(etcd.endpoint, "a").running() as replica:
        await replica.terms.get()
    assert etcd.etcdctl("get", "--prefix", "--keys-only", keys.CANDIDATES.prefix).strip() == ""


@pytest.mark.parametrize("direction", ["up", "down"])
async def test_a_leader_cut_off_from_etcd_demotes_itself_before_the_next_leads(etcd: Etcd, direction: str) -> None:
    """Its pulse still beats, so only the lease can end the term."""
    async with proxied(etcd.endpoint) as proxy, Replica(proxy.url, "cut", SHORT).running() as cut:
        leadership = await cut.terms.get()
        async with Replica(etcd.endpoint, "next", SHORT).running() as following:
            await following.queued()
            proxy.hold(up=direction == "up", down=direction == "down")
            assert await cut.ended.get() is leadership
            assert leadership.why == "deadline"
            with pytest.raises(errors.Deposed):
                await leadership.commit([proof("cut")])
            await following.terms.get()
            proxy.release()
            await following.view.until(lambda: len(following.view.candidates()) == 2)
            assert await following.store.get(PROOF) is None


async def test_a_leader_survives_a_restart_of_etcd_within_its_lease(etcd: Etcd) -> None:
    async with Replica(etcd.endpoint, "a").running() as replica:
        leadership = await replica.terms.get()
        await asyncio.to_thread(etcd.restart)
        await replica.store.commit(Item(then=(put(f"{keys.ROOT}status/targets/x", b"{}"),)))
        await leadership.commit([proof("still")])
        assert not leadership.lost.is_set()


async def test_a_leader_is_there_again_after_etcd_was_away_longer_than_the_lease(etcd: Etcd) -> None:
    async with Replica(etcd.endpoint, "a", SHORT).running() as first:
        leadership = await first.terms.get()
        async with Replica(etcd.endpoint, "b", SHORT).running() as second:
            await second.queued()
            await asyncio.to_thread(etcd.kill)
            assert await first.ended.get() is leadership
            await asyncio.to_thread(etcd.restart)
            again = {asyncio.create_task(replica.terms.get()) for replica in (first, second)}
            done, waiting = await asyncio.wait(again, return_when=asyncio.FIRST_COMPLETED)
            for task in waiting:
                task.cancel()
            following = done.pop().result()
            assert following.epoch > leadership.epoch
            await following.commit([proof("again")])
            with pytest.raises(errors.Deposed):
                await first.store.commit_group([proof("late")], fence=leadership.fence)
