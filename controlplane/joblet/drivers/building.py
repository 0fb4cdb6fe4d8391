"""Builds the drivers of one joblet process from its settings: one builder for each kind of driver.

Whatever a builder opens is closed by the exit stack that it is handed. A driver does nothing before its `run`, but for
the process driver, which adopts the attempts of earlier joblets while it is built.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import math
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import structlog

from controlplane.aio.clock import Clock, SystemClock, chance
from controlplane.aio.failpoint import Failpoints
from controlplane.joblet.attempt_records import AttemptRecords
from controlplane.joblet.driver import Driver
from controlplane.joblet.drivers.process.process_driver import ProcessDriver
from controlplane.joblet.drivers.process.starter import CommandLimits
from controlplane.joblet.drivers.process.task_area import TaskArea
from controlplane.joblet.drivers.process.task_user import ROOT, find_task_user
from controlplane.joblet.drivers.simulated import SimulatedDriver, Simulation
from controlplane.joblet.housekeeping import keep_small
from controlplane.joblet.joblet_settings import JobletSettings
from controlplane.joblet.joblet_state import (
    HighestAttempt,
    JobletFolder,
    JobletState,
    lock_folder,
    make_folder,
    read_boot,
    read_secret,
)
from controlplane.model.driver_traits import KUBERNETES, PROCESS, SIMULATED
from controlplane.model.quantity import Number

# What a command inherits of the joblet's own environment.
INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR")
log = structlog.get_logger(__name__)
_SIMULATED_CAPACITY: dict[str, Number] = {"cpu": 16, "memory": 16 * 2**30}


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all drivers of the process share.

    `descriptors` is how many files a command may have open, `umask` that of the commands.
    """

    clock: Clock
    failpoints: Failpoints
    stack: contextlib.AsyncExitStack
    descriptors: int
    umask: int


@dataclass(frozen=True, slots=True)
class TargetDriver:
    """The driver of one target. `capacity` holds where the settings of the joblet give none."""

    target: str
    driver: Driver
    state: JobletState
    capacity: Mapping[str, Number]


async def build(settings: JobletSettings, around: Surroundings) -> list[TargetDriver]:
    """The drivers of all targets of the process. Needs the running loop."""
    return await _BUILDERS[settings.driver](settings, around)


async def _kubernetes(settings: JobletSettings, around: Surroundings) -> list[TargetDriver]:
    # The client of the cluster's API is heavy, and the other drivers do without.
    from controlplane.joblet.drivers.kubernetes.api import connect, namespace_of
    from controlplane.joblet.drivers.kubernetes.container_logs import ClusterLogs
    from controlplane.joblet.drivers.kubernetes.kubernetes_driver import KubernetesDriver
    from controlplane.joblet.drivers.kubernetes.pod import PodDefaults
    from controlplane.joblet.drivers.kubernetes.pod_supervisor import ClusterTimes

    folder, records = _folder(settings, around.stack)
    cluster = settings.cluster
    api = await connect(cluster.kubeconfig, seconds=float(cluster.request_timeout))
    around.stack.push_async_callback(api.close)
    logs_api = api.with_own_connections()
    around.stack.push_async_callback(logs_api.close)
    defaults = PodDefaults(
        namespace=cluster.namespace or namespace_of(cluster.kubeconfig),
        pull_secrets=cluster.pull_secrets,
        security=cluster.security,
        grace_seconds=math.ceil(cluster.grace),
    )
    times = ClusterTimes(
        tombstone=float(cluster.tombstone), start=float(cluster.start_patience), away=float(cluster.away)
    )
    driver = KubernetesDriver(
        settings.target,
        api,
        defaults,
        folder,
        records,
        clock=around.clock,
        times=times,
        failpoints=around.failpoints,
        logs=ClusterLogs(logs_api, defaults.namespace).open,
        capacity=settings.capacity,
    )
    return [TargetDriver(settings.target, driver, folder, {})]


async def _process(settings: JobletSettings, around: Surroundings) -> list[TargetDriver]:
    folder, records = _folder(settings, around.stack)
    environment = {name: os.environ[name] for name in INHERITED if name in os.environ}
    area = _task_area(settings, folder.path)
    if area is not None:
        around.stack.callback(area.close)
        environment |= area.user.environment()
    limits = CommandLimits(
        nice=settings.nice,
        output_limit=int(settings.output_limit),
        descriptors=around.descriptors,
        processes=settings.max_processes,
        umask=around.umask,
    )
    driver = ProcessDriver(folder, records, environment, clock=around.clock, area=area, limits=limits)
    around.stack.callback(driver.close)
    driver.adopt()
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return [TargetDriver(settings.target, driver, folder, {"cpu": os.cpu_count() or 1, "memory": memory})]


async def _simulated(settings: JobletSettings, around: Surroundings) -> list[TargetDriver]:
    records, secret, mark = _simulated_folder(settings, around.stack)
    drivers = []
    for number, target in enumerate(settings.targets()):
        state = JobletState(hashlib.sha256(f"{secret} {target}".encode()).hexdigest(), mark)
        simulation = Simulation(
            duration=settings.duration, failure_rate=settings.failure_rate, seed=settings.seed + number
        )
        driver = SimulatedDriver(simulation, state, clock=around.clock, records=records)
        drivers.append(TargetDriver(target, driver, state, _SIMULATED_CAPACITY))
    return drivers


_BUILDERS: Mapping[str, Callable[[JobletSettings, Surroundings], Awaitable[list[TargetDriver]]]] = {
    KUBERNETES: _kubernetes,
    PROCESS: _process,
    SIMULATED: _simulated,
}


def _simulated_folder(
    settings: JobletSettings, stack: contextlib.AsyncExitStack
) -> tuple[AttemptRecords | None, str, HighestAttempt]:
    if not settings.data_dir:
        return None, chance(16).hex(), HighestAttempt()
    path = Path(settings.data_dir).absolute()
    make_folder(path)
    stack.callback(os.close, lock_folder(path))
    return _records(path, read_boot(), stack), read_secret(path), HighestAttempt(path / "attempts")


def _task_area(settings: JobletSettings, folder: Path) -> TaskArea | None:
    """None when commands run as the user of the joblet, which a joblet of root says at each start."""
    if settings.run_as:
        user = find_task_user(settings.run_as)
        return TaskArea(Path(settings.task_dir or f"{folder}.tasks").resolve(), user)
    if os.geteuid() == ROOT:
        log.warning("commands run as root: --run-as USER runs them as another user", target=settings.target)
    return None


def _folder(settings: JobletSettings, stack: contextlib.AsyncExitStack) -> tuple[JobletFolder, AttemptRecords]:
    folder = JobletFolder(Path(settings.data_dir).absolute(), read_boot())
    stack.callback(folder.close)
    return folder, _records(folder.path, folder.boot, stack)


def _records(path: Path, boot: str, stack: contextlib.AsyncExitStack) -> AttemptRecords:
    """AttemptRecords on the clock that shims use for theirs; kept small while the joblet runs."""
    clock = SystemClock()
    records = AttemptRecords(path, boot=boot, clock=clock)
    stack.callback(records.close)
    trimming = asyncio.get_running_loop().create_task(keep_small(path, records, clock))
    stack.callback(trimming.cancel)
    return records
