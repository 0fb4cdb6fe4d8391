"""`controlplane certs`: a certificate authority in a folder, for a first installation without one of its own."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from controlplane.aio.clock import SystemClock
from controlplane.cli import shell
from controlplane.model import quantity
from controlplane.model.errors import Invalid

_Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the CA and its certificates.")]
_Force = Annotated[bool, typer.Option("--force", help="Replace what is there.")]
_Days = Annotated[int, typer.Option(metavar="N", help="Days that a certificate is valid.")]


def register(app: typer.Typer) -> None:
    certs = shell.application("certs", "Make and renew the certificates of a plane that `up` does not run.")
    certs.command("init")(init)
    certs.command("issue")(issue)
    certs.command("renew")(renew)
    app.add_typer(certs)


def init(
    folder: _Folder,
    days: Annotated[int, typer.Option(metavar="N", help="Days that the CA is valid.")] = 3650,
    force: _Force = False,
) -> None:
    """Make a CA: ca.crt, which every part trusts, and ca.key, which belongs on no server."""
    from controlplane.standalone import certificates

    certificates.make_authority(folder, SystemClock().wall(), days=days, force=force)
    print(folder / "ca.crt")


def issue(
    folder: _Folder,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the files NAME.crt and NAME.key.")],
    host: Annotated[
        list[str] | None,
        typer.Option(metavar="H", help="Name or IP address by which others reach the server; repeat for several."),
    ] = None,
    use: Annotated[
        str, typer.Option(metavar="USE", help="server: a replica; etcd: a member of etcd; client: a client of etcd.")
    ] = "server",
    days: _Days = 365,
    force: _Force = False,
) -> None:
    """Issue a certificate with its key, signed by the CA of the folder."""
    from controlplane.standalone import certificates

    try:
        chosen = certificates.CertificateUse(use)
    except ValueError:
        raise Invalid("use", f"must be one of {', '.join(certificates.CertificateUse)}, not {use!r}") from None
    now = SystemClock().wall()
    print(certificates.issue(folder, name, chosen, host or [], now, days=days, force=force).sentence())


def renew(
    folder: _Folder,
    within: Annotated[str, typer.Option(metavar="TIME", help="Issue again what ends within this time.")] = "30d",
    every: Annotated[bool, typer.Option("--all", help="Issue every certificate again.")] = False,
    days: _Days = 365,
    new_ca: Annotated[
        bool, typer.Option("--new-ca", help="Make a new CA; ca.crt holds both. Certificates stay until --all.")
    ] = False,
    forget_old_ca: Annotated[
        bool, typer.Option("--forget-old-ca", help="Leave the new CA alone in ca.crt, when all is signed by it.")
    ] = False,
) -> None:
    """Issue again what ends soon, for the same hosts and with new keys. The CA stays, unless --new-ca is given."""
    from controlplane.standalone import certificates

    if new_ca + forget_old_ca + every > 1:
        raise Invalid("new-ca", "--new-ca, --all and --forget-old-ca are three steps, with time between them")
    now = SystemClock().wall()
    if new_ca:
        certificates.add_authority(folder, now)
        print(
            f"{folder / 'ca.crt'} holds two CAs: copy it to every part, then `controlplane certs renew {folder} --all`"
        )
    elif forget_old_ca:
        certificates.forget_former(folder)
        print(folder / "ca.crt")
    else:
        time = timedelta.max if every else timedelta(seconds=float(quantity.parse_duration(within, "within")))
        for renewed in certificates.renew(folder, now, within=time, days=days):
            print(renewed.sentence())
