"""The composition root of a replica: builds the real things, wires them, runs them.

One process: one set of etcd channels, one watch cache shared by its three components. The apiserver always runs; the
scheduler and the controllers run in one task group per term, which is cancelled when the term ends.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import structlog

import controlplane
from controlplane.aio import descriptors
from controlplane.aio.clock import Clock, SystemClock, chance, wall_milliseconds
from controlplane.aio.failpoint import Failpoints
from controlplane.apiserver.dependencies import ApiDependencies
from controlplane.apiserver.server import ApiServer
from controlplane.apiserver.writer import Writer
from controlplane.cache.ledgers import Ledgers
from controlplane.cache.reflector import Cache, Delta
from controlplane.cache.settings import settings_of
from controlplane.controller_manager import controllers, restoring
from controlplane.controller_manager.archive import Archive
from controlplane.controller_manager.keeping import Keeping
from controlplane.controller_manager.scaling_made import Provider, Providing
from controlplane.election.attendance import Attendance
from controlplane.election.election import Election
from controlplane.election.leadership import Leadership
from controlplane.election.race import cancel
from controlplane.election.settings import ElectionSettings
from controlplane.election.view import CandidateEntry
from controlplane.hosting.host import Host, Launch
from controlplane.model.errors import ControlPlaneError, Deposed, Refused, Unavailable
from controlplane.model.event import Folding
from controlplane.model.identity import Mint
from controlplane.model.leadership import Candidate, Term
from controlplane.model.scalepolicy import CLUSTER_API
from controlplane.providers.local import LocalProvider
from controlplane.providers.webhook import WebhookProvider
from controlplane.quarantine import Quarantine
from controlplane.scheduler.cycle import Scheduler
from controlplane.scheduler.survey import Survey
from controlplane.sealing import read_keys
from controlplane.settings import ReplicaSettings, address, size
from controlplane.store import keys
from controlplane.store.channel import EtcdOptions
from controlplane.store.event_log import EventLog, Leases
from controlplane.store.fenced import FencedWriter
from controlplane.store.kv import Store
from controlplane.store.lease import Renewals
from controlplane.store.space import SpaceWatch

log = structlog.get_logger(__name__)

# The controllers do not wait for longer than this for a first cycle that places very much.
_SWITCH_SECONDS = 0.0005
_FIRST_CYCLE_SECONDS = 2.0
_AGAIN_SECONDS = 0.2
_FRESH_SECONDS = 0.05
JOBLET = (sys.executable, "-P", "-m", "controlplane.cli.controlplane", "joblet")


class ElectionView:
    """What the election sees of etcd, read from the cache."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._changed_at = 0
        self._waiting: set[asyncio.Future[int]] = set()
        cache.subscribe(self._hear)

    def _hear(self, deltas: Sequence[Delta], revision: int) -> None:
        if not any(delta.tree in ("election", "terms") for delta in deltas):
            return
        self._changed_at = revision
        for future in self._waiting:
            if not future.done():
                future.set_result(revision)
        self._waiting.clear()

    def revision(self) -> int:
        return self._cache.revision

    def candidates(self) -> Sequence[CandidateEntry]:
        found = []
        for entry in self._cache.snapshot.all("election"):
            candidate, stored = entry.sound(Candidate), entry.stored
            # Nobody renews what has no lease, or another than its key names: it would stand for ever.
            if candidate is not None and stored.lease and stored.key == keys.candidate(stored.lease):
                found.append(
                    CandidateEntry(stored.key, candidate, stored.create_revision, stored.mod_revision, stored.lease)
                )
        return sorted(found, key=lambda candidate: candidate.create_revision)

    def last_term(self) -> Term | None:
        """The newest record that is sane and of an epoch before it: what else stands in that tree is no term."""
        snapshot = self._cache.snapshot
        for name in sorted(snapshot.names("terms"), reverse=True):
            entry = snapshot.get("terms", name)
            term = entry.sound(Term) if entry is not None else None
            if term is not None and entry is not None and term.epoch < entry.stored.create_revision:
                return term
        return None

    async def reached(self, revision: int) -> None:
        """Who asks has a time-out of its own, also for a cache that is stale meanwhile."""
        while True:
            with suppress(Unavailable):
                return await self._cache.reached(revision, None)
            await asyncio.sleep(_AGAIN_SECONDS)

    async def changed(self, after_revision: int) -> int:
        if self._changed_at > after_revision:
            return self._cache.revision
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            return await future
        finally:
            self._waiting.discard(future)


class Seat:
    """The election as the apiserver knows it: it serves, and so has an address to stand with, before it stands."""

    def __init__(self) -> None:
        self.election: Election | None = None

    def leader(self) -> Term | None:
        return self.election.leader() if self.election is not None else None

    def clocks_off(self) -> Mapping[str, float]:
        return self.election.clocks_off() if self.election is not None else {}

    async def step_down(self) -> int:
        if self.election is None:
            raise Refused("this replica does not lead")
        return await self.election.step_down()


