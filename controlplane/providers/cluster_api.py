"""The provider `cluster-api`: a target is a cluster whose machines are the replicas of a MachineDeployment.

The provider works through the Kubernetes API of the management cluster. Every request reads the MachineDeployment, lets
`machine_deployments` decide, and writes with the resource version that was read: a repeated request, or the request of
a leader deposed meanwhile, never undoes a later request. So a request without an answer, or with a conflicting writer,
is sent again, a few times with growing pauses and not before the time that the API asks for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import aiohttp
from kubernetes.aio import config
from kubernetes.aio.client.api.custom_objects_api import CustomObjectsApi
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.client.exceptions import ApiException

from controlplane.aio.clock import Clock
from controlplane.model.errors import Conflict, ControlPlaneError, OutcomeUnknown, Refused, Unavailable
from controlplane.model.scalepolicy import ClusterApi, Made
from controlplane.providers import machine_deployments as machines
from controlplane.providers.machine_deployments import Json
from controlplane.providers.retry_policy import RetryPolicy

T = TypeVar("T")
# Gives a client of the management cluster that a target names; the caller closes the client.
Connect = Callable[[ClusterApi], Awaitable[ApiClient]]

_MOST_RETRY_AFTER = 30.0
_BUSY = (408, 425, 429)


def by_file(kubeconfig: str) -> Connect:
    """Connects with a kubeconfig of the replica, read anew each time: its token may have been replaced."""

    async def connect(_cluster: ClusterApi) -> ApiClient:
        settings = Configuration()
        try:
            await config.load_kube_config(config_file=kubeconfig, client_configuration=settings)
        except (config.ConfigException, OSError, ValueError, TypeError, KeyError) as error:
            raise Refused(f"cluster_api_kubeconfig: {kubeconfig} cannot be used: {type(error).__name__}") from None
        settings.retries = None
        return ApiClient(settings)

    return connect


class ClusterApiProvider:
    def __init__(self, connect: Connect, clock: Clock, policy: RetryPolicy | None = None) -> None:
        self._connect = connect
        self._clock = clock
        self._policy = policy or RetryPolicy(tries=5)

    async def create(self, made: Made) -> None:
        await self._insist(made, _bring)

    async def resize(self, made: Made) -> None:
        await self._insist(made, _bring)

    async def remove(self, made: Made) -> None:
        """A target without a MachineDeployment counts as removed."""
        await self._insist(made, _remove)

    async def _insist(self, made: Made, act: Callable[[Deployments, Made], Awaitable[None]]) -> None:
        if made.cluster_api is None:
            raise Refused(f"{made.target} names no management cluster")
        client = await self._connect(made.cluster_api)
        deployments = Deployments(CustomObjectsApi(client), made.cluster_api.namespace, self._policy.answer_seconds)
        try:
            await self._policy.repeat(
                partial(act, deployments, made),
                self._clock,
                after=(Unavailable, OutcomeUnknown, Conflict),
                asked_seconds=lambda: deployments.retry_after,
            )
        finally:
            await client.close()


class Deployments:
    """The MachineDeployments of a namespace. Calls are not repeated here."""

    def __init__(self, api: CustomObjectsApi, namespace: str, seconds: float) -> None:
        self._api = api
        self._seconds = seconds
        self._collection = (machines.GROUP, machines.VERSION, namespace, machines.PLURAL)
        # How long the API asked to wait in its last answer.
        self.retry_after = 0.0

    async def get(self, name: str) -> Json | None:
        """None when no MachineDeployment has the name."""
        try:
            return dict(
                await self._call(self._api.get_namespaced_custom_object(*self._collection, name, **self._bound()))
            )
        except _Missing:
            return None

    async def owned(self, policy: str) -> list[Json]:
        chosen = ",".join(f"{name}={value}" for name, value in {**machines.MANAGED, machines.POLICY: policy}.items())
        listed = await self._call(
            self._api.list_namespaced_custom_object(*self._collection, label_selector=chosen, **self._bound())
        )
        return list(listed["items"])

    async def create(self, body: Json) -> None:
        await self._call(self._api.create_namespaced_custom_object(*self._collection, body, **self._bound()))

    async def replace(self, body: Json) -> None:
        """Conflict when the object was changed since the read."""
        name = body["metadata"]["name"]
        await self._call(self._api.replace_namespaced_custom_object(*self._collection, name, body, **self._bound()))

    async def delete(self, deployment: Json) -> None:
        """Deletes the very object that was read, unless changed since the read."""
        metadata = deployment["metadata"]
        exactly = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
        call = self._api.delete_namespaced_custom_object(
            *self._collection, metadata["name"], body={"preconditions": exactly}, **self._bound()
        )
        with suppress(_Missing):
            await self._call(call)

    def _bound(self) -> dict[str, Any]:
        return {"_request_timeout": self._seconds}

    async def _call(self, call: Awaitable[T]) -> T:
        self.retry_after = 0.0
        try:
            async with asyncio.timeout(self._seconds):
                return await call
        except ApiException as error:
            self.retry_after = _seconds((error.headers or {}).get("Retry-After", ""))
            raise _meaning(error) from None
        except aiohttp.ClientConnectorError:
            raise Unavailable("the management cluster cannot be reached") from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise OutcomeUnknown(f"no answer of the management cluster ({type(error).__name__})") from None


class _Missing(Refused):
    """The management cluster has no object of the name."""


async def _bring(deployments: Deployments, made: Made) -> None:
    deployment = await deployments.get(made.target)
    if deployment is not None:
        changed = machines.brought(deployment, made)
        if changed is not None:
            await deployments.replace(changed)
        return
    assert made.cluster_api is not None
    template = await deployments.get(made.cluster_api.template)
    if template is None:
        where = f"namespace {made.cluster_api.namespace}"
        raise Refused(f"cluster_api.template: {where} has no MachineDeployment {made.cluster_api.template}")
    await deployments.create(machines.new(template, made))


async def _remove(deployments: Deployments, made: Made) -> None:
    deployment = await deployments.get(made.target)
    changed = machines.removed(deployment, made) if deployment is not None else None
    if changed is not None:
        await deployments.replace(changed)
    for old in machines.forgotten(await deployments.owned(made.policy)):
        await deployments.delete(old)


def _meaning(error: ApiException) -> ControlPlaneError:
    status = int(error.status or 0)
    if status == 404:
        return _Missing("the management cluster has no such thing")
    if status == 409:
        return Conflict("the MachineDeployment was changed meanwhile")
    if status in _BUSY or status >= 500:
        return Unavailable(f"the management cluster answered {status}")
    return Refused(f"the management cluster answered {status} {error.reason}")


def _seconds(text: str) -> float:
    return min(float(text), _MOST_RETRY_AFTER) if text.isdecimal() else 0.0
