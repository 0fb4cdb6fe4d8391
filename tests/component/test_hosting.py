"""A host on a real etcd: it runs what the leader gives to it, as processes that know what they must and no more.

The process is a stand-in that writes down what it was given; what a real joblet does with it is tested where there is a
cluster.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace

from controlplane.aio.clock import SystemClock, chance
from controlplane.cache.reflector import Cache
from controlplane.hosting.host import JobletHost, Launch
from controlplane.model.event import Happening
from controlplane.model.hosting import Hosting
from controlplane.model.object import Object
from controlplane.model.outside_hosts import OutsideHosts
from controlplane.model.secret import Content, Secret
from controlplane.model.target import Live, Target
from controlplane.sealing import Key, Keyring
from controlplane.store import codec, keys, transaction
from controlplane.store.channel import EtcdOptions
from controlplane.store.kv import Store
from controlplane.store.transaction import Item
from tests.etcd import Etcd
from tests.kubeconfigs import TOKEN, a_kubeconfig, written

R = TypeVar("R")
KEYRING = Keyring((Key(b"1" * 32),), chance)
SEED = "ab" * 32
STAND_IN = """
import json, os, sys
given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
identity = json.loads(sys.stdin.readline())
told = {"pid": os.getpid(), "argv": sys.argv, "environment": dict(os.environ), "identity": identity,
        "kubeconfig": open(given["--kubeconfig"]).read(), "again": open(given["--kubeconfig"]).read(),
        "scratch": [os.stat(os.environ["TMPDIR"]).st_mode & 0o777, os.listdir(os.environ["TMPDIR"])]}
open(os.path.join(os.environ["TMPDIR"], "key"), "w").write("left behind")
with open(os.path.join(given["--notes"], f"{given['--target']}.{os.getpid()}"), "w") as file:
    json.dump(told, file)
if os.path.exists(os.path.join(given["--notes"], "broken")):
    sys.exit(f"cannot go on with {told['kubeconfig']}")
