"""Builds the driver of a cluster from a joblet's settings."""

from __future__ import annotations

import contextlib
import math

from controlplane.aio.clock import Clock
from controlplane.aio.failpoint import Failpoints
from controlplane.joblet.drivers.kubernetes.access import connect, namespace_of
from controlplane.joblet.drivers.kubernetes.driver import KubernetesDriver, Times
from controlplane.joblet.drivers.kubernetes.logs import logs_of
from controlplane.joblet.drivers.kubernetes.pod import Place
from controlplane.joblet.home import Folder
from controlplane.joblet.records import Records
from controlplane.joblet.settings import JobletSettings


async def build(
    settings: JobletSettings,
    folder: Folder,
    records: Records,
    clock: Clock,
    failpoints: Failpoints,
    stack: contextlib.AsyncExitStack,
) -> KubernetesDriver:
    """Nothing is asked of the cluster before its `run`."""
    cluster = settings.cluster
    api = await connect(cluster.kubeconfig, seconds=float(cluster.request_timeout))
    stack.push_async_callback(api.close)
    place = Place(
        namespace=cluster.namespace or namespace_of(cluster.kubeconfig),
        pull_secrets=cluster.pull_secrets,
        security=cluster.security,
        grace_seconds=math.ceil(cluster.grace),
    )
    times = Times(tombstone=float(cluster.tombstone), start=float(cluster.start_patience), away=float(cluster.away))
    return KubernetesDriver(
        settings.target,
        api,
        place,
        folder,
        records,
        clock=clock,
        times=times,
        failpoints=failpoints,
        logs=(await logs_of(settings, stack)).open,
        capacity=settings.capacity,
    )
