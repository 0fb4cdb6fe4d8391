"""`cpctl verify` on a real etcd in which somebody planted what does not go on: NO, with the right key."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from controlplane.aio.clock import SystemClock
from controlplane.model.leadership import TermEnd
from controlplane.model.settings import DEFAULT
from controlplane.store import codec, keys
from controlplane.store.channel import EtcdOptions
from controlplane.store.kv import Store
from controlplane.store.transaction import Item, delete, put
from controlplane.verify.checks import Checks
from controlplane.verify.gathering import history_reader
from tests.etcd import Etcd
from tests.unit.verify import past
from tests.unit.verify.past import ORDER

OTHER = "01ARZ3NDEKTSV4RRFFQ69G5FAW"
THIRD = "01ARZ3NDEKTSV4RRFFQ69G5FAX"
# Beside the time that a suspicion may last: two interpreters start on a busy machine.
PATIENCE_SECONDS = 60.0
LEASE_SECONDS = float(DEFAULT.joblet_lease)


@pytest.fixture
async def store(etcd: Etcd) -> AsyncIterator[Store]:
    opened = Store(EtcdOptions((etcd.endpoint,)), SystemClock())
    yield opened
    await opened.close()


async def plant(store: Store, **objects: msgspec.Struct) -> int:
    """All of them in one transaction, by key."""
    writes = tuple(put(key, codec.encode(value)) for key, value in objects.items())
    return (await store.commit(Item(then=writes))).revision


async def verify(etcd: Etcd) -> tuple[int, dict[str, Any]]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "controlplane.cli.cpctl", "verify", "--etcd", etcd.endpoint, "-o", "json"),
        stdout=asyncio.subprocess.PIPE,
        env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"},
    )
    async with asyncio.timeout(PATIENCE_SECONDS):
        said, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, {promise["promise"]: promise for promise in json.loads(said)["promises"]}


def keys_of(promise: dict[str, Any]) -> list[tuple[str, int]]:
    assert promise["ok"] is False
    return [(violation["key"], violation["revision"]) for violation in promise["violations"]]


async def lead(store: Store) -> int:
    """Somebody has led since the first revision, so that what is planted carries the epoch of a leader."""
    epoch = await plant(store, **{keys.candidate(1): past.candidate()})
    await plant(store, **{keys.term(epoch): past.term(epoch, TermEnd(epoch=0, how="first"))})
    return epoch


async def test_what_does_not_go_on_is_found_by_its_key(store: Store, etcd: Etcd) -> None:
    assert await lead(store) == 2, "the epoch of all that the builders make"
    ready = {keys.target_status("eu"): past.target_status("Ready"), keys.live("eu"): past.live(cpu=9)}
    await plant(store, **ready)
    # A final order of which something is desired.
    await plant(store, **{keys.order(ORDER): past.order(), keys.order_status(ORDER): past.status("Cancelled")})
    stray = await plant(store, **{past.place("A"): past.fulfilment("A")})
    reported = keys.observed("eu", "A")
    await plant(store, **{reported: past.observed("A", "Running")})
    # A claim of a fulfilment that is not desired.
    claim = await plant(store, **{keys.claim("licence"): past.claim("licence", "vanished")})
    # An order whose only task was reported as ended.
    ended = replace(past.fulfilment("B"), order=OTHER)
    await plant(store, **{keys.order(OTHER): past.order(OTHER), past.place("B"): ended})
    report = await plant(store, **{keys.observed("eu", "B"): past.observed("B", "Succeeded")})
    # A placement that its target never reported.
    silent = replace(past.fulfilment("C"), order=THIRD)
    placed = await plant(store, **{keys.order(THIRD): past.order(THIRD), past.place("C"): silent})
    code, said = await verify(etcd)
    assert code == 2
    assert keys_of(said["P7"]) == [(past.place("A"), stray)]
    assert keys_of(said["P4"]) == [(keys.claim("licence"), claim)]
    assert sorted(keys_of(said["P9"])) == [(keys.order(OTHER), report), (past.place("C"), placed)]
    assert [promise for promise, found in said.items() if found["ok"] is False] == ["P4", "P7", "P9"]


async def test_what_goes_on_while_it_is_looked_at_is_in_order(store: Store) -> None:
    await lead(store)
    await plant(store, **{keys.target_status("eu"): past.target_status("Ready"), keys.live("eu"): past.live(cpu=9)})
    holder = past.fulfilment("A", holds=("licence",))
    await plant(store, **{keys.order(ORDER): past.order()})
    await plant(store, **{past.place("A"): holder, keys.claim("licence"): past.claim("licence", "A")})
    _, checks = await history_reader.read(store, Checks)
    looking = asyncio.create_task(history_reader.settle(store, checks.suspicions, SystemClock()))
    await plant(store, **{keys.observed("eu", "A"): past.observed("A", "Succeeded")})
    over = {keys.ended(ORDER, "A"): past.ended("A"), keys.order_status(ORDER): past.status("Succeeded")}
    gone = (past.place("A"), keys.observed("eu", "A"), keys.claim("licence"))
    writes = (*(put(key, codec.encode(value)) for key, value in over.items()), *(delete(key) for key in gone))
    await store.commit(Item(then=writes))
    async with asyncio.timeout(LEASE_SECONDS):
        await looking
    checks.report_suspicions()
    said = [checks.exclusive.verdict(), checks.lifecycle.verdict(), checks.leader.verdict()]
    assert [verdict.violations for verdict in said] == [(), (), ()]


async def test_leaders_that_follow_each_other_too_fast_are_found_by_the_ttl_of_their_lease(
    store: Store, etcd: Etcd
) -> None:
    lease = await store.grant(30)
    before = 0
    for at in range(12):
        key = keys.candidate(at + 1 if at < 11 else lease)
        epoch = (await store.commit(Item(then=(put(key, codec.encode(past.candidate()), lease=lease),)))).revision
        if at:
            await store.commit(Item(then=(delete(keys.candidate(at)),)))
        end = TermEnd(epoch=before, how="stepped-down" if before else "first")
        since = f"2026-11-16T00:{at // 6:02d}:{at % 6 * 10:02d}.000Z"
        term = replace(past.term(epoch, end), incarnation="p", since=since)
        written = await plant(store, **{keys.term(epoch): term})
        if at == 4:
            fifth = keys.term(epoch), written
        before = epoch
    code, said = await verify(etcd)
    assert code == 2
    assert keys_of(said["P9"])[0] == fifth, "one term in 10 s is too much for a lease of 30 s, not for one of 5 s"


async def test_nothing_to_check_is_no_promise_kept(etcd: Etcd) -> None:
    code, said = await verify(etcd)
    assert code == 0
    assert {promise["ok"] for promise in said.values()} == {None}
    assert all(promise["why"] and not promise["checked"] for promise in said.values())
