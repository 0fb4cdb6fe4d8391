"""CONTROLPLANE_TEST_TLS=1: the worlds of fault tests, and the etcd of every test, are encrypted.

One CA for the whole run. Without the variable everything here is empty, and connections are plain.
"""

from __future__ import annotations

import atexit
import os
import shutil
import ssl
import tempfile
from functools import cache
from pathlib import Path

from controlplane.store.channel import EtcdOptions
from tests.certs import TestAuthority

ENCRYPTED = os.environ.get("CONTROLPLANE_TEST_TLS") == "1"
SCHEME = "https" if ENCRYPTED else "http"


@cache
def authority() -> TestAuthority:
    folder = Path(tempfile.mkdtemp(prefix="controlplane-tls-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return TestAuthority(folder / "tls")


def ca_file() -> str:
    """For clients of replicas."""
    return authority().ca if ENCRYPTED else ""


def etcd_flags() -> list[str]:
    """A member of etcd that takes only clients with a certificate."""
    if not ENCRYPTED:
        return []
    files = authority().files("etcd")
    return [
        f"--cert-file={files.cert}",
        f"--key-file={files.key}",
        f"--trusted-ca-file={files.ca}",
        "--client-cert-auth",
    ]


def etcd_options(endpoints: str) -> EtcdOptions:
    urls = tuple(endpoints.split(","))
    if not ENCRYPTED:
        return EtcdOptions(urls)
    files = authority().files("client")
    return EtcdOptions(urls, files.ca, files.cert, files.key)


def etcd_client_flags() -> list[str]:
    """Of replicas and of cpctl."""
    if not ENCRYPTED:
        return []
    files = authority().files("client")
    return ["--etcd-ca", files.ca, "--etcd-cert", files.cert, "--etcd-key", files.key]


def etcdctl_environment() -> dict[str, str]:
    if not ENCRYPTED:
        return {}
    files = authority().files("client")
    return {"ETCDCTL_CACERT": files.ca, "ETCDCTL_CERT": files.cert, "ETCDCTL_KEY": files.key}


def etcd_context() -> ssl.SSLContext | None:
    if not ENCRYPTED:
        return None
    files = authority().files("client")
    context = ssl.create_default_context(cafile=files.ca)
    context.load_cert_chain(files.cert, files.key)
    return context


def replica_flags() -> list[str]:
    """A replica that serves TLS and asks etcd over TLS."""
    if not ENCRYPTED:
        return []
    files = authority().files("server")
    return ["--tls-cert", files.cert, "--tls-key", files.key, "--tls-ca", files.ca, *etcd_client_flags()]


def joblet_flags() -> list[str]:
    return ["--tls-ca", authority().ca] if ENCRYPTED else []
