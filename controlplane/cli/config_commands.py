"""`cpctl config`: the contexts of the user, which name control planes with their addresses and credentials.

No command prints a secret, and a token is read from a file, never from the command line, where others would see it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from controlplane.aio.clock import SystemClock
from controlplane.cli import shell
from controlplane.cli.output import AnswerPrinter, Format, TableColumn
from controlplane.cli.parsing import OnceCommand
from controlplane.model.errors import Invalid
from controlplane.standalone.contexts import Context, ContextFile, Contexts, config_path
from controlplane.standalone.endpoints import find_token, parse_endpoints

_Name = Annotated[str, typer.Argument(metavar="NAME", help="The context.")]
_Output = Annotated[Format, typer.Option("--output", "-o", help="Format of the data.", show_choices=True)]

_COLUMNS = (
    TableColumn("CURRENT", lambda row: "*" if row["current"] else ""),
    TableColumn("NAME", lambda row: row["name"]),
    TableColumn("ENDPOINTS", lambda row: ",".join(row["endpoints"]) or row["data_dir"] or "-"),
    TableColumn("CREDENTIALS", lambda row: row["credentials"]),
    TableColumn("EXPIRES", lambda row: row["expires"] or "-"),
)


def register(app: typer.Typer) -> None:
    config = shell.application("config", "Name control planes, and choose between them.")
    for name, body in (
        ("get-contexts", get_contexts),
        ("use-context", use_context),
        ("set-context", set_context),
        ("delete-context", delete_context),
        ("view", view),
    ):
        config.command(name, cls=OnceCommand)(body)
    app.add_typer(config)


def get_contexts(output: _Output = Format.TABLE) -> None:
    """List all contexts; the current one is marked."""
    contexts, out = ContextFile(config_path()).read(), AnswerPrinter(output)
    rows = [_row(name, contexts) for name in sorted(contexts.contexts)]
    if output == Format.NAME:
        for row in rows:
            out.text(row["name"])
    elif not out.is_table:
        out.value({"items": rows})
    elif rows:
        out.rows(_COLUMNS, rows)
    else:
        shell.say("no contexts")


def use_context(name: _Name) -> None:
    """Choose the context for all commands that name no other control plane."""
    _change(lambda contexts: contexts.using(name))
    shell.say(f"context {name!r} is used from now on")


def set_context(
    name: _Name,
    endpoints: Annotated[str, typer.Option(metavar="A,B,C", help="Replicas of the control plane.")] = "",
    data_dir: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder of `up`, instead of endpoints.")] = None,
    ca_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="CA certificate that the replicas are checked against.")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File with a token; its content is kept in the context.")
    ] = None,
) -> None:
    """Create a context, or change what is given. The first context is used at once."""
    if endpoints and data_dir is not None:
        raise Invalid("endpoints", "give either --endpoints or --data-dir")
    given: dict[str, Any] = {}
    if endpoints:
        given |= {"endpoints": parse_endpoints(endpoints), "data_dir": ""}
    if data_dir is not None:
        given |= {"endpoints": (), "data_dir": str(data_dir.expanduser().absolute())}
    if ca_file is not None:
        given["ca_file"] = str(ca_file.absolute())
    if token_file is not None:
        # A token and a login exclude each other.
        given |= {"token": find_token(token_file, {}), "tokens": None}

    def change(contexts: Contexts) -> Contexts:
        context = contexts.contexts.get(name, Context())
        return contexts.having(name, msgspec.structs.replace(context, **given))

    _change(change)
    shell.say(f"context {name!r} set")


def delete_context(name: _Name) -> None:
    """Delete a context with its credentials."""
    _change(lambda contexts: contexts.without(name))
    shell.say(f"context {name!r} deleted")


def view(output: _Output = Format.YAML) -> None:
    """Show the whole file, without its secrets."""
    file = ContextFile(config_path())
    contexts = file.read()
    hidden = {name: context.redacted() for name, context in sorted(contexts.contexts.items())}
    out = AnswerPrinter(output if output == Format.JSON else Format.YAML)
    shown = msgspec.to_builtins(Contexts(current=contexts.current, contexts=hidden))
    out.value({"file": str(file.path), **shown})


def _change(change: Callable[[Contexts], Contexts]) -> None:
    file, clock = ContextFile(config_path()), SystemClock()

    async def run() -> None:
        async with file.locked(clock):
            file.write(change(file.read()))

    asyncio.run(run())


def _row(name: str, contexts: Contexts) -> dict[str, Any]:
    context = contexts.contexts[name]
    return {
        "name": name,
        "current": name == contexts.current,
        "endpoints": list(context.endpoints),
        "data_dir": context.data_dir,
        "credentials": _credentials(context),
        "expires": context.tokens.expires if context.tokens is not None else "",
    }


def _credentials(context: Context) -> str:
    if context.token:
        return "token"
    if context.login is not None:
        return f"login at {context.login.issuer}" if context.tokens is not None else "logged out"
    return "folder" if context.data_dir else "none"
