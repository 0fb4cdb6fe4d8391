"""The host: brings the joblets that run here to those that the leader wants to run here.

Each guest has a task of its own that keeps its joblet running: one that ends is started again, after longer and longer
pauses while it does not live, and an event tells why it ended. A secret that cannot be used is told too, and tried
again when it changes. Whoever cancels `run` has no joblet left when it returns.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import structlog

from controlplane.aio.clock import Clock
from controlplane.cache.reflector import Cache, Delta
from controlplane.hosting import child
from controlplane.hosting.guests import TREES, Guest, guests_of, instance_secret, known_etcd, options_of, secret_of
from controlplane.model import kubeconfig
from controlplane.model.errors import Refused
from controlplane.model.event import WARNING, About, Happening, Record
from controlplane.model.hosting import Papers
from controlplane.sealing import Keyring

log = structlog.get_logger(__name__)

BACK_OFF_SECONDS = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
# One that lived so long was not broken from the start.
LIVED_SECONDS = 30.0


@contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    """For files that the joblet's client makes for the time being, keys among them: nobody else reads them, and none
    is left, of a life before that was killed neither."""
    scratch = folder / "scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(mode=0o700, parents=True)
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class Launch:
    """How joblets are started here: the command to which target and folder are added, the environment, and below which
    folder each has its own."""

    command: Sequence[str]
    environment: Mapping[str, str]
    folder: Path


class Host:
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
        # The newest task of each target, of which the one before has to be over when it begins; and all that still run.
        self._keepers: dict[str, tuple[Guest, asyncio.Task[None]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.pids: dict[str, int] = {}

    async def run(self) -> None:
        """Until cancelled."""
        unsubscribe = self._cache.subscribe(self._hear)
        try:
            while True:
                self._changed.clear()
                self._follow(guests_of(self._cache.snapshot, self._incarnation))
                await self._changed.wait()
        finally:
            unsubscribe()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _hear(self, deltas: Sequence[Delta], _revision: int) -> None:
        if any(delta.tree in TREES for delta in deltas):
            self._changed.set()

    def _follow(self, wanted: Mapping[str, Guest]) -> None:
        for name, (guest, task) in self._keepers.items():
            if wanted.get(name) != guest:
                task.cancel()
        self._keepers = {name: known for name, known in self._keepers.items() if name in wanted or not known[1].done()}
        for name, guest in wanted.items():
            known = self._keepers.get(name)
            if known is None or known[0] != guest or known[1].cancelling():
                self._begin(guest, known[1] if known is not None else None)

    def _begin(self, guest: Guest, before: asyncio.Task[None] | None) -> None:
        task = asyncio.get_running_loop().create_task(self._keep(guest, before))
        self._keepers[guest.target] = (guest, task)
        self._tasks.add(task)
        task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("hosting broke", exc_info=error)

    async def _keep(self, guest: Guest, before: asyncio.Task[None] | None) -> None:
        """Two joblets of one target would disturb each other: the one before is gone first."""
        if before is not None and not before.done():
            await asyncio.wait({before})
        failures = 0
        while True:
            began = self._clock.monotonic()
            try:
                why = await self._once(guest)
            except Refused as error:
                # Until the secret changes, which makes another guest of it.
                self._tell(guest, "HostingFailed", str(error))
                return
            except OSError as error:
                why = f"its hosted joblet cannot be started: {error.strerror}"
            except Exception as error:  # noqa: BLE001 - supervision: it concerns this target only, and is tried again
                # The text may hold what the secret holds.
                why = f"its hosted joblet cannot be run: {type(error).__name__}"
            failures = 1 if self._clock.monotonic() - began >= LIVED_SECONDS else failures + 1
            self._tell(guest, "JobletEnded", why)
            await self._clock.sleep(BACK_OFF_SECONDS[min(failures, len(BACK_OFF_SECONDS)) - 1])

    async def _once(self, guest: Guest) -> str:
        """Why its joblet ended; Refused when it cannot be told what it needs."""
        snapshot = self._cache.snapshot
        secret = secret_of(snapshot, guest.secret_name)
        if secret is None:
            raise Refused(f"secret {guest.secret_name!r} is not there")
        content = self._keyring.open(secret)
        config = kubeconfig.parse(content.data.get("kubeconfig", ""), f"secret {guest.secret_name}: kubeconfig")
        cluster, known_attempt = known_etcd(snapshot, guest.target)
        papers = Papers(secret=instance_secret(guest, content), cluster=cluster, known_attempt=known_attempt)
        folder = self._launch.folder / guest.target
        argv = [*self._launch.command, "--target", guest.target, "--data-dir", str(folder)]
        argv += ["--namespace", config.namespace] if config.namespace else []
        argv += options_of(guest)
        with _scratch(folder) as scratch:
            environment = {**self._launch.environment, "TMPDIR": str(scratch)}
            running = await child.start(argv, environment, kubeconfig.render(config), papers, config.hidden())
            self.pids[guest.target] = running.pid
            log.info("joblet hosted", target=guest.target, pid=running.pid)
            try:
                code, last = await running.ended()
            finally:
                del self.pids[guest.target]
                await running.stop()
        how = f"ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return f"its hosted joblet {how}" + (f": {last}" if last else "")

    def _tell(self, guest: Guest, reason: str, message: str) -> None:
        log.warning("hosting", target=guest.target, reason=reason, message=message)
        self._record(
            Happening(about=About(kind="Target", name=guest.target), reason=reason, message=message, type=WARNING)
        )