sys.stdin.read()
"""


class Stage:
    def __init__(self, store: Store, cache: Cache, notes: Path) -> None:
        self.store = store
        self.cache = cache
        self.notes = notes
        self.told: list[Happening] = []

    async def put(self, key: str, value: Object) -> None:
        await self.store.commit(Item(then=(transaction.put(key, codec.encode(value)),)))

    async def delete(self, key: str) -> None:
        await self.store.commit(Item(then=(transaction.delete(key),)))

    async def give(self, target: str, life: str) -> None:
        await self.put(keys.hosting(target), Hosting(target=target, epoch=1, replica=life, incarnation=life))

    async def seal(self, text: str, name: str = "s") -> None:
        sealed = KEYRING.seal(Secret(name=name, id="secret-1"), Content(data={"kubeconfig": text}, seed=SEED))
        await self.put(keys.config("secrets", name), sealed)

    def host(self, life: str = "life-1", keyring: Keyring = KEYRING, hosts: OutsideHosts | None = None) -> JobletHost:
        command = (sys.executable, "-c", STAND_IN, "--notes", str(self.notes))
        launch = Launch(command, {"PATH": os.environ["PATH"]}, self.notes / "folders", hosts=hosts or OutsideHosts())
        return JobletHost(self.cache, keyring, life, launch=launch, record=self.told.append, clock=SystemClock())

    def started(self, target: str = "t") -> list[dict[str, Any]]:
        """What each process of the target was given, in no order."""
        found = []
        for file in self.notes.glob(f"{target}.*"):
            try:
                found.append(json.loads(file.read_text()))
            except ValueError:
                continue  # being written
        return found

    async def one(self, target: str = "t", *, after: int = 0) -> dict[str, Any]:
        """The process that runs for the target, once it was given everything."""
        return await eventually(lambda: self._alive(target, after))

    def _alive(self, target: str, after: int) -> dict[str, Any] | None:
        alive = [told for told in self.started(target) if told["pid"] != after and is_alive(told["pid"])]
        return alive[0] if alive else None


async def eventually(look: Callable[[], R | None]) -> R:
    """What it shows, once it shows something."""
    async with asyncio.timeout(30):
        while True:
            found = look()
            if found is not None:
                return found
            await asyncio.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


async def gone(pid: int) -> None:
    await eventually(lambda: not _exists(pid) or None)


def _exists(pid: int) -> bool:
    try:
        return is_alive(pid)
    except OSError:
        return False


@pytest.fixture
async def stage(emptied: Etcd, tmp_path: Path) -> AsyncIterator[Stage]:
    clock = SystemClock()
    store = Store(EtcdOptions((emptied.endpoint,)), clock)
    cache = Cache(store, clock)
    following = asyncio.create_task(cache.run())
    await cache.reached(1, 10)
    made = Stage(store, cache, tmp_path)
    target = Target(name="t", id="target-1", driver="kubernetes", kubeconfig_secret="s")
    await made.put(keys.config("targets", "t"), target)
    await made.seal(written(a_kubeconfig()))
    yield made
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    await store.close()


@asynccontextmanager
async def running(host: JobletHost) -> AsyncIterator[JobletHost]:
    task = asyncio.create_task(host.run())
    try:
        yield host
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_joblet_gets_what_it_needs_and_shows_none_of_it(stage: Stage) -> None:
    live = Live(
        target="t", session="1", instance="i", secret_digest="", driver="kubernetes", cluster="e", known_attempt=7
    )
    await stage.put(keys.live("t"), live)
    await stage.give("t", "life-1")
    async with running(stage.host()):
        told = await stage.one()
    assert TOKEN in told["kubeconfig"]
    assert told["again"] == told["kubeconfig"]
    assert (told["identity"]["cluster"], told["identity"]["known_attempt"]) == ("e", 7)
    shown = json.dumps([told["argv"], told["environment"]])
    assert not any(text in shown for text in (TOKEN, told["identity"]["secret"], SEED))
    assert not any(TOKEN in file.read_text() for file in stage.notes.rglob("folders/*") if file.is_file())
    await gone(told["pid"])
    scratch = Path(told["environment"]["TMPDIR"])
    assert scratch == stage.notes / "folders" / "t" / "scratch"
    assert told["scratch"] == [0o700, []]
    assert not is_there(scratch)


def is_there(path: Path) -> bool:
    return path.exists()


async def test_who_is_not_named_hosts_nothing_and_the_next_host_is_the_same_joblet(stage: Stage) -> None:
    await stage.give("t", "life-1")
    async with running(stage.host("life-2")), running(stage.host("life-1")):
        first = await stage.one()
        await stage.give("t", "life-2")
        second = await stage.one(after=first["pid"])
        await gone(first["pid"])
        assert second["identity"]["secret"] == first["identity"]["secret"]
        assert len(stage.started()) == 2


async def test_a_changed_secret_starts_it_anew_as_the_same_and_a_relabelled_one_does_not(stage: Stage) -> None:
    await stage.give("t", "life-1")
    async with running(stage.host()) as host:
        first = await stage.one()
        stored = await stage.store.get(keys.config("secrets", "s"))
        assert stored is not None
        labelled = replace(codec.decode(stored.value, Secret), labels={"a": "b"})
        await stage.put(keys.config("secrets", "s"), labelled)
        await stage.seal(written(a_kubeconfig(token="another-token")))
        second = await stage.one(after=first["pid"])
        assert "another-token" in second["kubeconfig"]
        assert second["identity"]["secret"] == first["identity"]["secret"]
        assert len(stage.started()) == 2
        assert host.pids == {"t": second["pid"]}


async def test_what_the_target_says_of_its_pods_reaches_its_joblet_which_another_word_starts_anew(stage: Stage) -> None:
    await stage.give("t", "life-1")
    async with running(stage.host()):
        first = await stage.one()
        assert not {"--security", "--grace"} & set(first["argv"])
        target = Target(name="t", id="target-1", driver="kubernetes", kubeconfig_secret="s")
        await stage.put(keys.config("targets", "t"), replace(target, security="baseline", stop_grace=5))
        second = await stage.one(after=first["pid"])
        argv = second["argv"]
        assert argv[argv.index("--security") + 1] == "baseline"
        assert argv[argv.index("--grace") + 1] == "5s"


@pytest.mark.parametrize("key", [keys.config("targets", "t"), keys.config("secrets", "s"), keys.hosting("t")])
async def test_it_ends_with_what_it_was_started_for(stage: Stage, key: str) -> None:
    await stage.give("t", "life-1")
    async with running(stage.host()) as host:
        told = await stage.one()
        await stage.delete(key)
        await gone(told["pid"])
        await eventually(lambda: not host.pids or None)


async def test_one_that_is_killed_is_started_again_and_an_event_tells(stage: Stage) -> None:
    await stage.give("t", "life-1")
    async with running(stage.host()):
        first = await stage.one()
        os.kill(first["pid"], signal.SIGKILL)
        await stage.one(after=first["pid"])
    assert [(told.reason, told.about.name) for told in stage.told] == [("JobletEnded", "t")]
    assert "signal 9" in stage.told[0].message


async def test_a_server_that_is_not_allowed_is_never_spoken_to(stage: Stage) -> None:
    await stage.give("t", "life-1")
    async with running(stage.host(hosts=OutsideHosts("*.clusters.example"))):
        await eventually(lambda: stage.told or None)
    assert stage.told[0].reason == "HostingFailed"
    assert "--allowed-hosts" in stage.told[0].message
    assert not stage.started()


async def test_what_it_says_when_it_breaks_is_not_told_to_users(stage: Stage) -> None:
    (stage.notes / "broken").touch()
    await stage.give("t", "life-1")
    async with running(stage.host()):
        await eventually(lambda: len(stage.told) > 1 or None)
    assert stage.told[0].message == "its hosted joblet ended with exit code 1: the log of its replica says why"


@pytest.mark.parametrize("broken", ["unsafe", "other-key", "swapped"])
async def test_a_secret_that_cannot_be_used_starts_nothing_until_it_can(stage: Stage, broken: str) -> None:
    config = a_kubeconfig()
    config["users"][0]["user"]["exec"] = {"command": "sh"}
    await stage.seal(written(config) if broken == "unsafe" else written(a_kubeconfig()))
    keyring = Keyring((Key(b"2" * 32),), chance) if broken == "other-key" else KEYRING
    if broken == "swapped":
        stored = await stage.store.get(keys.config("secrets", "s"))
        assert stored is not None
        await stage.put(keys.config("secrets", "s"), replace(codec.decode(stored.value, Secret), name="other"))
    await stage.give("t", "life-1")
    async with running(stage.host(keyring=keyring)):
        await eventually(lambda: stage.told or None)
        assert stage.told[0].reason == "HostingFailed"
        assert not stage.started()
        if broken != "other-key":
            await stage.seal(written(a_kubeconfig()))
            await stage.one()


async def test_a_joblet_dies_with_a_host_that_is_killed(tmp_path: Path) -> None:
    """The pipe is the only tie: nobody is left to stop the child."""
    code = f"""
import asyncio, os, sys
from controlplane.hosting import joblet_process
from controlplane.model.hosting import HostedIdentity
async def main():
    argv = (sys.executable, "-c", {STAND_IN!r}, "--notes", {str(tmp_path)!r}, "--target", "t")
    environment = {{**os.environ, "TMPDIR": {str(tmp_path)!r}}}
    started = await joblet_process.start(argv, environment, "kubeconfig", HostedIdentity(secret="secret-1"), ())
    while not list(__import__("pathlib").Path({str(tmp_path)!r}).glob("t.*")):
        await asyncio.sleep(0.02)
    print(started.pid, flush=True)
    os.kill(os.getpid(), 9)
asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    assert process.returncode == -signal.SIGKILL
    await gone(int(out))
