"""The users of etcd that the guide makes, by its own commands, on a real etcd with client certificates: an inspector
reads and cannot write, and a replica has all the rights that it asks for."""

from __future__ import annotations

import datetime
import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tests.deploy import guide
from tests.etcd import free_ports

KEY = "/controlplane/config/settings"
_WAIT_SECONDS = 60


class Certificates:
    """A CA and certificates of its own, by common name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test CA")])
        ca = self._certificate(self._name, self._key.public_key(), x509.BasicConstraints(True, None))
        self.ca = folder / "ca.crt"
        self.ca.write_bytes(ca.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str) -> tuple[Path, Path]:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = self._certificate(subject, key.public_key(), x509.BasicConstraints(False, None))
        crt, private = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        crt.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        private.touch(mode=0o600)
        private.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return crt, private

    def _certificate(
        self, subject: x509.Name, public: ec.EllipticCurvePublicKey, constraints: x509.BasicConstraints
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        loopback = x509.SubjectAlternativeName([x509.DNSName("localhost")])
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(constraints, critical=True)
        )
        if not constraints.ca:
            builder = builder.add_extension(usage, critical=False).add_extension(loopback, critical=False)
        return builder.sign(self._key, hashes.SHA256())


class Closed:
    """An etcd with the users of the guide."""

    def __init__(self, url: str, certificates: Certificates) -> None:
        self.url = url
        self._certificates = certificates

    def environment(self, user: str) -> dict[str, str]:
        crt, key = self._certificates.issue(user)
        return {
            **os.environ,
            "ETCDCTL_API": "3",
            "ETCDCTL_ENDPOINTS": self.url,
            "ETCDCTL_CACERT": str(self._certificates.ca),
            "ETCDCTL_CERT": str(crt),
            "ETCDCTL_KEY": str(key),
        }

    def etcdctl(self, user: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["etcdctl", *arguments]
        return subprocess.run(command, env=self.environment(user), capture_output=True, text=True, timeout=60)

    def files(self, user: str) -> tuple[str, str, str]:
        """CA, certificate and key."""
        crt, key = self._certificates.issue(user)
        return str(self._certificates.ca), str(crt), str(key)


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Closed]:
    folder = tmp_path_factory.mktemp("closed")
    certificates = Certificates(folder)
    crt, key = certificates.issue("server")
    client, peer = free_ports(2)
    url = f"https://localhost:{client}"
    command = [
        *("etcd", "--data-dir", str(folder / "data"), "--log-level=error", "--unsafe-no-fsync"),
        *("--listen-client-urls", f"https://127.0.0.1:{client}", "--advertise-client-urls", url),
        *(
            "--listen-peer-urls",
            f"http://127.0.0.1:{peer}",
            "--initial-advertise-peer-urls",
            f"http://127.0.0.1:{peer}",
        ),
        *("--initial-cluster", f"default=http://127.0.0.1:{peer}", "--enable-grpc-gateway=false"),
        *("--client-cert-auth", "--trusted-ca-file", str(certificates.ca)),
        *("--cert-file", str(crt), "--key-file", str(key)),
    ]
    with (folder / "etcd.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    here = Closed(url, certificates)
    try:
        ready = here.etcdctl(
            "root", f"--command-timeout={_WAIT_SECONDS}s", f"--dial-timeout={_WAIT_SECONDS}s", "get", "a"
        )
        assert ready.returncode == 0, ready.stderr
        done = subprocess.run(
            ["sh", "-e", "-c", guide.etcd_users()],
            env=here.environment("root"),
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        assert here.etcdctl("root", "put", KEY, "{}").returncode == 0
        yield here
    finally:
        process.kill()
        process.wait()


def test_the_inspector_reads_and_cannot_write(closed: Closed) -> None:
    assert closed.etcdctl("inspector", "get", KEY, "--print-value-only").stdout.strip() == "{}"
    for attempt in (
        ("put", KEY, "x"),
        ("del", KEY),
        ("put", "/controlplane/config/tokens/a", "x"),
        ("lease", "revoke", "1"),
    ):
        refused = closed.etcdctl("inspector", *attempt)
        assert refused.returncode != 0, attempt
    assert "permission denied" in closed.etcdctl("inspector", "put", KEY, "x").stderr
    assert closed.etcdctl("root", "get", KEY, "--print-value-only").stdout.strip() == "{}"


def test_the_inspector_sees_no_other_keys_and_manages_nothing(closed: Closed) -> None:
    assert closed.etcdctl("root", "put", "/of-others", "x").returncode == 0
    for attempt in (
        ("get", "/of-others"),
        ("get", "", "--prefix"),
        ("user", "add", "me", "--no-password"),
        ("auth", "disable"),
    ):
        assert closed.etcdctl("inspector", *attempt).returncode != 0, attempt


def test_a_certificate_without_a_user_may_nothing(closed: Closed) -> None:
    assert closed.etcdctl("stranger", "get", KEY).returncode != 0


def test_a_replica_leads_as_the_user_of_the_guide(closed: Closed, tmp_path: Path) -> None:
    """Whatever a replica asks of etcd, its user may."""
    ca, crt, private = closed.files("controlplane")
    key = tmp_path / "cluster.key"
    key.touch(mode=0o600)
    key.write_bytes(os.urandom(32))
    grpc, http = free_ports(2)
    command = [
        *("controlplane", "replica", "--id", "r1", "--etcd", closed.url, "--cluster-key-file", str(key)),
        *("--etcd-ca", ca, "--etcd-cert", crt, "--etcd-key", private),
        *("--grpc", f"127.0.0.1:{grpc}", "--http", f"127.0.0.1:{http}"),
    ]
    with (tmp_path / "replica.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        until = time.monotonic() + _WAIT_SECONDS
        while not _answers(f"http://127.0.0.1:{http}/leaderz"):
            assert process.poll() is None, (tmp_path / "replica.log").read_text()
            assert time.monotonic() < until, (tmp_path / "replica.log").read_text()
            time.sleep(0.1)
        assert _answers(f"http://127.0.0.1:{http}/readyz")
        assert "permission denied" not in (tmp_path / "replica.log").read_text()
    finally:
        process.kill()
        process.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
