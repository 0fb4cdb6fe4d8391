"""Resealing on a real etcd: every secret ends under the first key with its content, also when a run is interrupted."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from controlplane.aio.clock import SystemClock, chance
from controlplane.model.errors import OutcomeUnknown, Refused
from controlplane.model.leadership import Candidate
from controlplane.model.secret import Content, Secret
from controlplane.sealing import Key, Keyring
from controlplane.standalone import resealing
from controlplane.store import codec, keys, transaction
from controlplane.store.channel import EtcdOptions
from controlplane.store.kv import Store
from controlplane.store.transaction import Item, Outcome
from tests.etcd import Etcd

RAW_OLD, RAW_NEW = b"1" * 32, b"2" * 32
OLD, NEW = Key(RAW_OLD), Key(RAW_NEW)
BOTH = Keyring((NEW, OLD), chance)
NAMES = ["a", "b", "c"]


class Interrupted(Exception):
    """The process that reseals dies here."""


class WeakStore(Store):
    """A store of a process that dies before or after one of its commits, or never learns what became of it."""

    def __init__(self, etcd: Etcd, *, after: int, error: type[Exception], applies: bool) -> None:
        super().__init__(EtcdOptions((etcd.endpoint,)), SystemClock())
        self._left = after
        self._error = error
        self._applies = applies

    async def commit(self, item: Item, *, timeout: float | None = None) -> Outcome:
        self._left -= 1
        if self._left == 0:
            if self._applies:
                await super().commit(item, timeout=timeout)
            raise self._error("planted")
        return await super().commit(item, timeout=timeout)


class BusyStore(Store):
    """Somebody changes the secret before each of the first commits."""

    def __init__(self, etcd: Etcd, changes: int) -> None:
        super().__init__(EtcdOptions((etcd.endpoint,)), SystemClock())
        self._other = Store(EtcdOptions((etcd.endpoint,)), SystemClock())
        self._changes = changes

    async def commit(self, item: Item, *, timeout: float | None = None) -> Outcome:
        if self._changes > 0:
            self._changes -= 1
            changed = Content(data={"kubeconfig": f"changed {self._changes}"}, seed="00")
            await put(self._other, Keyring((OLD,), chance).seal(Secret(name="a"), changed))
        return await super().commit(item, timeout=timeout)

    async def close(self) -> None:
        await self._other.close()
        await super().close()


@pytest.fixture
async def store(emptied: Etcd) -> AsyncIterator[Store]:
    opened = Store(EtcdOptions((emptied.endpoint,)), SystemClock())
    yield opened
    await opened.close()


async def put(store: Store, secret: Secret) -> None:
    key = f"{keys.SECRETS.prefix}{secret.name}"
    await store.commit(transaction.Item((), (transaction.put(key, codec.encode(secret)),)))


async def stand(store: Store, identity: str, *of: Key) -> None:
    """A candidate's key, with the lease that a replica holds."""
    lease = await store.grant(60)
    candidate = Candidate(
        id=identity, incarnation=identity, grpc="", http="", pulse="", pid=1, version="", keys=tuple(k.id for k in of)
    )
    key = f"{keys.CANDIDATES.prefix}{lease:x}"
    await store.commit(transaction.Item((), (transaction.put(key, codec.encode(candidate), lease=lease),)))


async def seal_all(store: Store, key: Key = OLD) -> None:
    for name in NAMES:
        content = Content(data={"kubeconfig": f"text of {name}"}, seed="0a")
        await put(store, Keyring((key,), chance).seal(Secret(name=name, owner="ann"), content))


async def stored(store: Store) -> dict[str, Secret]:
    return {
        value.key.removeprefix(keys.SECRETS.prefix): codec.read(value, Secret)
        async for page in store.pages(keys.SECRETS.prefix)
        for value in page.values
    }


async def test_every_secret_opens_with_the_new_key_alone_and_with_what_it_held(store: Store) -> None:
    await seal_all(store)
    report = await resealing.reseal(store, BOTH)
    assert (report.resealed, report.current, report.failed) == (NAMES, [], {})
    only_new = Keyring((NEW,), chance)
    for name, secret in (await stored(store)).items():
        assert only_new.open(secret) == Content(data={"kubeconfig": f"text of {name}"}, seed="0a")
        assert secret.owner == "ann"
    revision = await store.revision()
    again = await resealing.reseal(store, BOTH)
    assert (again.resealed, again.current) == ([], NAMES)
    assert await store.revision() == revision


