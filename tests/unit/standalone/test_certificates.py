"""`controlplane certs`: what is made, what is never overwritten, renewal, and the three steps to another CA."""

from __future__ import annotations

import ssl
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509

from controlplane.aio.clock import SystemClock
from controlplane.model.errors import AlreadyExists, Invalid, NotFound
from controlplane.standalone import certificates
from controlplane.standalone.certificates import CertificateUse

NOW = SystemClock().wall().replace(microsecond=0)
HOSTS = ["127.0.0.1", "::1", "host-1.example.org"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    certificates.make_authority(tmp_path / "ca", NOW)
    return tmp_path / "ca"


def cert_of(folder: Path, name: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate((folder / f"{name}.crt").read_bytes())


def content_of(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def is_trusted(folder: Path, name: str) -> bool:
    """Whether the certificate is signed by one of the CAs of the folder."""
    for authority in x509.load_pem_x509_certificates((folder / "ca.crt").read_bytes()):
        if authority.subject == cert_of(folder, name).issuer:
            cert_of(folder, name).verify_directly_issued_by(authority)
            return True
    return False


def test_a_certificate_names_its_hosts_and_its_key_is_private(folder: Path) -> None:
    issued = certificates.issue(folder, "replica", CertificateUse.SERVER, HOSTS, NOW)
    assert (issued.hosts, issued.use, issued.ends) == (tuple(HOSTS), CertificateUse.SERVER, NOW + timedelta(days=365))
    assert is_trusted(folder, "replica")
    for name in ("ca", "replica"):
        assert (folder / f"{name}.key").stat().st_mode & 0o777 == 0o600
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "replica.crt", folder / "replica.key")
    assert certificates.issued(folder) == [issued]


def test_nothing_is_overwritten_without_force(folder: Path) -> None:
    certificates.issue(folder, "etcd", CertificateUse.ETCD, HOSTS, NOW)
    before = content_of(folder)
    with pytest.raises(AlreadyExists, match="--force"):
        certificates.make_authority(folder, NOW)
    with pytest.raises(AlreadyExists, match="--force"):
        certificates.issue(folder, "etcd", CertificateUse.ETCD, HOSTS, NOW)
    assert content_of(folder) == before
    certificates.issue(folder, "etcd", CertificateUse.ETCD, HOSTS, NOW, force=True)
    assert content_of(folder)["etcd.crt"] != before["etcd.crt"]


@pytest.mark.parametrize(
    ("name", "hosts", "field"),
    [
        ("ca", HOSTS, "name"),
        ("../escape", HOSTS, "name"),
        ("", HOSTS, "name"),
        ("replica", [], "host"),
        ("replica", ["has space"], "host"),
        ("replica", ["a" * 300], "host"),
        ("replica", ["127.0.0.1"] * 101, "host"),
    ],
)
def test_bad_names_and_hosts_are_refused(folder: Path, name: str, hosts: list[str], field: str) -> None:
    before = content_of(folder)
    with pytest.raises(Invalid, match=f"^{field}"):
        certificates.issue(folder, name, CertificateUse.SERVER, hosts, NOW)
    assert set(content_of(folder)) - {"lock"} == set(before) - {"lock"}


def test_a_folder_without_a_ca_is_refused(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(NotFound, match="certs init"):
            certificates.issue(folder, "replica", CertificateUse.SERVER, HOSTS, NOW)
        with pytest.raises(NotFound, match="certs init"):
            certificates.renew(folder, NOW, within=timedelta(days=1))


def test_only_what_ends_soon_is_renewed_and_the_ca_stays(folder: Path) -> None:
    certificates.issue(folder, "short", CertificateUse.ETCD, HOSTS, NOW, days=10)
    certificates.issue(folder, "long", CertificateUse.CLIENT, [], NOW, days=300)
    before = content_of(folder)
    renewed = certificates.renew(folder, NOW, within=timedelta(days=30))
    after = content_of(folder)
    assert [(one.name, one.use, one.hosts) for one in renewed] == [("short", CertificateUse.ETCD, tuple(HOSTS))]
    assert {name for name in after if after[name] != before[name]} == {"short.crt", "short.key"}
    assert certificates.renew(folder, NOW, within=timedelta(days=30)) == []


def test_a_pair_that_a_crash_left_apart_is_issued_again(folder: Path) -> None:
    certificates.issue(folder, "replica", CertificateUse.SERVER, HOSTS, NOW)
    certificates.issue(folder, "other", CertificateUse.SERVER, HOSTS, NOW)
    (folder / "replica.key").write_bytes((folder / "other.key").read_bytes())
    assert [one.name for one in certificates.renew(folder, NOW, within=timedelta(0))] == ["replica"]


def test_a_ca_is_replaced_in_three_steps_and_every_step_trusts_every_certificate(folder: Path) -> None:
    certificates.issue(folder, "replica", CertificateUse.SERVER, HOSTS, NOW)
    first = cert_of(folder, "replica").issuer
    certificates.add_authority(folder, NOW)
    assert is_trusted(folder, "replica")
    with pytest.raises(Invalid, match="renew --all"):
        certificates.forget_former(folder)
    certificates.renew(folder, NOW, within=timedelta.max)
    assert is_trusted(folder, "replica")
    assert cert_of(folder, "replica").issuer != first
    certificates.forget_former(folder)
    assert is_trusted(folder, "replica")
    assert len(x509.load_pem_x509_certificates((folder / "ca.crt").read_bytes())) == 1


def test_no_certificate_outlives_its_ca(tmp_path: Path) -> None:
    certificates.make_authority(tmp_path, NOW, days=5)
    issued = certificates.issue(tmp_path, "replica", CertificateUse.SERVER, HOSTS, NOW)
    assert issued.ends == NOW + timedelta(days=5)
