"""`cpctl create secret`: a secret from a file, without a manifest in between."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from controlplane.cli import kind_views
from controlplane.cli.shell import Shell, command
from controlplane.cli.submit_command import object_of, show_applied
from controlplane.model.errors import Invalid
from controlplane.model.secret import KUBECONFIG, SecretWish
from controlplane.wire.v1 import cluster_pb2

_MAX_BYTES = 256 * 1024


def register(app: typer.Typer) -> None:
    command(app, "create")(create)


async def create(
    shell: Shell,
    kind: Annotated[str, typer.Argument(metavar="secret", help="Kind to create: secret.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the secret.")],
    from_file: Annotated[
        list[str], typer.Option(metavar="KEY=FILE", help="Content, such as kubeconfig=FILE; - reads stdin.")
    ],
    type: Annotated[str, typer.Option(help="Type of the secret.")] = KUBECONFIG,
) -> None:
    """Seal the content of a file as a secret, replacing an older one. The content is never shown again."""
    if kind_views.find(kind).name != "Secret":
        raise Invalid("kind", "must be secret; use apply for other kinds")
    data = dict(_read(given) for given in from_file)
    async with shell.client() as client:
        wish = object_of(shell, client, SecretWish(name=name, type=type, data=data))
        show_applied(shell, await client.cluster.apply(cluster_pb2.ApplyRequest(objects=[wish])))


def _read(given: str) -> tuple[str, str]:
    key, equals, path = given.partition("=")
    if not equals or not key or not path:
        raise Invalid("from_file", f"must read KEY=FILE, not {given!r}")
    try:
        with Path("/dev/stdin" if path == "-" else path).open("rb") as file:
            raw = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise Invalid("from_file", f"{path} cannot be read: {error.strerror}") from None
    if len(raw) > _MAX_BYTES:
        raise Invalid("from_file", f"{path} must not be above {_MAX_BYTES // 1024} KiB")
    try:
        return key, raw.decode()
    except UnicodeDecodeError:
        raise Invalid("from_file", f"{path} must be UTF-8") from None
