"""What the election tests play on: a view on a real watch, and replicas that do nothing but campaign and lead.

Replicas run as tasks of the test or, as `python election_stage.py`, as real processes that tell by lines on stdout
what happens to them and take commands by lines on stdin.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import structlog

from controlplane.aio.clock import SystemClock, chance, wall_milliseconds
from controlplane.election.election import Election
from controlplane.election.election_settings import ElectionSettings
from controlplane.election.held_leadership import Leadership
from controlplane.election.pulse_proof import PulseProver
from controlplane.election.view import CandidateEntry
from controlplane.model import errors
from controlplane.model.identity import Mint
from controlplane.model.leadership import Candidate, Term
from controlplane.store import codec, keys
from controlplane.store.channel import EtcdOptions
from controlplane.store.kv import Store
from controlplane.store.transaction import Fence, Item, Value, put
from controlplane.store.watch import watch

ROOT = Path(__file__).parents[2]
CLOCK = SystemClock()
PROOF = f"{keys.ROOT}status/totals"
# Long enough that no test can pass by waiting for the lease to end.
LONG = ElectionSettings(ttl_seconds=60)


class WatchedView:
    """The election's port on a watch of its own."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._values: dict[str, Value] = {}
        self._revision = 0
        self._election_revision = 0
        self._moved = asyncio.Condition()

    async def start(self) -> None:
        async for page in self._store.pages(keys.ROOT):
            self._revision = self._election_revision = page.revision
            self._values.update({value.key: value for value in page.values})

    async def run(self) -> None:
        async for batch in watch(self._store.channels, keys.ROOT, self._revision + 1):
            for change in batch.changes:
                if change.value is None:
                    self._values.pop(change.key, None)
                else:
                    self._values[change.key] = change.value
                if change.key.startswith(keys.CANDIDATES.prefix):
                    self._election_revision = change.revision
            self._revision = batch.revision
            async with self._moved:
                self._moved.notify_all()

    def revision(self) -> int:
        return self._revision

    def candidates(self) -> Sequence[CandidateEntry]:
        found = []
        for value in self._values.values():
            if value.key.startswith(keys.CANDIDATES.prefix):
                try:
                    candidate = codec.decode(value.value, Candidate)
                except errors.Broken:
                    continue
                entry = CandidateEntry(value.key, candidate, value.create_revision, value.mod_revision, value.lease)
                found.append(entry)
        return sorted(found, key=lambda entry: entry.create_revision)

    def value(self, key: str) -> bytes | None:
        found = self._values.get(key)
        return found.value if found is not None else None

    def terms(self) -> list[Term]:
        found = [value for key, value in sorted(self._values.items()) if key.startswith(f"{keys.ROOT}terms/")]
        return [codec.decode(value.value, Term) for value in found]

    def last_term(self) -> Term | None:
        terms = self.terms()
        return terms[-1] if terms else None

    async def reached(self, revision: int) -> None:
        await self.until(lambda: self._revision >= revision)

    async def changed(self, after_revision: int) -> int:
        await self.until(lambda: self._election_revision > after_revision)
        return self._revision

    async def until(self, holds: Callable[[], Any]) -> None:
        async with self._moved:
            await self._moved.wait_for(holds)


class Replica:
    """One candidate. Leading, it waits for the end of its term and notes what it was told."""

    def __init__(
        self, endpoint: str, name: str, settings: ElectionSettings = LONG, *, prover: PulseProver | None = None
    ) -> None:
        self.name = name
        self.store = Store(EtcdOptions((endpoint,)), CLOCK)
        self.view = WatchedView(self.store)
        self.incarnation = Mint(wall_milliseconds, chance).make()
        candidate = Candidate(
            id=name, incarnation=self.incarnation, grpc="", http="", pulse="", pid=os.getpid(), version="test"
        )
        self.election = Election(self.store, self.view, settings, candidate, CLOCK, prover=prover)
        self.terms: asyncio.Queue[Leadership] = asyncio.Queue()
        self.ended: asyncio.Queue[Leadership] = asyncio.Queue()

    async def lead(self, leadership: Leadership) -> None:
        self.terms.put_nowait(leadership)
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.put_nowait(leadership)

    @asynccontextmanager
    async def running(self, lead: Callable[[Leadership], Any] | None = None) -> AsyncIterator[Replica]:
        await self.view.start()
        tasks = [asyncio.create_task(self.view.run()), asyncio.create_task(self.election.run(lead or self.lead))]
        try:
            yield self
        finally:
            for task in reversed(tasks):
                task.cancel()
                await asyncio.wait({task})
            await self.store.close()

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[Replica]:
        """Without standing for election: only its store and its view are used."""
        await self.view.start()
        task = asyncio.create_task(self.view.run())
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.wait({task})
            await self.store.close()

    async def queued(self) -> None:
        """Returns when it stands in the queue."""
        mine = self.incarnation
        await self.view.until(lambda: any(e.candidate.incarnation == mine for e in self.view.candidates()))


