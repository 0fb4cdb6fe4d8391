"""What a leader wrote before it was followed, and what reaches etcd only afterwards, is refused by etcd itself.

Shown by etcd's own answers, read on the wire.
"""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

from controlplane.client import Client
from tests import encryption
from tests.credentials import TOKEN
from tests.fault_reports import Tell
from tests.robustness import promises
from tests.robustness.frames import fenced_writes
from tests.robustness.load import an_order, load
from tests.robustness.network import linked_to_etcd
from tests.robustness.parts import Replica
from tests.robustness.patience import until
from tests.robustness.recovery import Fault
from tests.robustness.world import Plan, names

# A lease that outlives the pause: the woken leader has no reason of its own to believe that it was followed.
PLAN = Plan(ttl=10, flags={name: ["--pulse-silence", "1.0"] for name in names(3)})


async def submit_through(replica: Replica) -> None:
    async with Client([replica.grpc], token=TOKEN, ca_file=encryption.ca_file()) as client:
        await client.orders.submit(an_order(client.mint.make()))


async def test_a_transaction_held_back_until_its_leader_was_followed_is_refused(tmp_path: Path, tell: Tell) -> None:
    async with linked_to_etcd(tmp_path, PLAN, transcribe=True) as (world, links), load(world.endpoints) as running:
        rates = await running.warm()
        old, link = world.leader, links[world.leader.name]
        # HTTP/2 lets etcd tell a stopped reader only so much: its answer must not queue behind a flood of changes.
        running.pause()
        await promises.final(world, running.acknowledged)
        link.hold(link.up)
        await submit_through(world.standbys[0])
        await until(lambda: not all(write.passed for write in fenced_writes(link)), "a transaction is held")
        fault = Fault(world)
        old.signal(signal.SIGSTOP)
        told = await fault.followed(within=3.0, rates=rates)
        held = [at for at, write in enumerate(fenced_writes(link)) if not write.passed]
        assert held, "the network still holds what the old leader wrote"
        link.release()
        await until(lambda: all(fenced_writes(link)[at].answered for at in held), "etcd has answered each")
        answers = [fenced_writes(link)[at] for at in held]
        assert all(answer.passed and answer.succeeded is False for answer in answers), answers
        tell(f"{told}; {len(answers)} transactions came late, each was refused by etcd")
        old.signal(signal.SIGCONT)
        running.resume()
        await world.ready()
        await promises.kept(world, running)


async def test_a_leader_that_wakes_up_after_another_took_over_has_its_write_refused(tmp_path: Path, tell: Tell) -> None:
    """It is paused between deciding and writing, and hears nothing of what happened until its write is answered."""
    armed = tmp_path / "pause"
    plan = replace(PLAN, environment={"CONTROLPLANE_FAILPOINTS": f"scheduler.before-commit=block:1@{armed}"})
    async with linked_to_etcd(tmp_path, plan, transcribe=True) as (world, links), load(world.endpoints) as running:
        rates = await running.warm()
        old, link = world.leader, links[world.leader.name]
        armed.touch()
        await until(lambda: not armed.exists(), "the leader is about to write")
        fault = Fault(world)
        link.hold(link.down)
        old.signal(signal.SIGSTOP)
        told = await fault.followed(within=3.0, rates=rates)
        before = len(fenced_writes(link))
        old.signal(signal.SIGCONT)
        answered = await until(lambda: [w for w in fenced_writes(link)[before:] if w.answered], "it wrote")
        assert all(write.succeeded is False for write in answered), "etcd refused what the woken leader wrote"
        tell(f"{told}; what the woken leader wrote ({len(answered)} transactions) was refused by etcd")
        link.release()
        await world.ready()
        await promises.kept(world, running)
