"""A certificate authority in a folder, for a first installation: `ca.crt`, `ca.key`, and NAME.crt with NAME.key.

`ca.crt` holds every CA to trust. The CA that signs is the one that `ca.key` belongs to. A CA is replaced in three
steps, with time between them for every process to read the files again: `add_authority` (both are trusted, nothing else
changes), `renew` of all certificates (the new CA signs), `forget_former` (the new CA alone is trusted). A certificate
itself tells its hosts and its use, so `renew` needs no other record. Keys are for their owner alone.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from controlplane.aio.clock import chance
from controlplane.aio.files import lock_file, write_by_rename
from controlplane.key_files import read_private
from controlplane.model import times
from controlplane.model.errors import AlreadyExists, Invalid, NotFound

AUTHORITY = "ca"
AUTHORITY_DAYS = 3650
CERTIFICATE_DAYS = 365
# The clock of another machine may be behind.
_BACKDATED = timedelta(hours=1)
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,62}")
_LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST = re.compile(rf"(\*\.)?{_LABEL}(\.{_LABEL})*")
_LONGEST_HOST = 253
_MOST_HOSTS = 100
_MOST_DAYS = 36500


class CertificateUse(StrEnum):
    """server: a replica. etcd: a member of etcd, towards clients and other members. client: a client of etcd."""

    SERVER = "server"
    ETCD = "etcd"
    CLIENT = "client"


_USAGES = {
    CertificateUse.SERVER: (ExtendedKeyUsageOID.SERVER_AUTH,),
    CertificateUse.ETCD: (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH),
    CertificateUse.CLIENT: (ExtendedKeyUsageOID.CLIENT_AUTH,),
}


@dataclass(frozen=True)
class Issued:
    """A certificate of the folder, as people see it."""

    name: str
    use: CertificateUse
    hosts: tuple[str, ...]
    ends: datetime

    def sentence(self) -> str:
        hosts = f" for {', '.join(self.hosts)}" if self.hosts else ""
        return f"{self.name}.crt: {self.use}{hosts}, until {times.show(self.ends)}"


def make_authority(folder: Path, now: datetime, *, days: int = AUTHORITY_DAYS, force: bool = False) -> None:
    """AlreadyExists when the folder has a CA, unless forced: what the CA of before signed is then worth nothing."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _locked(folder):
        if not force and (_cert_file(folder, AUTHORITY).exists() or _key_file(folder, AUTHORITY).exists()):
            raise AlreadyExists(f"{folder} has a CA already; --force makes another one, which trusts nothing of it")
        key, certificate = _new_authority(now, days)
        _write_pair(folder, AUTHORITY, key, [certificate])


def add_authority(folder: Path, now: datetime, *, days: int = AUTHORITY_DAYS) -> None:
    """Makes a new CA that signs from now on, trusted beside the CAs of before."""
    with _locked(folder):
        _authority(folder)
        key, certificate = _new_authority(now, days)
        # In this order: after a crash between the writes the CA of before still signs.
        _write_cert(_cert_file(folder, AUTHORITY), [certificate, *_certificates(_cert_file(folder, AUTHORITY))])
        _write_key(_key_file(folder, AUTHORITY), key)


def forget_former(folder: Path) -> None:
    """Trusts the signing CA alone; Invalid while a certificate of the folder is signed by another CA."""
    with _locked(folder):
        _, current = _authority(folder)
        for name in _names(folder):
            if not _is_signed_by(_certificate(folder, name), current):
                raise Invalid(
                    "forget-old-ca", f"{name}.crt is of the former CA; `controlplane certs renew --all` first"
                )
        _write_cert(_cert_file(folder, AUTHORITY), [current])


def issue(
    folder: Path,
    name: str,
    use: CertificateUse,
    hosts: Sequence[str],
    now: datetime,
    *,
    days: int = CERTIFICATE_DAYS,
    force: bool = False,
) -> Issued:
    """Writes NAME.crt and NAME.key; AlreadyExists when one is there, unless forced."""
    if not _NAME.fullmatch(name) or name == AUTHORITY:
        raise Invalid("name", f"{name!r} must be 1 to 63 characters of a-z, 0-9, dot and dash, and not {AUTHORITY!r}")
    if use is not CertificateUse.CLIENT and not hosts:
        raise Invalid("host", "is needed: the names and addresses by which others reach the server")
    if len(hosts) > _MOST_HOSTS:
        raise Invalid("host", f"must be given at most {_MOST_HOSTS} times")
    names = [_general_name(host) for host in hosts]
    with _locked(folder):
        there = [file for file in (_cert_file(folder, name), _key_file(folder, name)) if file.exists()]
        if there and not force:
            raise AlreadyExists(
                f"{there[0]} is there already; --force replaces it, `controlplane certs renew` keeps it"
            )
        return _issue(folder, name, use, names, now, days)


def renew(folder: Path, now: datetime, *, within: timedelta, days: int = CERTIFICATE_DAYS) -> list[Issued]:
    """Issues again, with new keys, the certificates that end within this time, and those that lost their key."""
    renewed = []
    with _locked(folder):
        _authority(folder)
        for name in _names(folder):
            certificate = _certificate(folder, name)
            if certificate.not_valid_after_utc - now <= within or not _has_its_key(folder, name, certificate):
                shown = _shown(name, certificate)
                names = [_general_name(host) for host in shown.hosts]
                renewed.append(_issue(folder, name, shown.use, names, now, days))
    return renewed


