"""The provider `cluster-api`: a target is a cluster whose machines are the replicas of a MachineDeployment.

Asked through the Kubernetes API of the management cluster. Every call reads what is there, lets `machine_deployments`
decide, and writes with the resource version that was read: asked again, or by a leader that was deposed meanwhile, it
changes nothing that a later request said. So a call whose answer did not come, or that met another writer, is simply
made again, a few times with growing pauses and not before the API asks for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
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
from controlplane.providers.webhook import Patience

T = TypeVar("T")
# Gives a client of the management cluster that a target names; whoever asked closes it.
Connect = Callable[[ClusterApi], Awaitable[ApiClient]]

_MOST_RETRY_AFTER = 30.0
_BUSY = (408, 425, 429)


def by_file(kubeconfig: str) -> Connect:
    """With a kubeconfig of the replica, read anew each time: its token may have been replaced."""

    async def connect(_where: ClusterApi) -> ApiClient:
        settings = Configuration()
        try:
            await config.load_kube_config(config_file=kubeconfig, client_configuration=settings)
        except (config.ConfigException, OSError, ValueError, TypeError, KeyError) as error:
            raise Refused(f"cluster_api_kubeconfig: {kubeconfig} cannot be used: {type(error).__name__}") from None
        settings.retries = None
        return ApiClient(settings)

    return connect


class ClusterApiProvider:
    def __init__(self, connect: Connect, clock: Clock, patience: Patience | None = None) -> None:
        self._connect = connect
        self._clock = clock
        self._patience = patience or Patience(tries=5)

    async def create(self, made: Made) -> None:
        await self._insist(made, _bring)

    async def resize(self, made: Made) -> None:
        await self._insist(made, _bring)

    async def remove(self, made: Made) -> None:
        """What is not there any more is removed."""
        await self._insist(made, _remove)

    async def _insist(self, made: Made, act: Callable[[Deployments, Made], Awaitable[None]]) -> None:
        if made.cluster_api is None:
            raise Refused(f"{made.target} names no management cluster")
        client = await self._connect(made.cluster_api)
        deployments = Deployments(CustomObjectsApi(client), made.cluster_api.namespace, self._patience.answer_seconds)
        try:
            for attempt in range(self._patience.tries):
                if attempt:
                    pause = self._patience.pause_seconds * 2 ** (attempt - 1)
                    await self._clock.sleep(pause + deployments.retry_after)
                try:
                    await act(deployments, made)
                    return
                except (Unavailable, OutcomeUnknown, Conflict):
                    if attempt + 1 == self._patience.tries:
                        raise
        finally:
            await client.close()


class Deployments:
    """The MachineDeployments of one namespace. None of its calls repeats itself."""

    def __init__(self, api: CustomObjectsApi, namespace: str, seconds: float) -> None:
        self._api = api
        self._seconds = seconds
        self._place = (machines.GROUP, machines.VERSION, namespace, machines.PLURAL)
        # How long the API asked to wait, in its last answer.
        self.retry_after = 0.0

    async def get(self, name: str) -> Json | None:
        """None when there is none of that name."""
        try:
            return dict(await self._call(self._api.get_namespaced_custom_object(*self._place, name, **self._bound())))
        except _Missing:
            return None

    async def owned(self, policy: str) -> list[Json]:
        chosen = ",".join(f"{name}={value}" for name, value in {**machines.MANAGED, machines.POLICY: policy}.items())
        found = await self._call(
            self._api.list_namespaced_custom_object(*self._place, label_selector=chosen, **self._bound())
        )
        return list(found["items"])

    async def create(self, body: Json) -> None:
        await self._call(self._api.create_namespaced_custom_object(*self._place, body, **self._bound()))

    async def replace(self, body: Json) -> None:
        """Conflict when it was changed since it was read."""
        name = body["metadata"]["name"]
        await self._call(self._api.replace_namespaced_custom_object(*self._place, name, body, **self._bound()))

    async def delete(self, found: Json) -> None:
        """This very object, as it was read."""
        metadata = found["metadata"]
        exactly = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
        call = self._api.delete_namespaced_custom_object(
            *self._place, metadata["name"], body={"preconditions": exactly}, **self._bound()
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
    """Nothing of that name is there."""


async def _bring(deployments: Deployments, made: Made) -> None:
    found = await deployments.get(made.target)
    if found is not None:
        changed = machines.brought(found, made)
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
    found = await deployments.get(made.target)
    changed = machines.removed(found, made) if found is not None else None
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
