"""What an embedded control plane consists of: the command line of etcd, of each replica and of each joblet."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from controlplane.cli.etcd_binary import Binary
from controlplane.cli.up.layout import Layout
from controlplane.cli.up.ports import ETCD, ETCD_PEER, GRPC, HTTP, Ports
from controlplane.providers.local import NICE

MEMBER = "embedded"
QUOTA_BYTES = 8 * 2**30
CAPACITY = "cpu=16,memory=16Gi"
PYTHON = (sys.executable, "-P", "-m")
_COMMAND = (*PYTHON, "controlplane.cli.controlplane")


@dataclass(frozen=True)
class Part:
    """One process to keep alive. `group` is etcd, replica or joblet."""

    name: str
    group: str
    argv: tuple[str, ...]
    grpc: str = ""
    http: str = ""


@dataclass(frozen=True)
class Plan:
    """All parts, in the order in which they start; they stop in the reverse order."""

    etcd_url: str
    etcd_version: tuple[int, int, int]
    etcd: Part
    replicas: tuple[Part, ...]
    joblets: tuple[Part, ...]

    @property
    def parts(self) -> tuple[Part, ...]:
        return (self.etcd, *self.replicas, *self.joblets)

    def up_json(self, pids: dict[str, int]) -> dict[str, Any]:
        return {
            "etcd": [self.etcd_url],
            "replicas": [
                {"id": part.name, "pid": pids.get(part.name), "grpc": part.grpc, "http": f"http://{part.http}"}
                for part in self.replicas
            ],
            "joblets": [{"target": part.name, "pid": pids.get(part.name)} for part in self.joblets],
            "etcd_pids": [pids[self.etcd.name]] if self.etcd.name in pids else [],
        }


def plan(layout: Layout, binary: Binary, ports: Ports, *, replicas: int, targets: int) -> Plan:
    client, peer = f"http://{ports.address(ETCD)}", f"http://{ports.address(ETCD_PEER)}"
    addresses = [(ports.address(GRPC + number), ports.address(HTTP + number)) for number in range(replicas)]
    endpoints = ",".join(grpc for grpc, _ in addresses)
    keys = ("--secret-key-file", str(layout.secret_key), "--hosting-dir", str(layout.hosted))
    made = (*keys, "--local-targets", str(layout.joblets), "--local-endpoints", endpoints)
    servers = tuple(
        _replica(f"replica-{number}", client, grpc, http, made) for number, (grpc, http) in enumerate(addresses, 1)
    )
    workers = tuple(_joblet(layout, number, endpoints) for number in range(1, targets + 1))
    return Plan(client, binary.version, _etcd(layout, binary.path, client, peer), servers, workers)


def _etcd(layout: Layout, binary: str, client: str, peer: str) -> Part:
    """An hour of history for replay and verify; small batches keep the fsync of one write from waiting for many.

    No HTTP gateway, no foreign host and no foreign origin: by those any web page in a browser on this machine could
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
    }
    return Part("etcd", "etcd", (binary, *(f"--{name}={value}" for name, value in flags.items())))


def _replica(name: str, etcd: str, grpc: str, http: str, made: tuple[str, ...]) -> Part:
    argv = (*_COMMAND, "replica", "--etcd", etcd, "--id", name, "--grpc", grpc, "--http", http,
            "--etcd-quota", str(QUOTA_BYTES), *made)  # fmt: skip
    return Part(name, "replica", argv, grpc=grpc, http=http)


def _joblet(layout: Layout, number: int, endpoints: str) -> Part:
    name = f"local-{number}"
    argv = (*_COMMAND, "joblet", "--target", name, "--endpoints", endpoints, "--driver", "process", "--nice", NICE)
    return Part(name, "joblet", (*argv, "--capacity", CAPACITY, "--data-dir", str(layout.joblets / name)))
