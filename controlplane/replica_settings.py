"""The settings of a replica process, checked when built; every field carries its help text for the command line.

The command line reads options and environment (`cli/serve_command.py`). Settings of the whole cluster, which users
change, are not here but under the key `config/settings` (`model/settings.py`).
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from controlplane.model import address, quantity, web_url
from controlplane.model.errors import Invalid
from controlplane.model.outside_hosts import OutsideHosts

# Of a leader's lease, in seconds.
DEFAULT_TTL = 5
HELP = "help"
_PREFIX = re.compile(r"[a-z0-9._-]{1,32}:")

V = TypeVar("V")


def _setting(default: V, text: str) -> V:
    """A field with its default and its help text."""
    described: Any = field(default=default, metadata={HELP: text})
    chosen: V = described
    return chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSettings:
    """Times are in seconds; `election` cross-checks the times of an election. Addresses are host:port."""

    etcd: tuple[str, ...] = field(metadata={HELP: "URLs of etcd, separated by commas."})
    id: str = _setting("replica", "Name under which this replica leads, unique among all replicas.")
    grpc: str = _setting("127.0.0.1:0", "Address to serve gRPC on; port 0 takes a free port.")
    http: str = _setting("127.0.0.1:0", "Address to serve HTTP on; port 0 takes a free port.")
    grpc_advertise: str = _setting("", "Address at which others reach --grpc, when another than bound.")
    http_advertise: str = _setting("", "Address at which others reach --http, when another than bound.")
    tls_cert: str = _setting("", "File with the certificate that gRPC and HTTP serve; needed beyond loopback.")
    tls_key: str = _setting("", "File with the key of --tls-cert, open to nobody else.")
    tls_ca: str = _setting("", "File with the CA certificates that other replicas' certificates are checked against.")
    etcd_ca: str = _setting("", "File with the CA certificate that etcd's certificate is checked against.")
    etcd_cert: str = _setting("", "File with this replica's client certificate for etcd.")
    etcd_key: str = _setting("", "File with the key of --etcd-cert.")
    ttl: int = _setting(DEFAULT_TTL, "Seconds that the leader's lease lives without renewal.")
    loop_silence: float = _setting(2.0, "Seconds without a turn of the event loop after which a leader gives up.")
    pulse_silence: float = _setting(2.0, "Seconds without a beat until the leader is asked once more, then deposed.")
    pulse_beat: float = _setting(0.25, "Seconds between two beats of the leader's pulse to its standbys.")
    pulse_answer: float = _setting(0.3, "Seconds in which a silent leader has to answer a fresh connection.")
    pulse: str = _setting("127.0.0.1:0", "Address to serve the pulse on; port 0 takes a free port.")
    pulse_advertise: str = _setting("", "Address at which other replicas reach --pulse, when another than bound.")
    cache_check: float = _setting(300.0, "Seconds between two comparisons of the cache with etcd.")
    etcd_quota: str = _setting("2Gi", "etcd's --quota-backend-bytes, which etcd does not report.")
    archive: str = _setting("", "Folder for finished orders before they are deleted; empty: no archive.")
    archive_bytes: str = _setting("64Mi", "Size at which a new file of the archive begins.")
    local_targets: str = _setting(
        "", "Folder of the joblets that provider local starts on this host; empty: no provider."
    )
    local_endpoints: str = _setting("", "Replicas that those joblets connect to; empty: this replica.")
    webhook_secret: str = _setting("", "Secret that signs webhooks, file:PATH or env:NAME; empty: no provider webhook.")
    allowed_hosts: str = _setting(
        "", "Hosts that webhooks and kubeconfigs may name, separated by commas; empty: all but link-local addresses."
    )
    secret_key_file: str = _setting("", "File with the keys that seal secrets; empty: no secrets, no hosted joblets.")
    cluster_key_file: str = _setting("", "File with the key by which replicas prove themselves to each other.")
    oidc_issuer: str = _setting("", "URL of the issuer whose JWTs are taken as credentials; empty: none are.")
    oidc_audience: str = _setting("", "Audience (aud) that those JWTs must name, such as the client id of cpctl.")
    oidc_name_claim: str = _setting("sub", "Claim of those JWTs that names the subject.")
    oidc_groups_claim: str = _setting("groups", "Claim of those JWTs that names the groups of the subject.")
    oidc_prefix: str = _setting("oidc:", "Begin of every subject and group of those JWTs; ends with a colon.")
    oidc_ca_file: str = _setting("", "File with the CA certificate of the issuer [default: the CAs of the system].")
    audit: str = _setting("", "File of the audit log, - for stdout; reopened on SIGHUP; empty: no audit log.")
    insecure: bool = _setting(False, "Ask no caller for credentials: everybody on this machine may do everything.")
    hosting_dir: str = _setting("", "Folder for the files of hosted joblets; empty: a temporary folder.")
    cluster_api_kubeconfig: str = _setting("", "kubeconfig of the management cluster; empty: no provider cluster-api.")
    failpoints: str = ""

    def __post_init__(self) -> None:
        if not self.etcd:
            raise Invalid("etcd", "needs at least one URL")
        if not self.id or len(self.id) > 63:
            raise Invalid("id", "must have 1 to 63 characters")
        self._check_served()
        for name in ("etcd_quota", "archive_bytes"):
            if size(getattr(self, name), name) < 2**20:
                raise Invalid(name, f"must be at least 1Mi, not {getattr(self, name)}")
        if self.cache_check < 1:
            raise Invalid("cache_check", f"must be at least 1 second, not {self.cache_check}")
        for endpoint in filter(None, self.local_endpoints.split(",")):
            address.parse(endpoint, "local_endpoints")
        if self.cluster_api_kubeconfig and not Path(self.cluster_api_kubeconfig).is_file():
            raise Invalid("cluster_api_kubeconfig", f"must be a file, not {self.cluster_api_kubeconfig!r}")
        self._check_oidc()
        OutsideHosts(self.allowed_hosts)
        where, _, path = self.webhook_secret.partition(":")
        if self.webhook_secret and (where not in ("file", "env") or not path):
            raise Invalid("webhook_secret", f"must be file:PATH or env:NAME, not {self.webhook_secret!r}")

    def _check_oidc(self) -> None:
        if bool(self.oidc_issuer) != bool(self.oidc_audience):
            raise Invalid("oidc_issuer", "and oidc_audience are given together or not at all")
        if self.oidc_issuer:
            web_url.check(self.oidc_issuer, "oidc_issuer")
        if not _PREFIX.fullmatch(self.oidc_prefix):
            raise Invalid("oidc_prefix", "must be 1 to 32 characters of a-z, 0-9, '.', '-' and '_', then a colon")
        for name in ("oidc_name_claim", "oidc_groups_claim"):
            if not getattr(self, name):
                raise Invalid(name, "must name a claim")

    def _check_served(self) -> None:
        """Beyond loopback a replica serves only encrypted, to callers with credentials, among proven replicas."""
        given = [bool(getattr(self, name)) for name in ("tls_cert", "tls_key", "tls_ca")]
        if any(given) and not all(given):
            raise Invalid("tls_cert", "needs --tls-cert, --tls-key and --tls-ca together")
        missing = "" if self.tls_cert else "TLS (--tls-cert, --tls-key, --tls-ca)"
        missing += "" if self.cluster_key_file else f"{' and ' * bool(missing)}a cluster key (--cluster-key-file)"
        missing += f"{' and ' * bool(missing)}credentials of callers (no --insecure)" if self.insecure else ""
        for name in ("grpc", "http", "pulse"):
            served = address.parse_served(getattr(self, name), name, beyond_loopback=True)
            if missing and not address.is_loopback(served.host):
                raise Invalid(name, f"{served.host} is not a loopback address, and this replica lacks {missing}")
            if address.is_wildcard(served.host) and not getattr(self, f"{name}_advertise"):
                option = f"--{name}-advertise"
                raise Invalid(name, f"{served.host} stands for every address; {option} must say where others find it")
            if getattr(self, f"{name}_advertise"):
                address.parse(getattr(self, f"{name}_advertise"), f"{name}_advertise")

    def read_webhook_secret(self) -> bytes:
        """The secret; empty when no secret is set, Invalid when the secret cannot be read."""
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


def size(text: str, field: str) -> int:
    """A size such as `8Gi` in bytes."""
    return int(quantity.parse(text, field))