@pytest.mark.parametrize("applies", [True, False])
@pytest.mark.parametrize("after", [1, 2, 3])
async def test_an_interrupted_run_is_taken_up_by_the_next(
    store: Store, emptied: Etcd, after: int, applies: bool
) -> None:
    await seal_all(store)
    weak = WeakStore(emptied, after=after, error=Interrupted, applies=applies)
    with pytest.raises(Interrupted):
        await resealing.reseal(weak, BOTH)
    await weak.close()
    done = after if applies else after - 1
    assert sum(BOTH.is_current(secret) for secret in (await stored(store)).values()) == done
    report = await resealing.reseal(store, BOTH)
    assert (len(report.resealed), len(report.current), report.failed) == (3 - done, done, {})


@pytest.mark.parametrize("applies", [True, False])
async def test_an_unknown_outcome_is_looked_at(store: Store, emptied: Etcd, applies: bool) -> None:
    await seal_all(store)
    weak = WeakStore(emptied, after=2, error=OutcomeUnknown, applies=applies)
    report = await resealing.reseal(weak, BOTH)
    await weak.close()
    assert (report.resealed, report.failed) == (NAMES, {})
    assert all(BOTH.is_current(secret) for secret in (await stored(store)).values())


async def test_a_secret_that_is_changed_meanwhile_keeps_the_change(store: Store, emptied: Etcd) -> None:
    await put(store, Keyring((OLD,), chance).seal(Secret(name="a"), Content(data={"kubeconfig": "first"}, seed="00")))
    busy = BusyStore(emptied, changes=2)
    report = await resealing.reseal(busy, BOTH)
    await busy.close()
    assert report.resealed == ["a"]
    assert BOTH.open((await stored(store))["a"]).data == {"kubeconfig": "changed 0"}


async def test_a_secret_that_is_changed_all_the_time_is_left_for_the_next_run(store: Store, emptied: Etcd) -> None:
    await put(store, Keyring((OLD,), chance).seal(Secret(name="a"), Content(data={"kubeconfig": "first"}, seed="00")))
    busy = BusyStore(emptied, changes=1000)
    report = await resealing.reseal(busy, BOTH)
    await busy.close()
    assert list(report.failed) == ["a"]


async def test_what_no_key_opens_and_what_is_no_secret_is_named_and_left(store: Store) -> None:
    await seal_all(store)
    strange = Keyring((Key(b"3" * 32),), chance).seal(Secret(name="b"), Content(data={}, seed=""))
    await put(store, strange)
    junk = f"{keys.SECRETS.prefix}junk"
    await store.commit(transaction.Item((), (transaction.put(junk, b"{"),)))
    report = await resealing.reseal(store, BOTH)
    assert (report.resealed, sorted(report.failed)) == (["a", "c"], ["b", "junk"])
    assert "which this replica does not have" in report.failed["b"]
    kept = await store.get(junk)
    assert kept is not None
    assert kept.value == b"{"


async def test_nothing_is_sealed_while_a_replica_could_not_open_it(store: Store) -> None:
    await seal_all(store)
    await stand(store, "r1", NEW, OLD)
    await stand(store, "r2", OLD)
    before = await stored(store)
    with pytest.raises(Refused, match="without the first key of the file: r2;"):
        await resealing.reseal(store, BOTH)
    assert await stored(store) == before
    report = await resealing.reseal(store, BOTH, force=True)
    assert report.resealed == NAMES


async def test_fields_of_a_newer_version_survive(store: Store) -> None:
    secret = Keyring((OLD,), chance).seal(Secret(name="a"), Content(data={"kubeconfig": "x"}, seed="00"))
    value = {**json.loads(codec.encode(secret)), "of_tomorrow": 7}
    key = f"{keys.SECRETS.prefix}a"
    await store.commit(transaction.Item((), (transaction.put(key, json.dumps(value).encode()),)))
    await resealing.reseal(store, BOTH)
    kept = await store.get(key)
    assert kept is not None
    assert json.loads(kept.value)["of_tomorrow"] == 7


async def test_the_command_says_how_many_and_fails_when_one_is_left(
    store: Store, emptied: Etcd, tmp_path: Path
) -> None:
    await seal_all(store)
    key_file = tmp_path / "secret.key"
    key_file.touch(mode=0o600)
    key_file.write_text("".join(f"{base64.b64encode(raw).decode()}\n" for raw in (RAW_NEW, RAW_OLD)))
    assert await _run(emptied, key_file) == (0, f"sealed with key {NEW.id}: 3 now, 0 before, 0 could not be\n")
    broken = replace((await stored(store))["a"], name="b")
    await put(store, broken)
    code, said = await _run(emptied, key_file)
    assert code == 1
    assert "secret b: secret 'b' does not open" in said
    assert "text of" not in said


async def _run(etcd: Etcd, key_file: Path) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        *("controlplane", "reseal", "--etcd", etcd.endpoint, "--secret-key-file", str(key_file)),
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    return process.returncode, output.decode()
