"""The settings of one replica process, checked when built. Where they come from is the command line's business.

Cluster-wide choices that users make are not here but in `config/settings` (model/settings.py).
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from controlplane.model import quantity
from controlplane.model.errors import Invalid


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSettings:
    """`grpc` and `http` are host:port, port 0 takes a free one. Times in seconds; the election checks its own.

    etcd_quota: etcd's --quota-backend-bytes, which etcd does not tell; its own default is 2 GiB. archive: the folder to
    which finished orders go before they are deleted; empty for none. archive_bytes: when a file of it is full.
    """

    etcd: tuple[str, ...]
    id: str = "replica"
    grpc: str = "127.0.0.1:0"
    http: str = "127.0.0.1:0"
    etcd_ca: str = ""
    etcd_cert: str = ""
    etcd_key: str = ""
    ttl: int = 5
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