class Replica:
    def __init__(self, settings: ReplicaSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._failpoints = Failpoints(settings.failpoints)
        self._mint = Mint(wall_milliseconds, chance)
        self._incarnation = self._mint.make()
        options = EtcdOptions(settings.etcd, settings.etcd_ca, settings.etcd_cert, settings.etcd_key)
        self._store = Store(options, clock)
        # What fails in this replica whoever leads; a term has a quarantine of its own.
        self._quarantine = Quarantine(clock, lambda happening: self._events.record(happening))
        self._cache = Cache(self._store, clock, check_seconds=settings.cache_check, quarantine=self._quarantine)
        self._ledgers = Ledgers(self._cache)
        self._survey = Survey(self._ledgers, clock)
        self._keeping = Keeping.on(
            self._ledgers, grant=self._store.grant, make_identity=self._mint.make, replica=settings.id
        )
        # What this replica itself has to tell, whoever leads.
        self._events = EventLog(
            Folding(self._mint.make, by=f"apiserver@{settings.id}", at=clock.monotonic()),
            self._store.commit_group,
            Leases(self._store.grant, lambda: float(settings_of(self._cache.snapshot).event_ttl), clock),
            clock,
        )
        self._keyring = read_keys(settings.secret_key_file, chance)
        self._renewals = Renewals(self._store.channels)
        self._archive = self._open_archive()
        self._space = SpaceWatch(self._store.channels, size(settings.etcd_quota, "etcd_quota"))
        self._providing = Providing(providers_of(settings, clock), self._mint.make)

    async def run(self, stop: asyncio.Event) -> None:
        """Serves until `stop` is set, then steps down first and stops serving last."""
        incarnation = self._incarnation
        async with asyncio.TaskGroup() as tasks:
            supervise = self._quarantine.supervise
            running = (
                self._cache.run(),
                supervise("replica", "Cluster", "lease renewals", self._renewals.run),
                supervise("replica", "Cluster", "events", self._events.run),
                supervise("replica", "Cluster", "survey", self._survey.follow),
            )
            following = [tasks.create_task(work) for work in running]
            await self._cache.filled()
            self._failpoints.reach("replica.listed")
            await self._know_etcd()
            following.append(tasks.create_task(self._space.run()))
            seat = Seat()
            server = ApiServer(
                self._dependencies(seat, incarnation),
                grpc_address=self._settings.grpc,
                http_address=self._settings.http,
            )
            await server.start()
            seat.election = self._election(incarnation, server)
            campaign = tasks.create_task(self._campaign(seat.election))
            hosting = tasks.create_task(self._host(incarnation, server.grpc_address))
            await stop.wait()
            campaign.cancel()
            with suppress(asyncio.CancelledError):
                await campaign
            # By now the leader gives what is hosted here to others.
            hosting.cancel()
            await asyncio.gather(hosting, server.stop(), return_exceptions=True)
            for task in following:
                task.cancel()
        await self._store.close()

    def _open_archive(self) -> Archive | None:
        if not self._settings.archive:
            return None
        full = size(self._settings.archive_bytes, "archive_bytes")
        return Archive(Path(self._settings.archive), self._settings.id, self._clock, full_bytes=full)

    async def _know_etcd(self) -> None:
        """Which etcd this is must be known before anybody is served or led."""
        while not self._space.cluster_id:
            try:
                await self._space.look()
            except Unavailable as error:
                log.warning("etcd does not tell how it is", error=str(error))
                await self._clock.sleep(_AGAIN_SECONDS)

    def _election(self, incarnation: str, server: ApiServer) -> Election:
        settings = self._settings
        candidate = Candidate(
            id=settings.id,
            incarnation=incarnation,
            grpc=server.grpc_address,
            http=server.http_address,
            pulse="",
            pid=os.getpid(),
            version=controlplane.__version__,
            keys=self._keyring.ids,
        )
        return Election(self._store, ElectionView(self._cache), election_settings(settings), candidate, self._clock)

    async def _host(self, incarnation: str, endpoint: str) -> None:
        """Its joblets speak to this replica alone: cut off from etcd it cannot serve them, and another hosts them."""
        command = (*JOBLET, "--driver", "kubernetes", "--hosted", "--endpoints", endpoint)
        with folder_of(self._settings) as folder:
            launch = Launch(command, _environment(self._settings), folder)
            record, clock = self._events.record, self._clock
            host = Host(self._cache, self._keyring, incarnation, launch=launch, record=record, clock=clock)
            await self._quarantine.supervise("hosting", "Cluster", "hosted joblets", host.run)

    def _dependencies(self, seat: Seat, incarnation: str) -> ApiDependencies:
        return ApiDependencies(
            store=self._store,
            cache=self._cache,
            ledgers=self._ledgers,
            writer=Writer(self._store, self._space.look_soon),
            renewals=self._renewals,
            election=seat,
            mint=self._mint,
            clock=self._clock,
            replica_id=self._settings.id,
            version=controlplane.__version__,
            incarnation=incarnation,
            space=self._space,
            keyring=self._keyring,
            record=self._events.record,
            quarantine=self._quarantine,
        )

    async def _campaign(self, election: Election) -> None:
        """Stands while the cache is fresh: a stale one shows neither a turn to lead nor its end."""
        while True:
            standing = asyncio.create_task(election.run(self._lead))
            stale = asyncio.create_task(self._cache.stale())
            try:
                await asyncio.wait({standing, stale}, return_when=asyncio.FIRST_COMPLETED)
                if not standing.done() and election.leadership is not None:
                    election.leadership.demote("blind")
                    await election.leadership.over.wait()
            finally:
                stale.cancel()
                # Awaiting the task itself would take a cancellation of this one for the end of that one.
                await cancel(standing)
            if not standing.cancelled():
                standing.result()
            while self._cache.is_stale:
                await self._clock.sleep(_FRESH_SECONDS)

    async def _lead(self, leadership: Leadership) -> None:
        """One term. Returns when this leader is found deposed; anything unexpected ends the term too, loudly."""
        self._failpoints.reach("replica.leading")
        writer = FencedWriter(leadership)
        quarantine = Quarantine(self._clock, self._events.record)
        scheduler = Scheduler(
            self._ledgers,
            writer,
            self._clock,
            make_identity=self._mint.make,
            failpoints=self._failpoints,
            quarantine=quarantine,
            survey=self._survey,
        )
        upkeep = controllers.Upkeep(self._store, self._space, self._archive)
        try:
            await restoring.take_note(self._ledgers, writer, self._clock, self._space.cluster_id, quarantine)
            async with asyncio.TaskGroup() as term:
                term.create_task(scheduler.run())
                with suppress(TimeoutError):
                    # The first round over everything that is known is long; placing goes on before it.
                    async with asyncio.timeout(_FIRST_CYCLE_SECONDS):
                        await scheduler.begun.wait()
                running = controllers.run(
                    self._ledgers,
                    writer,
                    self._clock,
                    upkeep=upkeep,
                    providing=self._providing,
                    attendance=Attendance(election_settings(self._settings), self._incarnation),
                    failpoints=self._failpoints,
                    quarantine=quarantine,
                )
                term.create_task(running)
                term.create_task(self._keeping.run(writer, self._clock, quarantine))
        except* Deposed as deposed:
            log.info("deposed", epoch=leadership.epoch, why=str(deposed.exceptions[0]))
        except* ControlPlaneError as failed:
            log.error("the term failed", epoch=leadership.epoch, errors=[str(error) for error in failed.exceptions])


def providers_of(settings: ReplicaSettings, clock: Clock) -> dict[str, Provider]:
    """What this replica makes targets with when it leads, as far as its settings say how."""
    found: dict[str, Provider] = {}
    if settings.local_targets:
        endpoints = settings.local_endpoints.split(",") if settings.local_endpoints else [settings.grpc]
        found["local"] = LocalProvider(Path(settings.local_targets).absolute(), endpoints, _environment(settings))
    secret = settings.read_webhook_secret()
    if secret:
        found["webhook"] = WebhookProvider(secret, clock)
    if settings.cluster_api_kubeconfig:
        # The client takes a second to import, which no other replica has to wait for.
        from controlplane.providers.cluster_api import ClusterApiProvider, by_file

        found[CLUSTER_API] = ClusterApiProvider(by_file(settings.cluster_api_kubeconfig), clock)
    return found


def election_settings(settings: ReplicaSettings) -> ElectionSettings:
    host, port = address(settings.pulse, "pulse")
    return ElectionSettings(
        ttl_seconds=settings.ttl,
        loop_silence_seconds=settings.loop_silence,
        pulse_silence_seconds=settings.pulse_silence,
        pulse_beat_seconds=settings.pulse_beat,
        pulse_answer_seconds=settings.pulse_answer,
        pulse_host=host,
        pulse_port=port,
        pulse_advertise=settings.pulse_advertise,
    )


@contextmanager
def folder_of(settings: ReplicaSettings) -> Iterator[Path]:
    """Where hosted joblets have their files: each replica its own, since two joblets never share a folder."""
    if settings.hosting_dir:
        yield Path(settings.hosting_dir).absolute() / settings.id
    else:
        with tempfile.TemporaryDirectory(prefix="controlplane-hosted-", ignore_cleanup_errors=True) as folder:
            yield Path(folder)


def _environment(settings: ReplicaSettings) -> dict[str, str]:
    """For what this replica starts: its own, without what is meant for itself alone."""
    secret = settings.webhook_secret.removeprefix("env:")
    return {
        name: value for name, value in os.environ.items() if not name.startswith("CONTROLPLANE_") and name != secret
    }


async def run(settings: ReplicaSettings) -> None:
    """Runs one replica until SIGTERM or SIGINT."""
    # A replica holds hundreds of thousands of long-lived objects; looking for cycles among them again and again would
    # stop the loop for longer than a cycle takes. What the modules hold by now stays for good.
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)
    # Large decisions are made in a thread: who asks something meanwhile must not wait 5 ms for each turn of the loop.
    sys.setswitchinterval(_SWITCH_SECONDS)
    descriptors.raise_limit()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    await Replica(settings, SystemClock()).run(stop)
