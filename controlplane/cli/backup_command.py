"""`cpctl backup`, `restore` and `end-restore`: a snapshot of etcd to a file, and back from the file.

A restore makes a new etcd with another cluster id, by which leaders and joblets notice the restore.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from controlplane.cli.etcd_options import EtcdCa, EtcdCert, EtcdKey
from controlplane.cli.output import Format
from controlplane.cli.shell import Shell, command
from controlplane.model.errors import Invalid
from controlplane.standalone.endpoints import EtcdFiles

_Etcd = Annotated[str, typer.Option("--etcd", metavar="URL", help="etcd to read, instead of the etcd of `up`.")]


def register(app: typer.Typer) -> None:
    command(app, "backup")(backup)
    command(app, "restore")(restore)
    command(app, "end-restore")(end_restore)


async def backup(
    shell: Shell,
    file: Annotated[Path, typer.Argument(help="File to write.")],
    etcd: _Etcd = "",
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    etcd_ca: EtcdCa = "",
    etcd_cert: EtcdCert = "",
    etcd_key: EtcdKey = "",
) -> None:
    """Copy all of etcd to a file, which is checked and on disk when the command returns."""
    from controlplane.standalone import snapshots

    tls = shell.where.etcd_files(etcd, EtcdFiles(etcd_ca, etcd_cert, etcd_key))
    saved = await snapshots.save(shell.where.etcd_urls(etcd), file, force=force, tls=tls)
    if shell.out.is_table or shell.out.form == Format.NAME:
        shell.out.text(str(file))
        shell.say(f"{saved.size} bytes, revision {saved.revision}, sha256 {saved.sha256}")
    else:
        shell.out.value({"file": str(file), "bytes": saved.size, "revision": saved.revision, "sha256": saved.sha256})


async def restore(
    shell: Shell,
    file: Annotated[Path, typer.Argument(help="A file of `cpctl backup`.")],
    etcd_dir: Annotated[
        Path | None, typer.Option("--etcd-dir", metavar="DIR", help="Data folder of an etcd that `up` does not run.")
    ] = None,
    name: Annotated[str, typer.Option(help="The member's --name.")] = "",
    peer: Annotated[str, typer.Option(metavar="URL", help="The member's --initial-advertise-peer-urls.")] = "",
    cluster: Annotated[str, typer.Option(metavar="A=URL,B=URL", help="The --initial-cluster, for several.")] = "",
    token: Annotated[str, typer.Option(help="A new token, the same for every member.")] = "",
    force: Annotated[bool, typer.Option("--force", help="Move existing data aside.")] = False,
) -> None:
    """Make a new etcd from a backup. Stop the control plane first; existing data needs --force and is kept aside."""
    from controlplane.standalone import snapshots

    member = snapshots.Member(name=name, peer=peer, cluster=cluster, token=token)
    if etcd_dir is None:
        if shell.where.data_dir is None:
            raise Invalid("data-dir", "must be given here (or CONTROLPLANE_DATA_DIR), or --etcd-dir")
        done = snapshots.restore_up(file, shell.where.data_dir, force=force)
    else:
        done = snapshots.restore(file, etcd_dir, member, force=force)
    if shell.out.is_table or shell.out.form == Format.NAME:
        shell.out.text(str(done.folder))
        if done.aside is not None:
            shell.say(f"the data before is now {done.aside}")
        shell.say("start the control plane again; no task is placed until the joblets have reported (`cpctl status`)")
    else:
        shell.out.value({"etcd_dir": str(done.folder), "aside": str(done.aside) if done.aside else None})


async def end_restore(shell: Shell) -> None:
    """Place tasks again after a restore, without waiting for the joblets that have not reported and never will."""
    async with shell.client() as client:
        answer = await client.cluster.end_restore()
    if shell.out.is_table or shell.out.form == Format.NAME:
        for target in answer.not_reported:
            shell.out.text(target)
    else:
        shell.out.value({"revision": answer.revision, "not_reported": list(answer.not_reported)})
