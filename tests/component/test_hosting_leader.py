"""The leader names hosts: on a real etcd, woken by what matters, and interrupted after any write."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from msgspec.structs import replace

from controlplane.aio.clock import SystemClock
from controlplane.cache.ledgers import Touched
from controlplane.controller_manager.hosting_controller import HostingController
from controlplane.controller_manager.runner import Runner
from controlplane.election.election_settings import ElectionSettings
from controlplane.election.peer_presence import PeerPresence
from controlplane.model.errors import Deposed
from controlplane.model.leadership import Candidate
from controlplane.model.secret import Sealed, Secret
from controlplane.model.target import Target
from controlplane.store import keys
from controlplane.store.fenced import FencedWriter
from tests.builders import a_session
from tests.component.leader_stage import Mortal, Replica, following, lead, running
from tests.component.test_election_peer_presence import a_pulse
from tests.etcd import Etcd


@pytest.fixture
async def replica(shared: Etcd) -> AsyncIterator[Replica]:
    async with following(shared.endpoint, Replica) as started:
        await started.wipe()
        yield started


def a_candidate(name: str, life: str = "", *, opens: tuple[str, ...] = ("k",)) -> Candidate:
    life = life or f"{name}-1"
    return Candidate(id=name, incarnation=life, grpc="", http="", pulse="", pid=1, version="1", keys=opens)


def a_secret() -> Secret:
    return Secret(name="s", id="s1", sealed=Sealed(key="k", nonce="", text=""))


def a_guest(name: str) -> Target:
    return Target(name=name, id=f"id-{name}", driver="kubernetes", kubeconfig_secret="s")


async def three_replicas(replica: Replica, guests: int) -> None:
    """Candidates beside the one that leads, which has no keys."""
    await replica.write({f"{keys.CANDIDATES.prefix}{name}": a_candidate(name) for name in ("a", "b", "c")})
    await replica.write({keys.config("secrets", "s"): a_secret()})
    await replica.write({keys.config("targets", f"t{n}"): a_guest(f"t{n}") for n in range(guests)})


def hosts(replica: Replica) -> dict[str, str]:
    found = (entry.read() for entry in replica.cache.snapshot.all(keys.HOSTING))
    return {one.target: one.incarnation for one in found}


async def test_guests_are_spread_and_move_when_their_host_is_gone(replica: Replica) -> None:
    await three_replicas(replica, 6)
    term, writer = await lead(replica)
    async with running(
        Runner(HostingController(replica.ledgers, replica.settling(writer)), replica.ledgers, SystemClock()).run()
    ):
        await replica.until(lambda: len(hosts(replica)) == 6)
        before = hosts(replica)
        assert max(Counter(before.values()).values()) <= 2
        await replica.write({f"{keys.CANDIDATES.prefix}a": None})
        await replica.until(lambda: set(hosts(replica).values()) == {"b-1", "c-1"})
        assert all(life == hosts(replica)[name] for name, life in before.items() if life != "a-1")
        # It stands again under its name: what is more than a share of it comes back.
        await replica.write({f"{keys.CANDIDATES.prefix}a2": a_candidate("a", "a-2")})
        await replica.until(lambda: sorted(Counter(hosts(replica).values()).values()) == [2, 2, 2])
    record = replica.read(keys.HOSTING, "t0")
    assert record is not None
    assert record.epoch == term.epoch


async def test_who_is_not_hosted_any_more_has_no_record_and_who_cannot_be_says_why(replica: Replica) -> None:
    await three_replicas(replica, 3)
    _, writer = await lead(replica)
    async with running(
        Runner(HostingController(replica.ledgers, replica.settling(writer)), replica.ledgers, SystemClock()).run()
    ):
        await replica.until(lambda: len(hosts(replica)) == 3)
        await replica.write({keys.config("targets", "t0"): None})
        await replica.write({keys.config("targets", "t1"): Target(name="t1", id="id-t1", driver="kubernetes")})
        await replica.until(lambda: list(hosts(replica)) == ["t2"])
        await replica.write({keys.config("secrets", "s"): None})
        await replica.until(lambda: hosts(replica) == {"t2": ""})
    record = replica.read(keys.HOSTING, "t2")
    assert record is not None
    assert "not there" in record.reason


async def test_beats_and_work_of_a_target_concern_nobody(replica: Replica) -> None:
    await three_replicas(replica, 1)
    _, writer = await lead(replica)
    controller = HostingController(replica.ledgers, replica.settling(writer))
    assert list(controller.keys_affected_by(Touched(targets={"t0"}))) == ["hosting"]
    await controller.reconcile("hosting")
    await replica.write({keys.live("t0"): a_session("t0", cpu=1)})
    assert not list(controller.keys_affected_by(Touched(targets={"t0"})))
    assert not list(controller.keys_affected_by(Touched(orders={"o"}, config={"cycles"})))
    before = replica.cache.revision
    await controller.reconcile("hosting")
    assert await replica.store.revision() == before


async def test_a_leader_that_dies_after_any_write_leaves_what_the_next_one_completes(replica: Replica) -> None:
    for writes in range(4):
        await replica.wipe()
        await three_replicas(replica, 3)
        term, _ = await lead(replica)
        with suppress(Deposed):
            await HostingController(replica.ledgers, replica.settling(FencedWriter(Mortal(term, writes)))).reconcile(
                "hosting"
            )
        await term.end()
        await replica.cache.reached(await replica.store.revision(), 30)
        _, writer = await lead(replica)
        await HostingController(replica.ledgers, replica.settling(writer)).reconcile("hosting")
        assert len(hosts(replica)) == 3
        assert max(Counter(hosts(replica).values()).values()) == 1


async def test_who_does_not_answer_hosts_nobody_before_its_lease_runs_out(replica: Replica) -> None:
    pulses = {name: a_pulse(f"{name}-1") for name in ("a", "b")}
    for name, pulse in pulses.items():
        await replica.write({f"{keys.CANDIDATES.prefix}{name}": replace(a_candidate(name), pulse=pulse.address)})
    await replica.write({keys.config("secrets", "s"): a_secret(), keys.config("targets", "t"): a_guest("t")})
    _, writer = await lead(replica)
    controller = HostingController(replica.ledgers, replica.settling(writer), PeerPresence(ElectionSettings(), "i"))
    runner = Runner(controller, replica.ledgers, SystemClock())
    async with running(runner.run(), controller.attend(runner.add)):
        await replica.until(lambda: bool(hosts(replica)))
        first = hosts(replica)["t"]
        dead, other = pulses[first[0]], "b-1" if first == "a-1" else "a-1"
        async with asyncio.timeout(30):
            while not dead.followers():
                await asyncio.sleep(0.02)
        dead.stop(5)
        await replica.until(lambda: hosts(replica) == {"t": other})
    for pulse in pulses.values():
        pulse.stop(5)
