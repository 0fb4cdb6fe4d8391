"""The TLS files of a folder of `up --tls`: a CA and its certificates, made at the first start and renewed by `up`.

`up` decides at its first start whether a folder is encrypted, and the folder stays so.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from controlplane.aio.clock import Clock
from controlplane.model.errors import ControlPlaneError, Refused
from controlplane.standalone import certificates
from controlplane.standalone.certificates import CertificateUse
from controlplane.standalone.endpoints import EtcdFiles
from controlplane.standalone.layout import Layout

ETCD_CLIENT = "etcd-client"
_HOSTS = ("127.0.0.1", "::1", "localhost")
_RENEW_WITHIN = timedelta(days=30)
_LOOK_SECONDS = 3600.0


@dataclass(frozen=True)
class FolderTls:
    """The files below `tls/` of a folder."""

    folder: Path

    @property
    def ca(self) -> str:
        return str(self.folder / "ca.crt")

    def pair(self, name: str) -> tuple[str, str]:
        """The certificate file and the key file of replica, etcd or etcd-client."""
        return str(self.folder / f"{name}.crt"), str(self.folder / f"{name}.key")

    def etcd_flags(self) -> dict[str, str]:
        cert, key = self.pair("etcd")
        return {
            "cert-file": cert,
            "key-file": key,
            "trusted-ca-file": self.ca,
            "client-cert-auth": "true",
            "peer-cert-file": cert,
            "peer-key-file": key,
            "peer-trusted-ca-file": self.ca,
            "peer-client-cert-auth": "true",
        }

    def replica_options(self) -> tuple[str, ...]:
        cert, key = self.pair("replica")
        etcd_cert, etcd_key = self.pair(ETCD_CLIENT)
        return (
            "--tls-cert", cert, "--tls-key", key, "--tls-ca", self.ca,
            "--etcd-ca", self.ca, "--etcd-cert", etcd_cert, "--etcd-key", etcd_key,
        )  # fmt: skip

    def etcd_files(self) -> EtcdFiles:
        """For clients of the folder's etcd."""
        return EtcdFiles(self.ca, *self.pair(ETCD_CLIENT))

    def up_json(self) -> dict[str, str]:
        etcd_cert, etcd_key = self.pair(ETCD_CLIENT)
        return {"ca": self.ca, "etcd_cert": etcd_cert, "etcd_key": etcd_key}

    def etcdctl_exports(self) -> str:
        cert, key = self.pair(ETCD_CLIENT)
        names = {"CACERT": self.ca, "CERT": cert, "KEY": key}
        return "".join(f"export ETCDCTL_{name}={shlex.quote(path)}\n" for name, path in names.items())


def find(layout: Layout) -> FolderTls | None:
    """The files of a folder that was begun with TLS; None for any other folder."""
    return FolderTls(layout.tls) if (layout.tls / "ca.crt").exists() else None


def prepare(layout: Layout, clock: Clock, *, wanted: bool) -> FolderTls | None:
    """Makes what is missing, and renews what ends soon; None for a folder without TLS."""
    is_begun = layout.etcd_env.exists()
    if find(layout) is None and (is_begun or not wanted):
        if wanted:
            raise Refused(
                f"{layout.folder} was begun without TLS, and stays so. To move its data: `cpctl backup FILE`, "
                "`controlplane down`, `cpctl restore FILE --data-dir NEW`, `controlplane up --tls --data-dir NEW`"
            )
        return None
    now = clock.wall()
    if find(layout) is None:
        certificates.make_authority(layout.tls, now)
    there = {one.name for one in certificates.issued(layout.tls)}
    uses = {"replica": CertificateUse.SERVER, "etcd": CertificateUse.ETCD, ETCD_CLIENT: CertificateUse.CLIENT}
    for name, use in uses.items():
        if name not in there:
            hosts = () if use is CertificateUse.CLIENT else _HOSTS
            certificates.issue(layout.tls, name, use, hosts, now, force=True)
    certificates.renew(layout.tls, now, within=_RENEW_WITHIN)
    return FolderTls(layout.tls)


async def keep_renewed(tls: FolderTls, clock: Clock, tell: Callable[[str], None]) -> None:
    """Renews what ends soon, while `up` runs; its processes read changed files by themselves."""
    while True:
        await clock.sleep(_LOOK_SECONDS)
        try:
            renewed = await asyncio.to_thread(certificates.renew, tls.folder, clock.wall(), within=_RENEW_WITHIN)
        except (ControlPlaneError, OSError) as error:
            tell(f"certificates cannot be renewed: {error}")
            continue
        for one in renewed:
            tell(f"renewed {one.sentence()}")
