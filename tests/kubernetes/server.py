"""A real Kubernetes API server of a test's own, on an etcd of its own: free ports, one folder, stopped by their pids.

There is no scheduler, no controller and no kubelet behind it: `kubelet.py` plays them through the API.
"""

from __future__ import annotations

import base64
import json
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.etcd import Etcd, free_ports

ROOT = Path(__file__).parents[2]
TOKEN = "token-of-the-admin"
_START_SECONDS = 120.0
_STOP_SECONDS = 60.0


def find_binary() -> str | None:
    """What `scripts/kube-apiserver` finds; None when there is none."""
    found = subprocess.run([str(ROOT / "scripts" / "kube-apiserver")], capture_output=True, text=True)
    return found.stdout.strip() if found.returncode == 0 else None


class KubeServer:
    """`url` is https; `kubeconfig` is a file with all that a client needs in it, the admin's token too."""

    def __init__(self, binary: str, folder: Path, flags: Sequence[str] = ()) -> None:
        self._binary = binary
        self._folder = folder
        self._flags = tuple(flags)
        self._port = free_ports(1)[0]
        self.url = f"https://127.0.0.1:{self._port}"
        (folder / "etcd").mkdir(parents=True, exist_ok=True)
        self.etcd = Etcd(folder / "etcd")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def ca(self) -> str:
        """The certificates to trust, in PEM: known once it has started."""
        return (self._folder / "certs" / "apiserver.crt").read_text()

    @property
    def trust(self) -> ssl.SSLContext:
        return ssl.create_default_context(cadata=self.ca)

    @property
    def kubeconfig(self) -> Path:
        return self._folder / "kubeconfig.json"

    def kubeconfig_for(self, *, token: str = TOKEN, url: str = "") -> str:
        """For another token, or for a proxy in front of it; JSON, which is YAML too."""
        cluster = {"server": url or self.url, "certificate-authority-data": base64.b64encode(self.ca.encode()).decode()}
        return json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "test", "cluster": cluster}],
                "users": [{"name": "test", "user": {"token": token}}],
                "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
                "current-context": "test",
            }
        )

    def start(self) -> None:
        """Returns when it is ready."""
        self.etcd.start()
        self.start_server()
        self.kubeconfig.write_text(self.kubeconfig_for())

    def start_server(self) -> None:
        key = self._folder / "sa.key"
        if not key.exists():
            subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
            (self._folder / "tokens.csv").write_text(f"{TOKEN},admin,admin,system:masters\n")
        command = [
            self._binary,
            f"--etcd-servers={self.etcd.endpoint}",
            f"--secure-port={self._port}",
            "--bind-address=127.0.0.1",
            f"--cert-dir={self._folder / 'certs'}",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--authorization-mode=RBAC",
            f"--token-auth-file={self._folder / 'tokens.csv'}",
            "--disable-admission-plugins=ServiceAccount",
            *self._flags,
        ]
        with open(self._folder / "kube-apiserver.log", "ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        until = time.monotonic() + _START_SECONDS
        while not self._ready():
            if self._process.poll() is not None or time.monotonic() > until:
                self.kill()
                raise RuntimeError((self._folder / "kube-apiserver.log").read_text(errors="replace")[-3000:])
            time.sleep(0.05)

    def _ready(self) -> bool:
        try:
            request = urllib.request.Request(f"{self.url}/readyz", headers={"Authorization": f"Bearer {TOKEN}"})
            with urllib.request.urlopen(request, timeout=2, context=self.trust) as answer:
                return bool(answer.read() == b"ok")
        except (urllib.error.URLError, OSError):
            return False

    def kill_server(self) -> None:
        """The API goes away at once; what it stored stays."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(_STOP_SECONDS)
            self._process = None

    def kill(self) -> None:
        self.kill_server()
        self.etcd.kill()


@contextmanager
def running_server(binary: str, folder: Path, flags: Sequence[str] = ()) -> Iterator[KubeServer]:
    folder.mkdir(parents=True, exist_ok=True)
    server = KubeServer(binary, folder, flags)
    try:
        server.start()
        yield server
    finally:
        server.kill()
