"""`cpctl backup`, `restore` and `end-restore`: all of etcd in a file, and back from it.

A restore makes a new etcd out of the file, with another cluster id: that is how leaders and joblets notice it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from controlplane.cli import judging
from controlplane.cli.output import Format
from controlplane.cli.shell import Shell, command
from controlplane.model.errors import Invalid

_Etcd = Annotated[str, typer.Option("--etcd", metavar="URL", help="etcd to read; else the folder of `up` tells.")]


def register(app: typer.Typer) -> None:
    command(app, "backup")(backup)
    command(app, "restore")(restore)
    command(app, "end-restore")(end_restore)


async def backup(
    shell: Shell,
    file: Annotated[Path, typer.Argument(help="Where to put the copy.")],
    etcd: _Etcd = "",
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it is there.")] = False,
) -> None:
    """Copy all of etcd to a file, checked and on disk when this returns."""
    from controlplane.cli.up import snapshots

    made = await snapshots.save(judging.locate(shell.where, etcd).etcd, file, force=force)
    if shell.out.is_table or shell.out.form == Format.NAME:
        shell.out.text(str(file))
        shell.say(f"{made.size} bytes, revision {made.revision}, sha256 {made.sha256}")
    else:
        shell.out.value({"file": str(file), "bytes": made.size, "revision": made.revision, "sha256": made.sha256})


async def restore(
    shell: Shell,
    file: Annotated[Path, typer.Argument(help="A copy that `cpctl backup` made.")],
    etcd_dir: Annotated[
        Path | None, typer.Option("--etcd-dir", metavar="DIR", help="etcd's data folder, when it is not that of `up`.")
    ] = None,
    name: Annotated[str, typer.Option(help="The member's --name.")] = "",
    peer: Annotated[str, typer.Option(metavar="URL", help="The member's --initial-advertise-peer-urls.")] = "",
    cluster: Annotated[str, typer.Option(metavar="A=URL,B=URL", help="The --initial-cluster, for several.")] = "",
    token: Annotated[str, typer.Option(help="The same new word for every member of several.")] = "",
    force: Annotated[bool, typer.Option("--force", help="Move the data that is there aside.")] = False,
) -> None:
    """Make a new etcd out of a copy. Everything must be stopped; what is there is kept aside, and only with --force."""
    from controlplane.cli.up import snapshots

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
            shell.say(f"what was there is now {done.aside}")
        shell.say("start it again; nothing is placed until the joblets have reported (`cpctl status`)")
    else:
        shell.out.value({"etcd_dir": str(done.folder), "aside": str(done.aside) if done.aside else None})


async def end_restore(shell: Shell) -> None:
    """Place again after a restore, without the joblets that have not reported. Do it when they will not come back."""
    async with shell.client() as client:
        answer = await client.cluster.end_restore()
    if shell.out.is_table or shell.out.form == Format.NAME:
        for target in answer.not_reported:
            shell.out.text(target)
    else:
        shell.out.value({"revision": answer.revision, "not_reported": list(answer.not_reported)})
