"""A kubeconfig that logs in with a client certificate, taken apart and rendered anew as a host does it."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from controlplane.joblet.drivers.kubernetes.api import Answered, connect
from controlplane.model import kubeconfig
from controlplane.model.kubeconfig import Kubeconfig
from tests.kubernetes.conftest import binary_or_skip
from tests.kubernetes.server import KubeServer, running_server

PODS = "/api/v1/namespaces/default/pods"


class Signed(NamedTuple):
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def certificate_pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    @property
    def key_pem(self) -> str:
        plain = serialization.NoEncryption()
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, plain
        ).decode()


def signed(name: str, group: str, by: Signed | None = None) -> Signed:
    """By another one, or by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    attributes = [(NameOID.ORGANIZATION_NAME, group), (NameOID.COMMON_NAME, name)]
    subject = x509.Name([x509.NameAttribute(oid, value) for oid, value in attributes])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(by.certificate.subject if by else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=by is None, path_length=None), critical=True)
    )
    if by is not None:
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
        builder = builder.add_extension(usage, critical=False)
    return Signed(builder.sign(by.key if by else key, hashes.SHA256()), key)


@pytest.fixture(scope="module")
def authority() -> Signed:
    return signed("authority", "test")


@pytest.fixture(scope="module")
def kube(tmp_path_factory: pytest.TempPathFactory, authority: Signed) -> Iterator[KubeServer]:
    """One that believes certificates of that authority."""
    folder = tmp_path_factory.mktemp("certified")
    (folder / "authority.pem").write_text(authority.certificate_pem)
    with running_server(binary_or_skip(), folder, [f"--client-ca-file={folder / 'authority.pem'}"]) as server:
        yield server


async def listed(kube: KubeServer, who: Signed, folder: Path) -> int:
    """How the server answers to a list of pods by that one; 200 when it shows them."""
    config = Kubeconfig(server=kube.url, ca=kube.ca, client_certificate=who.certificate_pem, client_key=who.key_pem)
    rendered = kubeconfig.render(kubeconfig.parse(kubeconfig.render(config)))
    (folder / "kubeconfig").write_text(rendered)
    api = await connect(str(folder / "kubeconfig"), seconds=10.0)
    try:
        await api.ask("GET", PODS)
    except Answered as error:
        return error.status
    finally:
        await api.close()
    return 200


async def test_who_a_client_is_stands_in_its_certificate(kube: KubeServer, authority: Signed, tmp_path: Path) -> None:
    assert await listed(kube, signed("joblet", "system:masters", authority), tmp_path) == 200
    assert await listed(kube, signed("joblet", "nobody", authority), tmp_path) == 403
    stranger = signed("joblet", "system:masters", signed("authority", "test"))
    assert await listed(kube, stranger, tmp_path) == 401
