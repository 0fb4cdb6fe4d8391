"""The processes of an embedded control plane: the command line of etcd, of each replica and of each joblet."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from controlplane.model.driver_traits import PROCESS
from controlplane.providers.local import NICE
from controlplane.standalone.endpoints import PLAIN_ETCD, EtcdFiles
from controlplane.standalone.etcd_binary import EtcdBinary
from controlplane.standalone.folder_tls import FolderTls
from controlplane.standalone.layout import Layout
from controlplane.standalone.ports import ETCD, ETCD_PEER, GRPC, HTTP, Ports

MEMBER = "embedded"
QUOTA_BYTES = 8 * 2**30
CAPACITY = "cpu=16,memory=16Gi"
PYTHON = (sys.executable, "-P", "-m")
_COMMAND = (*PYTHON, "controlplane.cli.controlplane")


@dataclass(frozen=True)
class UpOptions:
    """How many replicas and process targets to run; `insecure`: callers are asked for no credentials.

    `tls` begins a new folder with TLS; a used folder stays as it was begun.
    """

    replicas: int
    targets: int
    insecure: bool = False
    tls: bool = False

    @property
    def target_names(self) -> list[str]:
        return [f"local-{number}" for number in range(1, self.targets + 1)]


@dataclass(frozen=True)
class ProcessSpec:
    """A process to keep alive. `group` is etcd, replica or joblet."""

    name: str
    group: str
    argv: tuple[str, ...]
    grpc: str = ""
    http: str = ""


@dataclass(frozen=True)
class ProcessPlan:
    """All processes in the order of their start; they stop in the reverse order."""

    etcd_url: str
    etcd_version: tuple[int, int, int]
    etcd: ProcessSpec
    replicas: tuple[ProcessSpec, ...]
    joblets: tuple[ProcessSpec, ...]
    # Empty when callers are not asked for credentials.
    token_file: str = ""
    # None where connections are not encrypted.
    tls: FolderTls | None = None

    @property
    def scheme(self) -> str:
        return "http" if self.tls is None else "https"

    @property
    def etcd_files(self) -> EtcdFiles:
        return self.tls.etcd_files() if self.tls is not None else PLAIN_ETCD

    @property
    def parts(self) -> tuple[ProcessSpec, ...]:
        return (self.etcd, *self.replicas, *self.joblets)

    def up_json(self, pids: dict[str, int]) -> dict[str, Any]:
        return {
            "etcd": [self.etcd_url],
            "replicas": [
                {"id": part.name, "pid": pids.get(part.name), "grpc": part.grpc, "http": f"{self.scheme}://{part.http}"}
                for part in self.replicas
            ],
            "joblets": [{"target": part.name, "pid": pids.get(part.name)} for part in self.joblets],
            "etcd_pids": [pids[self.etcd.name]] if self.etcd.name in pids else [],
            "token_file": self.token_file or None,
            "tls": self.tls.up_json() if self.tls is not None else None,
        }


def plan_processes(
    layout: Layout, binary: EtcdBinary, ports: Ports, options: UpOptions, tls: FolderTls | None = None
) -> ProcessPlan:
    scheme = "http" if tls is None else "https"
    client, peer = f"{scheme}://{ports.address(ETCD)}", f"{scheme}://{ports.address(ETCD_PEER)}"
    addresses = [(ports.address(GRPC + number), ports.address(HTTP + number)) for number in range(options.replicas)]
    endpoints = ",".join(grpc for grpc, _ in addresses)
    keys: tuple[str, ...] = ("--secret-key-file", str(layout.secret_key), "--hosting-dir", str(layout.hosted))
    keys = (*keys, "--cluster-key-file", str(layout.cluster_key), *(("--insecure",) if options.insecure else ()))
    keys = (*keys, *(tls.replica_options() if tls is not None else ()))
    for_targets = (*keys, "--local-targets", str(layout.joblets), "--local-endpoints", endpoints)
    servers = tuple(
        _replica(f"replica-{number}", client, grpc, http, (*for_targets, "--audit", str(layout.audit(number))))
        for number, (grpc, http) in enumerate(addresses, 1)
    )
    for_joblets = ("--tls-ca", tls.ca) if tls is not None else ()
    workers = tuple(
        _joblet(layout, name, endpoints, for_joblets, closed=not options.insecure) for name in options.target_names
    )
    etcd = _etcd(layout, binary.path, client, peer, tls)
    token_file = "" if options.insecure else str(layout.token)
    return ProcessPlan(client, binary.version, etcd, servers, workers, token_file, tls)


def _etcd(layout: Layout, binary: str, client: str, peer: str, tls: FolderTls | None) -> ProcessSpec:
    """etcd with an hour of history for replay and verify; small batches keep one write's fsync from waiting for many.

    No HTTP gateway, no foreign host and no foreign origin: with these, any web page in a browser on this machine could
    write orders, and so run commands.
    """
    flags = {
        "name": MEMBER,
        "data-dir": str(layout.etcd),
        "listen-client-urls": client,
        "advertise-client-urls": client,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
        "initial-cluster": f"{MEMBER}={peer}",
        "quota-backend-bytes": str(QUOTA_BYTES),
        "backend-batch-limit": "1000",
        "auto-compaction-mode": "periodic",
        "auto-compaction-retention": "1h",
        "snapshot-count": "50000",
        "enable-grpc-gateway": "false",
        "cors": "http://localhost.invalid:1",
        "host-whitelist": "127.0.0.1,localhost",
        "logger": "zap",
        "log-level": "warn",
        **(tls.etcd_flags() if tls is not None else {}),
    }
    return ProcessSpec("etcd", "etcd", (binary, *(f"--{name}={value}" for name, value in flags.items())))


def _replica(name: str, etcd: str, grpc: str, http: str, for_targets: tuple[str, ...]) -> ProcessSpec:
    argv = (*_COMMAND, "replica", "--etcd", etcd, "--id", name, "--grpc", grpc, "--http", http,
            "--etcd-quota", str(QUOTA_BYTES), *for_targets)  # fmt: skip
    return ProcessSpec(name, "replica", argv, grpc=grpc, http=http)


def _joblet(layout: Layout, name: str, endpoints: str, options: tuple[str, ...], *, closed: bool) -> ProcessSpec:
    argv: tuple[str, ...] = (
        *_COMMAND,
        "joblet",
        "--target",
        name,
        "--endpoints",
        endpoints,
        "--driver",
        PROCESS,
        "--nice",
        NICE,
        *options,
    )
    if closed:
        argv = (*argv, "--token-file", str(layout.joblet_token(name)))
    return ProcessSpec(name, "joblet", (*argv, "--capacity", CAPACITY, "--data-dir", str(layout.joblets / name)))
