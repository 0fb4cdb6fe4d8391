"""The composition root of a joblet process: builds the real things, wires them, runs them.

Stopped by SIGTERM or SIGINT it leaves its commands running; the next joblet in the same folder adopts them.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import getpass
import hashlib
import importlib.metadata
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import structlog

from controlplane.aio.clock import BootClock, Clock, SystemClock, chance, wall_milliseconds
from controlplane.aio.failpoint import Failpoints
from controlplane.aio.processes import keep_memory_private
from controlplane.joblet import hosted
from controlplane.joblet.driver import Capacity, Driver
from controlplane.joblet.drivers.process import ProcessDriver
from controlplane.joblet.drivers.simulated import Chances, SimulatedDriver
from controlplane.joblet.home import Folder, HighMark, Home, read_boot, read_secret, take_lock
from controlplane.joblet.housekeeping import keep_small, raise_descriptor_limit
from controlplane.joblet.links import Links
from controlplane.joblet.records import Records
from controlplane.joblet.settings import JobletSettings
from controlplane.joblet.stats import Machine
from controlplane.joblet.stream import Stream
from controlplane.joblet.worker import Worker
from controlplane.model.identity import Mint
from controlplane.model.quantity import Number
from controlplane.wire.v1 import joblets_pb2, targets_pb2

# What a command inherits of the joblet's own environment.
INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR")
_SIMULATED_CAPACITY: dict[str, Number] = {"cpu": 16, "memory": 16 * 2**30}
log = structlog.get_logger()


async def run(settings: JobletSettings) -> None:
    """Returns after SIGTERM or SIGINT. Raises AlreadyExists when another joblet lives in the folder."""
    # Few of its objects live long, and fewer make cycles.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    descriptors = raise_descriptor_limit()
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    if settings.hosted:
        keep_memory_private()
    papers = hosted.read_papers() if settings.hosted else None
    if papers is not None:
        hosted.end_with_host(functools.partial(loop.call_soon_threadsafe, stopped.set))
    clock = BootClock()
    links = Links(settings.endpoints, settings.count)
    instance = Mint(wall_milliseconds, chance).make()
    failpoints = Failpoints(settings.failpoints)
    machine = Machine(settings.data_dir, clock)
    hardware = machine.hardware()
    async with contextlib.AsyncExitStack() as stack:
        tasks = []
        built = [drivers async for drivers in _drivers(settings, clock, failpoints, stack, descriptors)]
        if settings.hosted:
            hosted.forget_kubeconfig(settings.cluster.kubeconfig)
        for target, driver, home in built:
            if papers is not None:
                hosted.take(papers, home)
            worker = Worker(target, driver, home, clock=clock, failpoints=failpoints, machine=machine)
            if papers is not None:
                worker.doubt(hosted.doubt_seconds(float(settings.cluster.request_timeout)))
            hello = _hello(settings, target, instance, home)
            hello.hardware.CopyFrom(hardware)
            stream = Stream(
                hello,
                worker,
                home,
                links=links,
                clock=clock,
                target=_target(settings, hello, driver),
                logs=driver.logs,
                gate=driver.gate,
            )
            if driver.capacity is not None:
                driver.capacity.attach(functools.partial(_resize, stream, driver.capacity))
            tasks += [loop.create_task(stream.run()), loop.create_task(driver.run())]
        waiter = loop.create_task(stopped.wait())
        log.info("joblet runs", target=settings.target, count=settings.count, driver=settings.driver)
        try:
            await asyncio.wait([waiter, *tasks], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (waiter, *tasks):
                task.cancel()
            results = await asyncio.gather(waiter, *tasks, return_exceptions=True)
            await links.close()
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, asyncio.CancelledError):
            raise result
    log.info("joblet stopped, its commands go on", target=settings.target)


def _resize(stream: Stream, capacity: Capacity) -> None:
    stream.resize(capacity.now)


async def _drivers(
    settings: JobletSettings,
    clock: Clock,
    failpoints: Failpoints,
    stack: contextlib.AsyncExitStack,
    descriptors: int,
) -> AsyncIterator[tuple[str, Driver, Home]]:
    if settings.driver == "kubernetes":
        # A heavy client, which the other drivers do without.
        from controlplane.joblet.drivers.kubernetes.building import build

        folder, records = _folder(settings, stack)
        yield settings.target, await build(settings, folder, records, clock, failpoints, stack), folder
        return
    if settings.driver == "process":
        folder, records = _folder(settings, stack)
        inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
        process = ProcessDriver(
            folder,
            records,
            inherited,
            clock=clock,
            nice=settings.nice,
            output_limit=int(settings.output_limit),
            descriptors=descriptors,
        )
        stack.callback(process.close)
        process.adopt()
        yield settings.target, process, folder
        return
    shared, secret, mark = _simulated_folder(settings, stack)
    for number, target in enumerate(settings.targets()):
        home = Home(hashlib.sha256(f"{secret} {target}".encode()).hexdigest(), mark)
        chances = Chances(duration=settings.duration, failure_rate=settings.failure_rate, seed=settings.seed + number)
        yield target, SimulatedDriver(chances, home, clock=clock, records=shared), home


def _folder(settings: JobletSettings, stack: contextlib.AsyncExitStack) -> tuple[Folder, Records]:
    folder = Folder(Path(settings.data_dir).absolute(), read_boot())
    stack.callback(folder.close)
    return folder, _records(folder.path, folder.boot, stack)


def _records(path: Path, boot: str, stack: contextlib.AsyncExitStack) -> Records:
    """On the clock that shims put on theirs; kept small while the joblet runs."""
    clock = SystemClock()
    records = Records(path, boot=boot, clock=clock)
    stack.callback(records.close)
    trimming = asyncio.get_running_loop().create_task(keep_small(path, records, clock))
    stack.callback(trimming.cancel)
    return records


def _simulated_folder(
    settings: JobletSettings, stack: contextlib.AsyncExitStack
) -> tuple[Records | None, str, HighMark]:
    if not settings.data_dir:
        return None, chance(16).hex(), HighMark()
    path = Path(settings.data_dir).absolute()
    path.mkdir(parents=True, exist_ok=True)
    stack.callback(os.close, take_lock(path))
    return _records(path, read_boot(), stack), read_secret(path), HighMark(path / "attempts")


def _hello(settings: JobletSettings, target: str, instance: str, home: Home) -> joblets_pb2.Hello:
    return joblets_pb2.Hello(
        target=target,
        driver=settings.driver,
        instance=instance,
        instance_secret=home.secret,
        version=importlib.metadata.version("controlplane"),
        capacity=settings.capacity or _default_capacity(settings.driver),
        owner=settings.owner or getpass.getuser(),
    )


def _target(settings: JobletSettings, hello: joblets_pb2.Hello, driver: Driver) -> targets_pb2.Target | None:
    """What is created when the target is unknown."""
    if settings.hosted:
        return None
    target = targets_pb2.Target(
        name=hello.target,
        driver=hello.driver,
        owner=hello.owner,
        creator="joblet",
        region=settings.region,
        labels=settings.labels,
    )
    if not settings.resizable and driver.capacity is None:
        target.capacity.of.update(hello.capacity)
    return target


def _default_capacity(driver: str) -> dict[str, Number]:
    if driver == "kubernetes":
        return {}
    if driver == "simulated":
        return _SIMULATED_CAPACITY
    return {"cpu": os.cpu_count() or 1, "memory": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")}