async def followed(replica: Replica, count: int) -> None:
    """Returns when so many others hold its pulse."""
    while replica.election.followers() < count:
        await asyncio.sleep(0.005)


def proof(text: str) -> Item:
    """A write that only a leader may do."""
    return Item(then=(put(PROOF, text.encode()),))


class Line(msgspec.Struct, kw_only=True):
    """One thing that a replica process tells."""

    what: str
    epoch: int = 0
    key: str = ""
    mod_revision: int = 0
    why: str = ""


class Process:
    """A replica as a real process."""

    def __init__(self, endpoint: str, name: str, settings: ElectionSettings = LONG) -> None:
        self.name = name
        self._arguments = (endpoint, name, msgspec.json.encode(settings).decode())
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Process]:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            __file__,
            *self._arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        try:
            yield self
        finally:
            if self._process.returncode is None:
                self._process.kill()
            await self._process.communicate()

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def command(self, text: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(text.encode() + b"\n")

    async def told(self, what: str) -> Line:
        """The next line of that kind; what comes before it is skipped."""
        assert self._process is not None
        assert self._process.stdout is not None
        while raw := await self._process.stdout.readline():
            line = msgspec.json.decode(raw, type=Line)
            if line.what == what:
                return line
        raise AssertionError(f"{self.name} ended without telling {what!r}")

    async def gone(self) -> int:
        assert self._process is not None
        return await self._process.wait()


def _tell(line: Line) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")
    sys.stdout.flush()


async def _play(endpoint: str, name: str, settings: ElectionSettings) -> None:
    replica = Replica(endpoint, name, settings)
    loop = asyncio.get_running_loop()
    over = asyncio.Event()
    fences: list[Fence] = []

    async def lead(leadership: Leadership) -> None:
        fence = leadership.fence
        fences.append(fence)
        _tell(Line(what="leads", epoch=fence.epoch, key=fence.key, mod_revision=fence.mod_revision))
        try:
            await asyncio.Event().wait()
        finally:
            _tell(Line(what="demoted", epoch=leadership.epoch, why=leadership.why))

    async def write_with_first_fence() -> None:
        """Sent without asking the leadership: only etcd stands between this and a wrong write."""
        try:
            await replica.store.commit_group([proof(name)], fence=fences[0])
        except errors.Deposed:
            _tell(Line(what="refused", epoch=fences[0].epoch))
        else:
            _tell(Line(what="written", epoch=fences[0].epoch))

    async def tell_when_followed(count: int) -> None:
        await followed(replica, count)
        _tell(Line(what="followed"))

    async with replica.running(lead):
        await replica.queued()
        _tell(Line(what="queued"))
        tasks: set[asyncio.Task[None]] = set()

        def obey(text: str) -> None:
            word, _, rest = text.partition(" ")
            if word == "block":
                time.sleep(float(rest))
            elif word == "write":
                tasks.add(loop.create_task(write_with_first_fence()))
            elif word == "followed":
                tasks.add(loop.create_task(tell_when_followed(int(rest))))

        def read() -> None:
            for text in sys.stdin:
                loop.call_soon_threadsafe(obey, text.strip())

        threading.Thread(target=read, daemon=True).start()
        loop.add_signal_handler(signal.SIGTERM, over.set)
        await over.wait()


if __name__ == "__main__":
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    asyncio.run(_play(sys.argv[1], sys.argv[2], msgspec.json.decode(sys.argv[3], type=ElectionSettings)))
