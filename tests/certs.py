"""Certificates of a test's own: a CA in a folder, with certificates for loopback, made as `controlplane certs` does."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path

from controlplane.aio.clock import SystemClock
from controlplane.standalone import certificates
from controlplane.standalone.certificates import CertificateUse
from controlplane.tls_files import TlsFiles

HOSTS = ("127.0.0.1", "localhost")


class TestAuthority:
    """The folder of a CA, with a certificate for each use: server, etcd and client."""

    __test__ = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        certificates.make_authority(folder, SystemClock().wall())
        for use in CertificateUse:
            certificates.issue(folder, use.value, use, HOSTS, SystemClock().wall())

    @property
    def ca(self) -> str:
        return str(self.folder / "ca.crt")

    def files(self, name: str = "server") -> TlsFiles:
        return TlsFiles(str(self.folder / f"{name}.crt"), str(self.folder / f"{name}.key"), self.ca)

    def renew(self) -> None:
        """New certificates and keys for everything, by the CA that signs."""
        certificates.renew(self.folder, SystemClock().wall(), within=timedelta.max)

    def add_authority(self) -> None:
        certificates.add_authority(self.folder, SystemClock().wall())

    def forget_former(self) -> None:
        certificates.forget_former(self.folder)

    def copy_ca(self, to: Path) -> str:
        """The CA file as another machine has it."""
        shutil.copy(self.ca, to)
        return str(to)
