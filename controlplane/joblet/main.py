"""The composition root of a joblet process: builds drivers, workers and streams, wires them, runs them.

SIGTERM and SIGINT end the joblet and leave its commands running; the next joblet in the same folder adopts them.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import getpass
import importlib.metadata
import signal

import structlog

from controlplane.aio.clock import BootClock, chance, wall_milliseconds
from controlplane.aio.failpoint import Failpoints
from controlplane.aio.processes import keep_files_private, keep_memory_private
from controlplane.joblet import hosted
from controlplane.joblet.driver import CapacitySource, Driver
from controlplane.joblet.drivers.building import Surroundings, TargetDriver, build
from controlplane.joblet.housekeeping import raise_descriptor_limit
from controlplane.joblet.joblet_settings import JobletSettings
from controlplane.joblet.replica_channels import ReplicaChannels
from controlplane.joblet.replica_stream import ReplicaStream
from controlplane.joblet.stats import Machine
from controlplane.joblet.worker import Worker
from controlplane.model.identity import Mint
from controlplane.tls_files import TlsWatch
from controlplane.wire.transport import opener_for
from controlplane.wire.v1 import joblets_pb2, targets_pb2

log = structlog.get_logger(__name__)


async def run(settings: JobletSettings) -> None:
    """Returns after SIGTERM or SIGINT. Raises AlreadyExists when another joblet lives in the folder."""
    # Few objects of a joblet live long, and fewer form cycles.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    descriptors = raise_descriptor_limit()
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    # Commands may run as the same user, and the joblet has a credential.
    keep_memory_private()
    umask = keep_files_private()
    identity = hosted.read_identity() if settings.hosted else None
    if identity is not None:
        hosted.end_with_host(functools.partial(loop.call_soon_threadsafe, stopped.set))
    clock = BootClock()
    token = identity.token if identity is not None else settings.token
    opener = opener_for(settings.tls_ca, settings.tls_cert, settings.tls_key)
    channels = ReplicaChannels(settings.endpoints, settings.count, token, opener)
    instance = Mint(wall_milliseconds, chance).make()
    failpoints = Failpoints(settings.failpoints)
    machine = Machine(settings.data_dir, clock)
    hardware = machine.hardware()
    async with contextlib.AsyncExitStack() as stack:
        tasks = []
        built = await build(settings, Surroundings(clock, failpoints, stack, descriptors, umask))
        if settings.hosted:
            hosted.forget_kubeconfig(settings.cluster.kubeconfig)
        for part in built:
            driver, state = part.driver, part.state
            if identity is not None:
                hosted.adopt_identity(identity, state)
            worker = Worker(part.target, driver, state, clock=clock, failpoints=failpoints, machine=machine)
            if identity is not None:
                worker.hold_back(hosted.late_start_seconds(float(settings.cluster.request_timeout)))
            hello = _hello(settings, part, instance)
            hello.hardware.CopyFrom(hardware)
            stream = ReplicaStream(
                hello,
                worker,
                state,
                channels=channels,
                clock=clock,
                target=_target(settings, hello, driver),
                logs=driver.logs,
                gate=driver.gate,
            )
            if driver.capacity is not None:
                driver.capacity.attach(functools.partial(_resize, stream, driver.capacity))
            tasks += [loop.create_task(stream.run()), loop.create_task(driver.run())]
        if opener.trust is not None:
            tasks.append(loop.create_task(TlsWatch([opener.trust], clock).run()))
        waiter = loop.create_task(stopped.wait())
        log.info("joblet runs", target=settings.target, count=settings.count, driver=settings.driver)
        try:
            await asyncio.wait([waiter, *tasks], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (waiter, *tasks):
                task.cancel()
            results = await asyncio.gather(waiter, *tasks, return_exceptions=True)
            await channels.close()
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, asyncio.CancelledError):
            raise result
    log.info("joblet stopped, its commands go on", target=settings.target)


def _resize(stream: ReplicaStream, capacity: CapacitySource) -> None:
    stream.resize(capacity.now)


def _hello(settings: JobletSettings, part: TargetDriver, instance: str) -> joblets_pb2.Hello:
    return joblets_pb2.Hello(
        target=part.target,
        driver=settings.driver,
        instance=instance,
        instance_secret=part.state.secret,
        version=importlib.metadata.version("controlplane"),
        capacity=settings.capacity or part.capacity,
        owner=settings.owner or ("" if settings.token else getpass.getuser()),
    )


def _target(settings: JobletSettings, hello: joblets_pb2.Hello, driver: Driver) -> targets_pb2.Target | None:
    """The target that the joblet creates when the replicas do not know it; None for a hosted joblet."""
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
