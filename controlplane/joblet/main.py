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
from controlplane.joblet.credential_file import CredentialFile
from controlplane.joblet.credential_keeper import CredentialKeeper, Enrolment
from controlplane.joblet.driver import CapacitySource, Driver
from controlplane.joblet.drivers.building import Surroundings, TargetDriver, build
from controlplane.joblet.enrolment_calls import EnrolmentCalls
from controlplane.joblet.housekeeping import raise_descriptor_limit
from controlplane.joblet.joblet_settings import JobletSettings
from controlplane.joblet.replica_channels import ReplicaChannels
from controlplane.joblet.replica_stream import ReplicaStream
from controlplane.joblet.shown_credential import ShownCredential
from controlplane.joblet.stats import Machine
from controlplane.joblet.worker import Worker
from controlplane.model.access import CLUSTER_KEY_PREFIX
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
    opener = opener_for(settings.tls_ca, settings.tls_cert, settings.tls_key)
    mint = Mint(wall_milliseconds, chance)
    instance = mint.make()
    failpoints = Failpoints(settings.failpoints)
    machine = Machine(settings.data_dir, clock)
    hardware = machine.hardware()
    async with contextlib.AsyncExitStack() as stack:
        tasks = []
        built = await build(settings, Surroundings(clock, failpoints, stack, descriptors, umask))
        if settings.hosted:
            hosted.forget_kubeconfig(settings.cluster.kubeconfig)
        file = CredentialFile(settings.data_dir)
        keeps = not settings.hosted and keeps_credential(settings, file)
        token = identity.token if identity is not None else settings.token
        credential = ShownCredential(None if keeps else token)
        channels = ReplicaChannels(settings.endpoints, settings.count, credential, opener)
        stack.push_async_callback(channels.close)
        for part in built:
            driver, state = part.driver, part.state
            if identity is not None:
                hosted.adopt_identity(identity, state)
            worker = Worker(part.target, driver, state, clock=clock, failpoints=failpoints, machine=machine)
            if identity is not None:
                worker.hold_back(hosted.late_start_seconds(float(settings.cluster.request_timeout)))
            # With a credential the plane knows whose target a new one is.
            owner = settings.owner or ("" if token or keeps else getpass.getuser())
            hello = _hello(settings, part, instance, owner)
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
        if keeps:
            template = _target(settings, _hello(settings, built[0], instance, ""), built[0].driver)
            keeper = CredentialKeeper(
                enrolment_of(settings, template or targets_pb2.Target()),
                file,
                EnrolmentCalls(channels),
                credential,
                clock=clock,
                chance=chance,
                make_identity=mint.make,
            )
            tasks.append(loop.create_task(keeper.run()))
        waiter = loop.create_task(stopped.wait())
        log.info("joblet runs", target=settings.target, count=settings.count, driver=settings.driver)
        try:
            await asyncio.wait([waiter, *tasks], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (waiter, *tasks):
                task.cancel()
            results = await asyncio.gather(waiter, *tasks, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, asyncio.CancelledError):
            raise result
    log.info("joblet stopped, its commands go on", target=settings.target)


def _resize(stream: ReplicaStream, capacity: CapacitySource) -> None:
    stream.resize(capacity.now)


def keeps_credential(settings: JobletSettings, file: CredentialFile) -> bool:
    """Whether the joblet enrols, or did: a credential of the cluster key is shown as it is, and an open plane needs
    none."""
    if settings.token.startswith(CLUSTER_KEY_PREFIX) and not settings.enrol:
        return False
    return bool(settings.enrol or settings.token) or file.read() is not None


def enrolment_of(settings: JobletSettings, template: targets_pb2.Target) -> Enrolment:
    return Enrolment(
        targets=settings.targets(),
        driver=settings.driver,
        template=template,
        token=settings.enrol or settings.token,
        one_time=bool(settings.enrol),
    )


def _hello(settings: JobletSettings, part: TargetDriver, instance: str, owner: str) -> joblets_pb2.Hello:
    return joblets_pb2.Hello(
        target=part.target,
        driver=settings.driver,
        instance=instance,
        instance_secret=part.state.secret,
        version=importlib.metadata.version("controlplane"),
        capacity=settings.capacity or part.capacity,
        owner=owner,
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
