"""The settings of one replica process, checked when built. Where they come from is the command line's business.

Cluster-wide choices that users make are not here but in `config/settings` (model/settings.py).
"""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path

from controlplane.model import quantity
from controlplane.model.errors import Invalid

# Of a leader's lease, in seconds.
DEFAULT_TTL = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSettings:
    """`grpc` and `http` are host:port, port 0 takes a free one. Times in seconds; the election checks its own.

    etcd_quota: etcd's --quota-backend-bytes, which etcd does not tell; its own default is 2 GiB. archive: the folder to
    which finished orders go before they are deleted; empty for none. archive_bytes: when a file of it is full.
    `local_targets` is the folder below which scale policies make joblets on this host, and `local_endpoints` what those
    connect to, this replica when not said. `webhook_secret` says where the secret is that webhooks are signed with:
    `file:PATH` or `env:NAME`. `cluster_api_kubeconfig` is a file that says how to reach the management cluster of the
    provider `cluster-api`. Without them the providers make nothing here. `secret_key_file` holds the keys that seal
    secrets; without it this replica takes none and hosts no joblets. Those keep their files below `hosting_dir`, which
    is a folder for the time being when not said.
    """

    etcd: tuple[str, ...]
    id: str = "replica"
    grpc: str = "127.0.0.1:0"
    http: str = "127.0.0.1:0"
    etcd_ca: str = ""
    etcd_cert: str = ""
    etcd_key: str = ""
    ttl: int = DEFAULT_TTL
    loop_silence: float = 2.0
    pulse_silence: float = 2.0
    pulse_beat: float = 0.25
    pulse_answer: float = 0.3
    pulse: str = "127.0.0.1:0"
    pulse_advertise: str = ""
    cache_check: float = 300.0
    etcd_quota: str = "2Gi"
    archive: str = ""
    archive_bytes: str = "64Mi"
    local_targets: str = ""
    local_endpoints: str = ""
    webhook_secret: str = ""
    secret_key_file: str = ""
    hosting_dir: str = ""
    cluster_api_kubeconfig: str = ""
    failpoints: str = ""

    def __post_init__(self) -> None:
        if not self.etcd:
            raise Invalid("etcd", "needs at least one URL")
        if not self.id or len(self.id) > 63:
            raise Invalid("id", "must have 1 to 63 characters")
        for field in ("grpc", "http", "pulse"):
            host, port = address(getattr(self, field), field)
            if not loopback(host):
                raise Invalid(field, f"must be a loopback address until authentication exists, not {host}:{port}")
        for field in ("etcd_quota", "archive_bytes"):
            if size(getattr(self, field), field) < 2**20:
                raise Invalid(field, f"must be at least 1Mi, not {getattr(self, field)}")
        if self.cache_check < 1:
            raise Invalid("cache_check", f"must be at least 1 second, not {self.cache_check}")
        for endpoint in filter(None, self.local_endpoints.split(",")):
            address(endpoint, "local_endpoints")
        if self.cluster_api_kubeconfig and not Path(self.cluster_api_kubeconfig).is_file():
            raise Invalid("cluster_api_kubeconfig", f"must be a file, not {self.cluster_api_kubeconfig!r}")
        where, _, name = self.webhook_secret.partition(":")
        if self.webhook_secret and (where not in ("file", "env") or not name):
            raise Invalid("webhook_secret", f"must be file:PATH or env:NAME, not {self.webhook_secret!r}")

    def read_webhook_secret(self) -> bytes:
        """Empty when none is set; Invalid when it is not where it should be."""
        where, _, name = self.webhook_secret.partition(":")
        if not name:
            return b""
        try:
            secret = Path(name).read_bytes().strip() if where == "file" else os.environ[name].encode()
        except (OSError, KeyError) as error:
            raise Invalid("webhook_secret", f"cannot be read from {self.webhook_secret}: {error}") from None
        if not secret:
            raise Invalid("webhook_secret", f"is empty in {self.webhook_secret}")
        return secret


def address(text: str, field: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        raise Invalid(field, f"{text!r} is not host:port")
    return host.strip("[]"), int(port)


def size(text: str, field: str) -> int:
    """`8Gi` in bytes."""
    return int(quantity.parse(text, field))


def loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
