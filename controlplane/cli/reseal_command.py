"""`controlplane reseal`: seals the secrets in etcd with the newest key, for whoever holds the key file."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from controlplane.cli import shell
from controlplane.model import texts


def register(app: typer.Typer) -> None:
    app.command()(reseal)


def reseal(
    etcd: Annotated[str, typer.Option(metavar="URLS", help="URLs of etcd, separated by commas.")],
    secret_key_file: Annotated[str, typer.Option(metavar="FILE", help="The replicas' key file, newest key first.")],
    force: Annotated[bool, typer.Option("--force", help="Also when a running replica lacks the first key.")] = False,
    etcd_ca: Annotated[str, typer.Option(metavar="FILE", help="CA certificate of etcd.")] = "",
    etcd_cert: Annotated[str, typer.Option(metavar="FILE", help="Client certificate for etcd.")] = "",
    etcd_key: Annotated[str, typer.Option(metavar="FILE", help="Key of --etcd-cert.")] = "",
) -> int:
    """Seal all secrets with the first key of the file; then the other keys are no longer needed. Can be repeated."""
    from controlplane.aio.clock import SystemClock, chance
    from controlplane.sealing import read_keys
    from controlplane.standalone import resealing
    from controlplane.store.channel import EtcdOptions
    from controlplane.store.kv import Store

    keyring = read_keys(secret_key_file, chance)

    async def run() -> resealing.ResealReport:
        urls = tuple(url.strip() for url in etcd.split(",") if url.strip())
        store = Store(EtcdOptions(urls, etcd_ca, etcd_cert, etcd_key), SystemClock())
        try:
            return await resealing.reseal(store, keyring, force=force)
        finally:
            await store.close()

    report = asyncio.run(run())
    for name, why in report.failed.items():
        print(texts.escaped(f"secret {name}: {why}"))
    print(
        f"sealed with key {keyring.ids[0]}: {len(report.resealed)} now, {len(report.current)} before, "
        f"{len(report.failed)} could not be"
    )
    return shell.REFUSED if report.failed else shell.DONE
