"""The composition root of a replica: builds the components and their ports, wires them, runs them.

A replica is a process with a single set of etcd channels and a watch cache shared by its three components. The
apiserver always runs; the scheduler and the controllers run in a task group per term, cancelled when the term ends.
"""

from __future__ import annotations

import asyncio
import gc
import getpass
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import structlog

import controlplane
from controlplane.aio import descriptors
from controlplane.aio.clock import Clock, SystemClock, chance, wall_milliseconds
from controlplane.aio.failpoint import Failpoints
from controlplane.apiserver.api_ports import ApiPorts, Reads, ReplicaIdentity, Writes
from controlplane.apiserver.commands.group_writer import GroupWriter
from controlplane.apiserver.edge.grpc_server import Advertised, ApiServer
from controlplane.cache.effective_settings import settings_of
from controlplane.cache.happenings import owned
from controlplane.cache.ledgers import Ledgers
from controlplane.cache.reflector import Cache
from controlplane.cluster_key import read_cluster_key
from controlplane.controller_manager import controllers, restoring
from controlplane.controller_manager.archive import Archive
from controlplane.controller_manager.made_targets import Providing
from controlplane.controller_manager.term_records import TermRecords
from controlplane.election.election import Election
from controlplane.election.held_leadership import Leadership
from controlplane.election.peer_presence import PeerPresence
from controlplane.election.pulse_proof import PulseProver
from controlplane.election.race import cancel
from controlplane.hosting.host import JobletHost, Launch
from controlplane.model.errors import ControlPlaneError, Deposed, Unavailable
from controlplane.model.event import Folding, Happening
from controlplane.model.identity import Mint
from controlplane.model.leadership import Candidate
from controlplane.model.outside_hosts import OutsideHosts
from controlplane.quarantine import Quarantine
from controlplane.replica_election import ElectionView, LateElection
from controlplane.replica_parts import (
    ca_file_of,
    child_environment,
    election_settings,
    folder_of,
    jwt_verifier,
    providers_of,
    tls_source,
)
from controlplane.replica_settings import ReplicaSettings, size
from controlplane.scheduler.cycle import Scheduler
from controlplane.sealing import read_keys
from controlplane.store.channel import EtcdOptions
from controlplane.store.event_log import EventLog, Leases
from controlplane.store.fenced import FencedWriter
from controlplane.store.kv import Store
from controlplane.store.lease import Renewals
from controlplane.store.space_watch import SpaceWatch
from controlplane.survey.standing_survey import Survey
from controlplane.tls_files import TlsSource, TlsWatch

log = structlog.get_logger(__name__)

_SWITCH_SECONDS = 0.0005
# The controllers wait at most this long for the first cycle, which may place very much.
_FIRST_CYCLE_SECONDS = 2.0
_AGAIN_SECONDS = 0.2
_FRESH_SECONDS = 0.05
JOBLET = (sys.executable, "-P", "-m", "controlplane.cli.controlplane", "joblet")


