"""`cpctl login` and `logout`: a login at the identity provider of a control plane, kept in a context."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from controlplane.aio.clock import SystemClock
from controlplane.cli.parsing import OnceCommand
from controlplane.cli.shell import say
from controlplane.client.login_records import DevicePage, LoginClient
from controlplane.model.errors import Invalid
from controlplane.standalone.contexts import Context, ContextFile, Contexts, config_path
from controlplane.standalone.endpoints import find_token, parse_endpoints

_FIRST = "default"
_ContextName = Annotated[
    str, typer.Option("--context", metavar="C", help="Context of the login [default: the current one, or `default`].")
]


def register(app: typer.Typer) -> None:
    app.command("login", cls=OnceCommand)(login)
    app.command("logout", cls=OnceCommand)(logout)


def login(
    issuer: Annotated[str, typer.Option(metavar="URL", help="Issuer that the replicas trust; kept for later.")] = "",
    client_id: Annotated[str, typer.Option(metavar="ID", help="cpctl's name at the issuer; kept for later.")] = "",
    client_secret_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File with the client's secret, where the issuer wants one.")
    ] = None,
    scope: Annotated[
        str, typer.Option(metavar="WORDS", help="Scopes to ask for [default: openid and what brings names and groups].")
    ] = "",
    issuer_ca_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="CA certificate of the issuer [default: those of the system].")
    ] = None,
    access_token: Annotated[
        bool, typer.Option("--access-token", help="Send the access token to the plane, not the ID token.")
    ] = False,
    endpoints: Annotated[str, typer.Option(metavar="A,B,C", help="Replicas of the context; kept for later.")] = "",
    context: _ContextName = "",
) -> None:
    """Log in with a browser on any machine: shows a page and a code, and waits until you have confirmed there."""
    from controlplane.client.device_login import DeviceLogin

    file, clock = ContextFile(config_path()), SystemClock()
    contexts = file.read()
    name = context or contexts.current or _FIRST
    known = contexts.contexts.get(name, Context())
    if endpoints:
        known = msgspec.structs.replace(known, endpoints=parse_endpoints(endpoints), data_dir="")
    client = _client(known.login, issuer, client_id)
    given = {
        "client_secret": find_token(client_secret_file, {}) if client_secret_file is not None else client.client_secret,
        "scope": scope or client.scope,
        "ca_file": str(issuer_ca_file.absolute()) if issuer_ca_file is not None else client.ca_file,
        "access_token": access_token or client.access_token,
    }
    client = msgspec.structs.replace(client, **given)
    contexts.having(name, known)  # a bad name is refused before anybody logs in

    async def run() -> None:
        tokens = await DeviceLogin(client, clock).log_in(_show)
        async with file.locked(clock):
            now = file.read()
            kept = now.contexts.get(name, known)
            places = {"endpoints": known.endpoints, "data_dir": known.data_dir} if endpoints else {}
            changed = msgspec.structs.replace(kept, token="", login=client, tokens=tokens, **places)
            file.write(now.having(name, changed))

    asyncio.run(run())
    say(f"logged in; the login is kept in context {name!r}")


def logout(context: _ContextName = "") -> None:
    """Forget the tokens of a login. The issuer and the addresses of the context stay."""
    file, clock = ContextFile(config_path()), SystemClock()

    async def run() -> str:
        async with file.locked(clock):
            contexts = file.read()
            name = _chosen(contexts, context)
            file.write(contexts.having(name, msgspec.structs.replace(contexts.get(name), tokens=None)))
            return name

    say(f"logged out of context {asyncio.run(run())!r}")


def _client(known: LoginClient | None, issuer: str, client_id: str) -> LoginClient:
    """The client of the options, else of the login before. Another issuer never gets the old client's secret."""
    if known is not None and issuer in ("", known.issuer) and client_id in ("", known.client_id):
        return known
    issuer = issuer or (known.issuer if known is not None else "")
    if not issuer or not client_id:
        raise Invalid("issuer" if not issuer else "client-id", "is required for the first login of a context")
    return LoginClient(issuer=issuer, client_id=client_id)


def _chosen(contexts: Contexts, given: str) -> str:
    if not (given or contexts.current):
        raise Invalid("context", "must be given: no context is chosen")
    return given or contexts.current


def _show(page: DevicePage) -> None:
    say(f"Open {page.url} in a browser and enter the code {page.code}")
    if page.whole_url:
        say(f"or open {page.whole_url} and compare the code")
