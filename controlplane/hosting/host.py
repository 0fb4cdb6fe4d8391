"""The joblet host: makes a replica run the joblets of exactly the targets assigned by the leader.

Each hosted target has a separate task that keeps its joblet running: a joblet that ends is started again, after longer
and longer pauses while joblets end early, and an event gives the reason. An unusable secret is reported by an event
too, and tried again when the secret changes. No joblet is left when a cancelled `run` returns.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from controlplane.aio.background import BackgroundTasks
from controlplane.aio.backoff import Backoff
from controlplane.aio.clock import Clock
from controlplane.cache.reflector import Cache, Delta
from controlplane.hosting import joblet_process
from controlplane.hosting.hosted_targets import (
    TREES,
    HostedTarget,
    hosted_targets_of,
    instance_secret,
    known_etcd,
    options_of,
    reason_of,
)
from controlplane.model import kubeconfig
from controlplane.model.driver_traits import KUBERNETES
from controlplane.model.errors import Refused
from controlplane.model.event import WARNING, About, Happening, Record
from controlplane.model.hosting import HostedIdentity
from controlplane.model.outside_hosts import OutsideHosts
from controlplane.sealing import Keyring

log = structlog.get_logger(__name__)

_BACKOFF = Backoff((0.5, 1.0, 2.0, 5.0, 10.0, 30.0))
# A joblet that lived so long was not broken from the start.
LIVED_SECONDS = 30.0


@contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    """A folder for temporary files of the joblet's client, keys among them: mode 0700, removed on exit. Files of an
    earlier, killed joblet are removed first."""
    scratch = folder / "scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    scratch.mkdir(mode=0o700)
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class Launch:
    """How joblets are started: the command to which target and folder are added, the environment, and the folder below
    which each joblet has a separate folder. `credential` gives the token for a target and a driver; `hosts`
    bounds the servers of kubeconfigs."""

    command: Sequence[str]
    environment: Mapping[str, str]
    folder: Path
    credential: Callable[[str, str], str] = lambda target, driver: ""
    hosts: OutsideHosts = field(default_factory=OutsideHosts)


class JobletHost:
    """`pids` are the processes of the running joblets by target."""

    def __init__(
        self, cache: Cache, keyring: Keyring, incarnation: str, *, launch: Launch, record: Record, clock: Clock
    ) -> None:
        self._cache = cache
        self._keyring = keyring
        self._incarnation = incarnation
        self._launch = launch
        self._record = record
        self._clock = clock
        self._changed = asyncio.Event()
        # The newest task of each target, which begins only when the former task of the target is over.
        self._keepers: dict[str, tuple[HostedTarget, asyncio.Task[None]]] = {}
        self._tasks = BackgroundTasks(lambda error: log.error("a hosting task failed", exc_info=error))
        self.pids: dict[str, int] = {}

    async def run(self) -> None:
        """Hosts joblets until cancelled."""
        unsubscribe = self._cache.subscribe(self._hear)
        try:
            while True:
                self._changed.clear()
                self._follow(hosted_targets_of(self._cache.snapshot, self._incarnation))
                await self._changed.wait()
        finally:
            unsubscribe()
            await self._tasks.cancel_and_wait()

    def _hear(self, deltas: Sequence[Delta], _revision: int) -> None:
        if any(delta.tree in TREES for delta in deltas):
            self._changed.set()

    def _follow(self, wanted: Mapping[str, HostedTarget]) -> None:
        for name, (hosted, task) in self._keepers.items():
            if wanted.get(name) != hosted:
                task.cancel()
        self._keepers = {
            name: (hosted, task) for name, (hosted, task) in self._keepers.items() if name in wanted or not task.done()
        }
        for name, hosted in wanted.items():
            keeper = self._keepers.get(name)
            if keeper is None or keeper[0] != hosted or keeper[1].cancelling():
                before = keeper[1] if keeper is not None else None
                self._keepers[name] = (hosted, self._tasks.spawn(self._keep(hosted, before)))

    async def _keep(self, hosted: HostedTarget, before: asyncio.Task[None] | None) -> None:
        """Keeps a joblet running, once the former task of the target is over: two joblets would disturb each other."""
        if before is not None and not before.done():
            await asyncio.wait({before})
        failures = 0
        while True:
            began = self._clock.monotonic()
            try:
                why = await self._run_joblet(hosted)
            except Refused as error:
                # A changed secret makes another hosted target, with a task of its own.
                self._tell(hosted, "HostingFailed", str(error))
                return
            except OSError as error:
                why = f"its hosted joblet cannot be started: {error.strerror}"
            except Exception as error:  # noqa: BLE001 - supervision: it concerns this target only, and is tried again
                # The text of the error may hold parts of the secret.
                why = f"its hosted joblet cannot be run: {type(error).__name__}"
            failures = 1 if self._clock.monotonic() - began >= LIVED_SECONDS else failures + 1
            self._tell(hosted, "JobletEnded", why)
            await self._clock.sleep(_BACKOFF.after(failures))

    async def _run_joblet(self, hosted: HostedTarget) -> str:
        """Why the joblet ended; Refused when its secret is missing or cannot be used."""
        snapshot = self._cache.snapshot
        secret = snapshot.secret(hosted.secret_name)
        if secret is None:
            raise Refused(f"secret {hosted.secret_name!r} is not there")
        content = self._keyring.open(secret)
        config = kubeconfig.parse(content.data.get("kubeconfig", ""), f"secret {hosted.secret_name}: kubeconfig")
        self._launch.hosts.check(*config.host_and_port)
        cluster, known_attempt = known_etcd(snapshot, hosted.target)
        identity = HostedIdentity(
            secret=instance_secret(hosted, content),
            token=self._launch.credential(hosted.target, KUBERNETES),
            cluster=cluster,
            known_attempt=known_attempt,
        )
        folder = self._launch.folder / hosted.target
        argv = [*self._launch.command, "--target", hosted.target, "--data-dir", str(folder)]
        argv += ["--namespace", config.namespace] if config.namespace else []
        argv += options_of(hosted)
        with _scratch(folder) as scratch:
            environment = {**self._launch.environment, "TMPDIR": str(scratch)}
            joblet = await joblet_process.start(argv, environment, kubeconfig.render(config), identity, config.hidden())
            self.pids[hosted.target] = joblet.pid
            log.info("joblet hosted", target=hosted.target, pid=joblet.pid)
            try:
                code, last_line = await joblet.ended()
            finally:
                del self.pids[hosted.target]
                await joblet.stop()
        how = f"ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return f"its hosted joblet {how}: {reason_of(last_line)}"

    def _tell(self, hosted: HostedTarget, reason: str, message: str) -> None:
        log.warning("a hosted joblet does not run", target=hosted.target, reason=reason, message=message)
        self._record(
            Happening(about=About(kind="Target", name=hosted.target), reason=reason, message=message, type=WARNING)
        )
