"""Targets of a running `up` as a person meets them: each of their phases, wishes, removal, and joblets that join."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from controlplane.model.target import TargetStatus
from controlplane.store import codec, keys
from controlplane.wire.v1 import cluster_pb2
from tests.robustness import promises
from tests.robustness.parts import ROOT
from tests.robustness.patience import until
from tests.robustness.upped import Upped, an_up

SETTINGS = cluster_pb2.Settings(joblet_lease=6, heartbeat=1, target_grace=1, kill_grace=1)
ONLY_FIRST = 'test "$CONTROLPLANE_ATTEMPT" != 1 || exec sleep 600'


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Upped]:
    async with an_up(tmp_path_factory.mktemp("up") / "data", replicas=2, targets=2, settings=SETTINGS) as world:
        yield world


async def submit(world: Upped, *command: str, target: str = "", requests: dict[str, float] | None = None) -> str:
    job = {"command": list(command), "requests": requests or {"cpu": 1}}
    order = {"kind": "Order", "packet": {"jobs": [{"job": job}]}} | (
        {"target_policy": f"strict:{target}"} if target else {}
    )
    file = world.folder.parent / "order.json"
    file.write_text(json.dumps(order))
    identity: str = (await world.cpctl("submit", "-f", str(file)))["id"]
    return identity


async def running(world: Upped, order: str, *, attempt: int = 1) -> str:
    """The target where its task runs."""

    def found() -> str:
        runs = (record for record in promises.recorded(world) if (record.order, record.attempt) == (order, attempt))
        return next((record.target for record in runs), "")

    return await until(found, f"attempt {attempt} of {order} has started")


async def ended(world: Upped, order: str, phase: str = "Succeeded") -> None:
    await world.witness.until(lambda: world.witness.finals({order}), f"{order} is final")
    assert world.witness.phases[order] == phase


def history(world: Upped, target: str) -> list[str]:
    """Every phase that was recorded, and "away" for the end of the record."""
    found: list[str] = []
    for change in world.witness.changes:
        if change.key == keys.target_status(target):
            phase = codec.decode(change.value.value, TargetStatus).phase if change.value is not None else "away"
            if found[-1:] != [phase]:
                found.append(phase)
    return found


@asynccontextmanager
async def a_joblet(world: Upped, target: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Started by hand, beside those of `up`."""
    world.know(target)
    log = world.folder / "logs" / f"{target}.log"
    with log.open("ab") as file:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "controlplane.cli.controlplane", "joblet", "--target", target),
            *("--endpoints", ",".join(world.endpoints), "--capacity", "cpu=4,special=4"),
            *("--data-dir", str(world.folder / "joblets" / target), "--token-file", str(world.folder / "token")),
            cwd=ROOT,
            stdout=file,
            stderr=file,
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_a_cordoned_target_gets_nothing_new_and_explain_says_so(world: Upped) -> None:
    shown = await world.cpctl("cordon", "local-1")
    assert shown["cordoned"] is True
    await world.phase("local-1", "Cordoned")
    order = await submit(world, "true", target="local-1")
    told = await world.cpctl("explain", order)
    (why,) = [one for one in told["groups"][0]["targets"] if one["target"] == "local-1"]
    assert (why["filter"], why["sentence"]) == (
        "TargetNotReady",
        "local-1 takes no new work: it is Cordoned, somebody has to uncordon it",
    )
    assert (await world.cpctl("uncordon", "local-1"))["cordoned"] is False
    await ended(world, order)


async def test_a_drain_waits_for_what_runs(world: Upped, tmp_path: Path) -> None:
    order = await submit(world, "sh", "-c", f"until test -e {tmp_path}/go; do sleep 0.1; done", target="local-1")
    await running(world, order)
    await world.cpctl("drain", "local-1", "--timeout", "1h")
    await world.phase("local-1", "Draining")
    waiting = await submit(world, "true", target="local-1")
    told = await world.cpctl("explain", waiting)
    assert "it is Draining" in told["groups"][0]["targets"][0]["sentence"]
    (tmp_path / "go").touch()
    await ended(world, order)
    await world.phase("local-1", "Drained")
    await world.cpctl("uncordon", "local-1")
    await ended(world, waiting)
    assert history(world, "local-1")[-4:] == ["Ready", "Draining", "Drained", "Ready"]


