"""The options of commands that ask etcd itself, for an etcd that asks for certificates."""

from __future__ import annotations

from typing import Annotated

import typer

EtcdCa = Annotated[str, typer.Option("--etcd-ca", metavar="FILE", help="CA certificates of --etcd.")]
EtcdCert = Annotated[str, typer.Option("--etcd-cert", metavar="FILE", help="Client certificate for --etcd.")]
EtcdKey = Annotated[str, typer.Option("--etcd-key", metavar="FILE", help="Key of --etcd-cert.")]
