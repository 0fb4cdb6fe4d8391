"""How the joblet gets to its cluster: a kubeconfig, or the service account of the pod that it runs in."""

from __future__ import annotations

from pathlib import Path

from kubernetes.aio import config
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration

from controlplane.joblet.drivers.kubernetes.api import Api
from controlplane.model.errors import Invalid

_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
# More than can be in use at the same time: creates, other requests, watches.
CONNECTIONS = 64


async def connect(kubeconfig: str, *, seconds: float) -> Api:
    """Invalid when there is no way. An empty path means: inside the cluster."""
    settings = Configuration()
    try:
        if kubeconfig:
            await config.load_kube_config(config_file=kubeconfig, client_configuration=settings)
        else:
            config.load_incluster_config(client_configuration=settings)
    except (config.ConfigException, OSError, ValueError) as error:
        where = kubeconfig or "not given, and this is no pod of a cluster"
        raise Invalid("kubeconfig", f"{where}: {error}") from None
    settings.connection_pool_maxsize = CONNECTIONS
    settings.retries = None
    return Api(ApiClient(settings), seconds=seconds)


def namespace_of(kubeconfig: str) -> str:
    """Where pods go when nobody says: the pod's own namespace inside a cluster, else `default`."""
    if kubeconfig or not _NAMESPACE.exists():
        return "default"
    return _NAMESPACE.read_text(encoding="ascii").strip()