class Replica:
    def __init__(self, settings: ReplicaSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._failpoints = Failpoints(settings.failpoints)
        self._mint = Mint(wall_milliseconds, chance)
        self._incarnation = self._mint.make()
        options = EtcdOptions(settings.etcd, settings.etcd_ca, settings.etcd_cert, settings.etcd_key)
        self._store = Store(options, clock)
        self._tls = tls_source(settings)
        self._tls_watch = TlsWatch([it for it in (self._tls, options.trust) if it is not None], clock, self._renewed)
        self._server: ApiServer | None = None
        # For failures of the replica outside a term; each term has a quarantine of its own.
        self._quarantine = Quarantine(clock, self._record_failure)
        self._cache = Cache(self._store, clock, check_seconds=settings.cache_check, quarantine=self._quarantine)
        self._ledgers = Ledgers(self._cache)
        self._survey = Survey(self._ledgers, clock)
        self._keeping = TermRecords.on(
            self._ledgers, grant=self._store.grant, make_identity=self._mint.make, replica=settings.id
        )
        # The replica's own events, whether it leads or not.
        self._events = EventLog(
            Folding(self._mint.make, by=f"apiserver@{settings.id}", at=clock.monotonic()),
            self._store.commit_group,
            Leases(self._store.grant, lambda: float(settings_of(self._cache.snapshot).event_ttl), clock),
            clock,
        )
        self._keyring = read_keys(settings.secret_key_file, chance)
        self._cluster_key = key = read_cluster_key(settings.cluster_key_file)
        self._jwts = jwt_verifier(settings, clock)
        self._prover = PulseProver(key.derived(b"pulse"), chance) if key is not None else None
        self._renewals = Renewals(self._store.channels)
        self._archive = self._open_archive()
        self._space = SpaceWatch(self._store.channels, size(settings.etcd_quota, "etcd_quota"))
        self._providing = Providing(providers_of(settings, clock, self._credential), self._mint.make)

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
                supervise("replica", "Cluster", "TLS files", self._tls_watch.run),
            )
            following = [tasks.create_task(work) for work in running]
            if self._jwts is not None:
                work = supervise("replica", "Cluster", "keys of the issuer", self._jwts.run)
                following.append(tasks.create_task(work))
            await self._cache.filled()
            self._failpoints.reach("replica.listed")
            await self._know_etcd()
            following.append(tasks.create_task(self._space.run()))
            late = LateElection()
            self._server = server = self._api_server(late, incarnation)
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._on_hang_up, server)
            await server.start()
            late.election = self._election(incarnation, server)
            campaign = tasks.create_task(self._campaign(late.election))
            hosting = tasks.create_task(self._host(incarnation, server.grpc_address))
            await stop.wait()
            campaign.cancel()
            with suppress(asyncio.CancelledError):
                await campaign
            # By now the leader assigns the targets hosted here to other replicas.
            hosting.cancel()
            await asyncio.gather(hosting, server.stop(), return_exceptions=True)
            for task in following:
                task.cancel()
        await self._store.close()

    def _api_server(self, election: LateElection, incarnation: str) -> ApiServer:
        settings = self._settings
        return ApiServer(
            self._ports(election, incarnation),
            grpc_address=settings.grpc,
            http_address=settings.http,
            audit=settings.audit,
            advertised=Advertised(settings.grpc_advertise, settings.http_advertise),
        )

    def _on_hang_up(self, server: ApiServer) -> None:
        server.audit.reopen()
        self._tls_watch.look_soon()

    def _renewed(self, source: TlsSource) -> None:
        if source is self._tls and self._server is not None:
            self._server.take_new_certificate()

    def _open_archive(self) -> Archive | None:
        if not self._settings.archive:
            return None
        full = size(self._settings.archive_bytes, "archive_bytes")
        return Archive(Path(self._settings.archive), self._settings.id, self._clock, full_bytes=full)

    def _credential(self, target: str, driver: str) -> str:
        """The token of a joblet that this replica starts."""
        return (
            self._cluster_key.joblet_credential(target, driver, getpass.getuser())
            if self._cluster_key is not None
            else ""
        )

    async def _know_etcd(self) -> None:
        """Waits until the cluster id of etcd is known, which must be before the replica serves or leads."""
        while not self._space.cluster_id:
            try:
                await self._space.look()
            except Unavailable as error:
                log.warning("the status of etcd cannot be read", error=str(error))
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
        view, timing = ElectionView(self._cache), election_settings(settings)
        return Election(self._store, view, timing, candidate, self._clock, prover=self._prover)

    async def _host(self, incarnation: str, endpoint: str) -> None:
        """Runs hosted joblets, which connect to their own replica alone.

        A replica that is cut off from etcd cannot serve its joblets; another replica hosts the targets then.
        """
        ca_file = ca_file_of(self._settings)
        encrypted = ("--tls-ca", ca_file) if ca_file else ()
        command = (*JOBLET, "--driver", "kubernetes", "--hosted", "--endpoints", endpoint, *encrypted)
        with folder_of(self._settings) as folder:
            hosts = OutsideHosts(self._settings.allowed_hosts)
            launch = Launch(command, child_environment(self._settings), folder, self._credential, hosts)
            record, clock = self._events.record, self._clock
            host = JobletHost(self._cache, self._keyring, incarnation, launch=launch, record=record, clock=clock)
            await self._quarantine.supervise("hosting", "Cluster", "hosted joblets", host.run)

    def _ports(self, election: LateElection, incarnation: str) -> ApiPorts:
        writer = GroupWriter(self._store, self._space.look_soon)
        return ApiPorts(
            reads=Reads(self._store, self._cache, self._ledgers),
            writes=Writes(writer, self._clock, self._mint, self._space),
            replica=ReplicaIdentity(self._settings.id, controlplane.__version__, incarnation),
            election=election,
            renewals=self._renewals,
            keyring=self._keyring,
            record=self._events.record,
            quarantine=self._quarantine,
            closed=not self._settings.insecure,
            cluster_key=self._cluster_key,
            verifiers=() if self._jwts is None else (self._jwts,),
            tls=self._tls,
        )

    async def _campaign(self, election: Election) -> None:
        """Campaigns while the cache is fresh: a stale cache shows neither the turn to lead nor the end of a term."""
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
                # Awaiting `standing` itself would confuse a cancellation of this task with the end of `standing`.
                await cancel(standing)
            if not standing.cancelled():
                standing.result()
            while self._cache.is_stale:
                await self._clock.sleep(_FRESH_SECONDS)

    def _record_failure(self, happening: Happening) -> None:
        self._events.record(owned(happening, self._cache.snapshot))

    async def _lead(self, leadership: Leadership) -> None:
        """Runs a term. Returns when the leader is deposed; any unexpected error ends the term too, loudly."""
        self._failpoints.reach("replica.leading")
        writer = FencedWriter(leadership)
        quarantine = Quarantine(self._clock, self._record_failure)
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
                    # The controllers' first round over all objects is long: the first cycle places before it.
                    async with asyncio.timeout(_FIRST_CYCLE_SECONDS):
                        await scheduler.begun.wait()
                running = controllers.run(
                    self._ledgers,
                    writer,
                    self._clock,
                    upkeep=upkeep,
                    providing=self._providing,
                    presence=PeerPresence(election_settings(self._settings), self._incarnation, prover=self._prover),
                    failpoints=self._failpoints,
                    quarantine=quarantine,
                )
                term.create_task(running)
                term.create_task(self._keeping.run(writer, self._clock, quarantine))
        except* Deposed as deposed:
            log.info("deposed", epoch=leadership.epoch, why=str(deposed.exceptions[0]))
        except* ControlPlaneError as failed:
            log.error("the term failed", epoch=leadership.epoch, errors=[str(error) for error in failed.exceptions])


async def run(settings: ReplicaSettings) -> None:
    """Runs one replica until SIGTERM or SIGINT."""
    # A replica holds hundreds of thousands of long-lived objects; frequent garbage collections over all of them would
    # stop the loop for longer than a scheduling cycle takes. Objects of the imported modules stay for good.
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)
    # Large decisions are made in a thread: requests meanwhile must not wait 5 ms for each turn of the loop.
    sys.setswitchinterval(_SWITCH_SECONDS)
    descriptors.raise_limit()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    await Replica(settings, SystemClock()).run(stop)
