"""The stage: an embedded control plane in a folder of its own, and simulated targets beside it, gone afterwards.

BENCH_TLS=1: `flow` and `failover` with TLS on every connection, that to etcd included.
"""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc

from controlplane.store.channel import EtcdOptions
from tests.credentials import TOKEN, leave_token, token_channel

_TLS = os.environ.get("BENCH_TLS") == "1"
_CONTROLPLANE = (sys.executable, "-P", "-m", "controlplane.cli.controlplane")


class Stage:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def up_json(self) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads((self.folder / "up.json").read_text())
        return loaded

    def endpoints(self) -> list[str]:
        return [replica["grpc"] for replica in self.up_json()["replicas"]]

    def etcd(self) -> str:
        return str(self.up_json()["etcd"][0])

    def etcd_options(self) -> EtcdOptions:
        tls = self._tls()
        return EtcdOptions((self.etcd(),), tls.get("ca", ""), tls.get("etcd_cert", ""), tls.get("etcd_key", ""))

    def etcd_context(self) -> ssl.SSLContext | None:
        tls = self._tls()
        if not tls:
            return None
        context = ssl.create_default_context(cafile=tls["ca"])
        context.load_cert_chain(tls["etcd_cert"], tls["etcd_key"])
        return context

    def channel(self, endpoint: str) -> grpc.aio.Channel:
        return token_channel(endpoint, self._tls().get("ca", ""))

    def _tls(self) -> dict[str, str]:
        return self.up_json()["tls"] or {}

    @contextmanager
    def simulated(self, *, count: int, capacity: str, duration: str) -> Iterator[int]:
        """Simulated targets `sim-0`... in one process of their own, whose pid this gives."""
        command = [
            *_CONTROLPLANE, "joblet", "--target", "sim", "--endpoints", ",".join(self.endpoints()), "--driver",
            "simulated", "--count", str(count), "--capacity", capacity, "--duration", duration,
        ]  # fmt: skip
        command += ["--tls-ca", self._tls()["ca"]] if self._tls() else []
        with (self.folder / "simulated.log").open("wb") as log:
            environment = {**os.environ, "CONTROLPLANE_TOKEN": TOKEN}
            process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        try:
            yield process.pid
        finally:
            process.terminate()
            process.wait(10)


@contextmanager
def stage(*, replicas: int = 3, targets: int = 2) -> Iterator[Stage]:
    with tempfile.TemporaryDirectory(prefix="controlplane-bench-") as folder:
        where = ["--data-dir", folder]
        leave_token(Path(folder))
        size = ["--replicas", str(replicas), "--targets", str(targets), *(["--tls"] if _TLS else [])]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("CONTROLPLANE_")}
        subprocess.run(
            [*_CONTROLPLANE, "up", *size, *where, "--detach"], check=True, env=environment, stdout=sys.stderr
        )
        try:
            yield Stage(Path(folder))
        finally:
            subprocess.run([*_CONTROLPLANE, "down", *where], check=False, env=environment, stdout=sys.stderr)
