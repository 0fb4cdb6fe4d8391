"""A whole control plane of a test's own: etcd, replicas, joblets, a witness; all real, all gone afterwards.

Ready means: every replica stands for election, one has committed a cycle, every target is Ready, the unique resources
of the load exist.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from controlplane.client import Client
from controlplane.client.caller import CallTimeouts
from controlplane.wire.v1 import cluster_pb2, resources_pb2
from tests import encryption
from tests.credentials import TOKEN, cluster_key, record_token
from tests.etcd import Etcd, free_ports, running_etcd
from tests.robustness.parts import ROOT, Joblet, Replica
from tests.robustness.patience import PATIENCE_SECONDS
from tests.robustness.witness import Witness

# Of the load, and one for the test itself.
UNIQUE = ("licence-a", "licence-b", "licence-c")
OWN = "licence-own"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is different from the usual. `ways` gives a replica, by name, its own way to etcd; `flags` its own flags.

    `environment` is that of all replicas, `own_environment` that of one replica or joblet, by its name or target;
    `roots` says where the code of one is, when that is not here.
    """

    replicas: int = 3
    ttl: int = 3
    processes: int = 2
    simulated: int = 4
    flags: Mapping[str, Sequence[str]] = field(default_factory=dict)
    ways: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    own_environment: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    roots: Mapping[str, Path] = field(default_factory=dict)
    settings: cluster_pb2.Settings | None = None
    insecure: bool = False


class World:
    def __init__(self, folder: Path, etcd: Etcd, plan: Plan, witness: Witness) -> None:
        self.folder = folder
        self.etcd = etcd
        self.plan = plan
        self.ttl = plan.ttl
        self.witness = witness
        self.cluster_key = cluster_key(folder)
        self.replicas = {name: self._replica(name) for name in names(plan.replicas)}
        self.joblets: dict[str, Joblet] = {}
        self._client: Client | None = None

    def _replica(self, name: str) -> Replica:
        grpc, http = free_ports(2)
        return Replica(
            name,
            self.folder / "replicas",
            etcd=self.plan.ways.get(name, self.etcd.endpoint),
            ports=(grpc, http),
            flags=["--ttl", str(self.plan.ttl), *self._access(name), *self.plan.flags.get(name, ())],
            environment={**self.plan.environment, **self.plan.own_environment.get(name, {})},
            root=self.plan.roots.get(name, ROOT),
        )

    def close_access(self, name: str) -> None:
        """The replica is to ask for credentials from its next start on."""
        self.replicas[name].change_flags({"--insecure": []})

    def _access(self, name: str) -> list[str]:
        """Replicas of an older version know no keys and ask nobody for credentials, so that beside them none may."""
        if name in self.plan.roots:
            return []
        key = ["--cluster-key-file", str(self.cluster_key), *encryption.replica_flags()]
        return [*key, "--insecure"] if self.plan.insecure or self.plan.roots else key

    @property
    def endpoints(self) -> tuple[str, ...]:
        return tuple(replica.grpc for replica in self.replicas.values())

    @property
    def client(self) -> Client:
        """For what the test itself asks and tells; leaves a silent replica after a second."""
        if self._client is None:
            timeouts = CallTimeouts(attempt_seconds=2.0, total_seconds=PATIENCE_SECONDS)
            self._client = Client(self.endpoints, token=TOKEN, ca_file=encryption.ca_file(), timeouts=timeouts)
        return self._client

    @property
    def leader(self) -> Replica:
        return self.replicas[self.witness.leader]

    @property
    def standbys(self) -> list[Replica]:
        return [replica for replica in self.replicas.values() if replica is not self.leader]

    def add_process_target(
        self, target: str, endpoints: Sequence[str] = (), *, capacity: str = "cpu=4,real=4"
    ) -> Joblet:
        """A joblet that runs real commands, started at once."""
        return self._add(target, ["--driver", "process", "--capacity", capacity], endpoints)

    def add_simulated_targets(self, target: str, count: int, endpoints: Sequence[str] = ()) -> Joblet:
        flags = ["--driver", "simulated", "--count", str(count), "--capacity", "cpu=100,sim=100", "--duration", "50ms"]
        return self._add(target, flags, endpoints)

    def _add(self, target: str, flags: Sequence[str], endpoints: Sequence[str]) -> Joblet:
        joblet = Joblet(
            target,
            self.folder / "joblets",
            endpoints=endpoints or self.endpoints,
            flags=[*flags, *encryption.joblet_flags()],
            environment=self.plan.own_environment.get(target),
            root=self.plan.roots.get(target, ROOT),
        )
        self.joblets[target] = joblet
        joblet.start()
        return joblet

    async def start(self) -> None:
        """Returns when it is ready. What a joblet is told when it connects stays so, hence the settings come first."""
        await record_token(self.witness.store)
        for replica in self.replicas.values():
            replica.start()
        await self.witness.until(lambda: self.witness.cycles, "somebody leads")
        await self._furnish()
        for number in range(1, self.plan.processes + 1):
            self.add_process_target(f"local-{number}")
        if self.plan.simulated:
            self.add_simulated_targets("sim", self.plan.simulated)
        await self.ready()

    async def ready(self, *, beside: int = 0) -> None:
        """`beside`: keys in the queue of candidates that are no candidates."""
        witness = self.witness
        running = sum(replica.running for replica in self.replicas.values()) + beside
        targets = self.plan.processes + self.plan.simulated

        def holds() -> bool:
            phases = list(witness.targets.values())
            led = any(cycle.epoch == witness.epoch for cycle in witness.cycles)
            return led and witness.candidates() == running and phases.count("Ready") >= targets

        try:
            await witness.until(holds, f"{running} replicas stand, one leads, {targets} targets are Ready")
        except AssertionError as error:
            head = await witness.store.revision()
            seen = f"{witness.candidates()} stand, epoch {witness.epoch}, {witness.targets}"
            raise AssertionError(f"{error}: {seen}, at revision {witness.revision} of {head}") from None

    async def _furnish(self) -> None:
        objects = [
            cluster_pb2.Object(resource=resources_pb2.Resource(name=name, key="LICENCE", value=name, unique=True))
            for name in (*UNIQUE, OWN)
        ]
        if self.plan.settings is not None:
            objects.append(cluster_pb2.Object(settings=self.plan.settings))
        await self.client.cluster.apply(cluster_pb2.ApplyRequest(objects=objects))

    async def etcdctl(self, *arguments: str) -> str:
        return await asyncio.to_thread(self.etcd.etcdctl, *arguments)

    async def close(self) -> None:
        for part in (*self.joblets.values(), *self.replicas.values()):
            part.kill()
        for joblet in self.joblets.values():
            joblet.kill_commands()
        if self._client is not None:
            await self._client.close()


def names(count: int) -> list[str]:
    return [f"replica-{number}" for number in range(1, count + 1)]


@asynccontextmanager
async def a_world(folder: Path, plan: Plan | None = None, *, etcd: Etcd | None = None) -> AsyncIterator[World]:
    """Started and ready. With `etcd`, one that the test started before, for instance to put a proxy in front of it."""
    if etcd is None:
        with running_etcd(folder / "etcd") as own:
            async with a_world(folder, plan, etcd=own) as world:
                yield world
        return
    witness = Witness(etcd.endpoint)
    async with witness.watching():
        world = World(folder, etcd, plan or Plan(), witness)
        try:
            await world.start()
            yield world
        finally:
            await world.close()
