"""`cpctl verify`: checks the promises against etcd's history, the joblets' records and the replicas' answers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from controlplane.cli.etcd_options import EtcdCa, EtcdCert, EtcdKey
from controlplane.cli.output import Format, TableColumn
from controlplane.cli.progress_bar import ProgressBar
from controlplane.cli.shell import NO, Shell, command
from controlplane.standalone.endpoints import EndpointSource, EtcdFiles
from controlplane.verify.promises import SENTENCES


def register(app: typer.Typer) -> None:
    command(app, "verify")(verify)


async def verify(
    shell: Shell,
    etcd: Annotated[
        str, typer.Option("--etcd", metavar="URL", help="etcd to read; several URLs separated by commas.")
    ] = "",
    record: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Acknowledged orders: JSON lines with an id each.")
    ] = None,
    etcd_ca: EtcdCa = "",
    etcd_cert: EtcdCert = "",
    etcd_key: EtcdKey = "",
) -> int | None:
    """Check the promises on a live etcd and its history; exit code 2 when a promise is broken."""
    from controlplane.verify import verification
    from controlplane.verify.gathering import evidence  # importing the etcd client takes a while

    acknowledged = evidence.identities(record) if record is not None else []
    with ProgressBar("history", 1) as bar:
        where = shell.where
        sources = verification.EvidenceSources(
            where.etcd_urls(etcd),
            None if etcd else where.data_dir,
            _replicas(where, etcd),
            where.token(),
            where.given_ca if etcd else where.ca_file(),
            where.etcd_files(etcd, EtcdFiles(etcd_ca, etcd_cert, etcd_key)),
        )
        span, verdicts = await verification.run(
            sources,
            acknowledged,
            lambda at, span: bar.at(at - span.first, max(span.last - span.first, 1)),
            lambda seconds: bar.say(f"a state may be stuck: watching for up to {seconds:.0f} s"),
        )
    _show(shell, span, verdicts)
    return NO if any(verdict.ok is False for verdict in verdicts) else None


def _replicas(where: EndpointSource, etcd: str) -> tuple[tuple[str, str], ...]:
    """(name, address) of the replicas to ask: `--endpoints` beside `--etcd`, else those of the folder of `up`."""
    if etcd:
        return tuple((endpoint, endpoint) for endpoint in where.endpoints)
    return tuple((replica["id"], replica["grpc"]) for replica in where.up()["replicas"])


def _show(shell: Shell, span: Any, verdicts: list[Any]) -> None:
    if shell.out.is_table:
        shell.out.rows(COLUMNS, verdicts)
        shell.say(f"revisions {span.first} to {span.last}")
    elif shell.out.form == Format.NAME:
        for verdict in verdicts:
            if verdict.ok is False:
                shell.out.text(verdict.promise)
    else:
        promises = [verdict.to_json() for verdict in verdicts]
        shell.out.value({"revision": span.last, "from_revision": span.first, "promises": promises})


def _first(verdict: Any) -> str:
    if not verdict.violations:
        return verdict.why or verdict.note or "-"
    first = verdict.violations[0]
    more = f" (and {len(verdict.violations) - 1} more)" if len(verdict.violations) > 1 else ""
    return f"{first.key}{f' at {first.revision}' if first.revision else ''}: {first.why}{more}"


COLUMNS = (
    TableColumn("PROMISE", lambda verdict: verdict.promise),
    TableColumn("OK", lambda verdict: {True: "yes", False: "NO", None: "unknown"}[verdict.ok]),
    TableColumn("CHECKED", lambda verdict: str(verdict.checked)),
    TableColumn("FIRST VIOLATION", _first),
    TableColumn("SENTENCE", lambda verdict: SENTENCES[verdict.promise]),
)