async def test_what_has_not_ended_when_the_drain_is_over_is_done_elsewhere(world: Upped) -> None:
    order = await submit(world, "sh", "-c", ONLY_FIRST)
    where = await running(world, order)
    drained = await world.cpctl("drain", where, "--timeout", "1s", "--wait")
    assert drained["status"]["phase"] == "Drained"
    assert (drained["drain"], drained["drain_timeout"]) == (True, 1)
    await ended(world, order)
    assert await running(world, order, attempt=2) not in ("", where)
    shown = await world.cpctl("uncordon", where)
    assert "drain_timeout" not in shown
    await world.phase(where, "Ready")


async def test_wishes_about_targets_that_do_not_fit_are_refused(world: Upped) -> None:
    assert "NotFound" in await world.cpctl("drain", "nowhere", code=1)
    assert "timeout" in await world.cpctl("drain", "local-1", "--timeout", "soon", code=1)
    assert "drain_timeout" in await world.cpctl("drain", "local-1", "--timeout", "400d", code=1)
    assert (await world.cpctl("get", "target", "local-1"))["drain"] is False


async def test_a_silent_target_is_suspect_then_failed_and_ready_again_without_its_old_work(world: Upped) -> None:
    order = await submit(world, "sh", "-c", ONLY_FIRST)
    where = await running(world, order)
    world.signal(where, signal.SIGSTOP)
    await world.phase(where, "Failed")
    assert history(world, where)[-3:] == ["Ready", "Suspect", "Failed"]
    await ended(world, order)
    world.signal(where, signal.SIGCONT)
    await world.phase(where, "Ready")
    records = world.joblets[where].records()
    assert records.count(order.encode()) == 2, "its old work was dead before it was Ready"
    await ended(world, await submit(world, "true", target=where))


async def test_a_joblet_that_joins_gets_work_and_rests_when_its_target_is_deleted(world: Upped) -> None:
    waiting = await submit(world, "true", requests={"special": 1})
    async with a_joblet(world, "guest") as process:
        await ended(world, waiting)
        order = await submit(world, "sleep", "600", target="guest")
        assert await running(world, order) == "guest"
        refused = await world.cpctl("delete", "target", "guest", code=1)
        assert "IllegalTransition: name: target 'guest' still has 1 fulfilments; drain it first" in refused
        await world.cpctl("drain", "guest", "--timeout", "0", "--wait")
        await world.cpctl("delete", "target", "guest")
        await world.witness.until(lambda: history(world, "guest")[-1:] == ["away"], "its status is away")
        assert history(world, "guest")[-5:] == ["Ready", "Draining", "Drained", "Gone", "away"]
        log = world.folder / "logs" / "guest.log"
        await until(lambda: "idle until it is created again" in log.read_text(), "the joblet is idle")
        await world.witness.until(lambda: keys.live("guest") not in world.witness.values, "its session is over")
        assert process.returncode is None
        assert "NotFound" in await world.cpctl("get", "target", "guest", code=1), "it does not make it again"
        await world.cpctl("cancel", order)
        file = world.folder.parent / "guest.json"
        file.write_text(json.dumps({"kind": "Target", "name": "guest", "capacity": {"cpu": 1, "special": 1}}))
        await world.cpctl("apply", "-f", str(file))
        await world.phase("guest", "Ready")
        await ended(world, await submit(world, "true", target="guest"))
        refused = await world.cpctl("delete", "target", "guest", code=1)
        assert "target 'guest' is Ready, and its joblet is connected: drain it first" in refused
        await world.cpctl("delete", "target", "guest", "--yes")
    assert "NotFound" in await world.cpctl("get", "target", "guest", code=1)
    async with a_joblet(world, "guest"):
        await world.phase("guest", "Ready")


async def test_a_target_that_nobody_serves_is_provisioning_and_can_be_deleted(world: Upped) -> None:
    file = world.folder.parent / "target.json"
    file.write_text(json.dumps({"kind": "Target", "name": "later", "capacity": {"cpu": 1}}))
    await world.cpctl("apply", "-f", str(file))
    await world.phase("later", "Provisioning")
    await world.cpctl("delete", "target", "later")
    await world.witness.until(lambda: history(world, "later") == ["Provisioning", "Gone", "away"], "it is away")