def issued(folder: Path) -> list[Issued]:
    """The certificates of the folder; NotFound without a CA."""
    _authority(folder)
    return [_shown(name, _certificate(folder, name)) for name in _names(folder)]


def authority_ends(folder: Path) -> datetime:
    return _authority(folder)[1].not_valid_after_utc


def _issue(
    folder: Path, name: str, use: CertificateUse, names: Sequence[x509.GeneralName], now: datetime, days: int
) -> Issued:
    signing_key, authority = _authority(folder)
    key = ec.generate_private_key(ec.SECP256R1())
    ends = min(_end(now, days), authority.not_valid_after_utc)
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key())
    builder = (
        _unsigned(_subject(name), authority.subject, key.public_key(), now, ends)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(_USAGES[use]), critical=False)
        .add_extension(identifier, critical=False)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    certificate = builder.sign(signing_key, hashes.SHA256())
    _write_pair(folder, name, key, [certificate])
    return _shown(name, certificate)


def _new_authority(now: datetime, days: int) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    """Each CA has a name of its own, so that a bundle of two is never ambiguous."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject(f"controlplane CA {chance(4).hex()}")
    builder = (
        _unsigned(subject, subject, key.public_key(), now, _end(now, days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs=True), critical=True)
    )
    return key, builder.sign(key, hashes.SHA256())


def _unsigned(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, ends: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(ends)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _end(now: datetime, days: int) -> datetime:
    if not 1 <= days <= _MOST_DAYS:
        raise Invalid("days", f"must be 1 to {_MOST_DAYS}, not {days}")
    return now + timedelta(days=days)


def _key_usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        if not _HOST.fullmatch(host) or len(host) > _LONGEST_HOST:
            raise Invalid("host", f"{host!r} is neither an IP address nor the name of a host") from None
        return x509.DNSName(host)


def _authority(folder: Path) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    """The signing CA: its key, and the certificate among those to trust that belongs to the key."""
    if not _key_file(folder, AUTHORITY).exists() or not _cert_file(folder, AUTHORITY).exists():
        raise NotFound(f"{folder} has no CA; `controlplane certs init {folder}` makes one")
    key = _private_key(folder, AUTHORITY)
    for certificate in _certificates(_cert_file(folder, AUTHORITY)):
        if certificate.public_key() == key.public_key():
            return key, certificate
    raise Invalid("dir", f"{_cert_file(folder, AUTHORITY)} has no certificate for the key beside it")


def _private_key(folder: Path, name: str) -> ec.EllipticCurvePrivateKey:
    file = _key_file(folder, name)
    try:
        key = serialization.load_pem_private_key(read_private(str(file), "dir"), password=None)
    except (ValueError, TypeError):
        raise Invalid("dir", f"{file} is no private key without a password") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise Invalid("dir", f"{file} was not made by `controlplane certs`")
    return key


def _certificate(folder: Path, name: str) -> x509.Certificate:
    return _certificates(_cert_file(folder, name))[0]


def _certificates(file: Path) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(file.read_bytes())
    except OSError as error:
        raise Invalid("dir", f"{file} cannot be read: {error.strerror}") from None
    except ValueError:
        raise Invalid("dir", f"{file} is no certificate") from None


def _has_its_key(folder: Path, name: str, certificate: x509.Certificate) -> bool:
    """False after a crash between the writes of the two files."""
    return _private_key(folder, name).public_key() == certificate.public_key()


def _is_signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    return certificate.issuer == authority.subject


def _shown(name: str, certificate: x509.Certificate) -> Issued:
    usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    use = next(use for use, expected in _USAGES.items() if set(expected) == set(usages))
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        hosts = tuple(str(name.value) for name in names)
    except x509.ExtensionNotFound:
        hosts = ()
    return Issued(name, use, hosts, certificate.not_valid_after_utc)


def _names(folder: Path) -> list[str]:
    """The certificates whose key is in the folder too."""
    names = sorted(file.name.removesuffix(".crt") for file in folder.glob("*.crt"))
    return [name for name in names if name != AUTHORITY and _key_file(folder, name).exists()]


def _cert_file(folder: Path, name: str) -> Path:
    return folder / f"{name}.crt"


def _key_file(folder: Path, name: str) -> Path:
    return folder / f"{name}.key"


def _write_pair(
    folder: Path, name: str, key: ec.EllipticCurvePrivateKey, certificates: Sequence[x509.Certificate]
) -> None:
    """Two renames: a process that reads between them sees files that are no pair, and reads again later."""
    _write_key(_key_file(folder, name), key)
    _write_cert(_cert_file(folder, name), certificates)


def _write_key(file: Path, key: ec.EllipticCurvePrivateKey) -> None:
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    write_by_rename(file, key.private_bytes(encoding, form, serialization.NoEncryption()))


def _write_cert(file: Path, certificates: Sequence[x509.Certificate]) -> None:
    write_by_rename(file, b"".join(each.public_bytes(serialization.Encoding.PEM) for each in certificates))
    file.chmod(0o644)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Holds the folder, so that two commands never write at the same time."""
    if not folder.is_dir():
        raise NotFound(f"{folder} is no folder; `controlplane certs init {folder}` makes one")
    lock = lock_file(folder / "lock")
    if lock is None:
        raise AlreadyExists(f"another command writes certificates in {folder}")
    try:
        yield
    finally:
        os.close(lock)
