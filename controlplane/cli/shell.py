"""The frame of every command: common options, exit codes, a line per error, and the start of asyncio.

Exit codes: 0 done; 2 the answer is no; 1 the request was refused or could not be answered (wrong usage too);
130 interrupted. Data goes to stdout, messages to stderr. A command is an async function whose first parameter is a
Shell and which returns its exit code, or None for 0.
"""

from __future__ import annotations

import asyncio
import getpass
import inspect
import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from controlplane.cli import context_choice
from controlplane.cli.output import AnswerPrinter, Format
from controlplane.cli.parsing import HarmlessHints, OnceCommand
from controlplane.client import Client
from controlplane.client.caller import CallTimeouts
from controlplane.model import texts
from controlplane.model.errors import ControlPlaneError
from controlplane.standalone.endpoints import EndpointSource

DONE, REFUSED, NO, INTERRUPTED, READER_LEFT = 0, 1, 2, 130, 141

Command = Callable[..., Awaitable[int | None]]

# click's class for wrong usage, which typer does not export.
_USAGE_ERROR: type[Exception] = typer.BadParameter.__bases__[0]

_OutputOption = Annotated[Format, typer.Option("--output", "-o", help="Format of the data.", show_choices=True)]
_EndpointsOption = Annotated[
    str | None, typer.Option("--endpoints", metavar="A,B,C", help="Replicas to ask [env CONTROLPLANE_ENDPOINTS].")
]
_DataDirOption = Annotated[
    Path | None, typer.Option("--data-dir", metavar="DIR", help="Folder of `up` [env CONTROLPLANE_DATA_DIR].")
]
_TokenFileOption = Annotated[
    Path | None,
    typer.Option("--token-file", metavar="FILE", help="File with your token [env CONTROLPLANE_TOKEN: the token]."),
]
_ContextOption = Annotated[
    str, typer.Option("--context", metavar="C", help="Context to use [default: that of `cpctl config use-context`].")
]
_CaFileOption = Annotated[
    Path | None,
    typer.Option("--ca-file", metavar="FILE", help="CA certificates of replicas with TLS [env CONTROLPLANE_CA_FILE]."),
]
_COMMON = (
    ("output", _OutputOption, Format.TABLE),
    ("endpoints", _EndpointsOption, None),
    ("data_dir", _DataDirOption, None),
    ("token_file", _TokenFileOption, None),
    ("context", _ContextOption, ""),
    ("ca_file", _CaFileOption, None),
)


@dataclass(frozen=True)
class Shell:
    where: EndpointSource
    out: AnswerPrinter

    def client(self, timeouts: CallTimeouts | None = None) -> Client:
        self.where.current()  # raises at once when no control plane was ever started here
        where = self.where
        return Client(where.current, token=where.token, ca_file=where.ca_file(), timeouts=timeouts)

    @property
    def default_owner(self) -> str:
        """The owner of a new object whose file names none: '' with a token, since the plane knows the caller.

        `up --insecure` asks for no token, also in a folder with a token of before.
        """
        is_asked = self.where.data_dir is None or bool(self.where.up().get("token_file"))
        return "" if is_asked and self.where.token() else user()

    def say(self, text: str) -> None:
        say(text)


def say(text: str) -> None:
    """Prints a message on stderr, escaped: texts from outside must not steer the terminal."""
    print(texts.escaped(text), file=sys.stderr, flush=True)


def user() -> str:
    """The OS user, who owns new objects on a plane that asks for no credentials."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def application(name: str, help_text: str) -> typer.Typer:
    app = typer.Typer(
        name=name,
        cls=HarmlessHints,
        help=help_text,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(lambda: None)  # a single subcommand stays a subcommand
    return app


def command(app: typer.Typer, name: str, **settings: Any) -> Callable[[Command], Command]:
    """Registers an async command with its own options and the common options."""

    def register(body: Command) -> Command:
        own = list(inspect.signature(body, eval_str=True).parameters.values())[1:]
        kind = inspect.Parameter.KEYWORD_ONLY
        own = [parameter.replace(kind=kind) for parameter in own]
        shared = [inspect.Parameter(key, kind, default=given, annotation=hint) for key, hint, given in _COMMON]

        def entry(**given: Any) -> int:
            output, endpoints, data_dir, token_file, context, ca_file = (given.pop(key) for key, _, _ in _COMMON)
            where = context_choice.find_source(
                endpoints, data_dir, token_file=token_file, context=context, ca_file=ca_file
            )
            shell = Shell(where, AnswerPrinter(output))
            return asyncio.run(_awaited(body(shell, **given))) or DONE

        entry.__name__, entry.__doc__ = body.__name__, body.__doc__
        entry.__signature__ = inspect.Signature([*own, *shared])  # type: ignore[attr-defined]
        entry.__annotations__ = {parameter.name: parameter.annotation for parameter in [*own, *shared]}
        app.command(name, cls=OnceCommand, **settings)(entry)
        return body

    return register


async def _awaited(body: Awaitable[int | None]) -> int | None:
    return await body


def run(app: typer.Typer, name: str) -> NoReturn:
    """Runs the command and exits with an exit code above; an expected failure shows no traceback."""
    try:
        code = app(standalone_mode=False, prog_name=name)
        sys.stdout.flush()
    except _USAGE_ERROR as error:
        code = _usage(error, name)
    except ControlPlaneError as error:
        print(texts.escaped(f"error: {type(error).__name__}: {error}"), file=sys.stderr)
        code = REFUSED
    except (KeyboardInterrupt, asyncio.CancelledError):
        code = INTERRUPTED
    except BrokenPipeError:
        code = reader_left()
    sys.exit(code or DONE)


def reader_left() -> int:
    """The exit code when the reader of stdout is gone. A command with much output calls this itself, because click
    would turn the error into exit code 1."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or the flush at exit would fail once more
    return READER_LEFT


def _usage(error: Exception, name: str) -> int:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else name
    text = error.format_message() if hasattr(error, "format_message") else str(error)
    if type(error).__name__ == "NoArgsIsHelpError":
        print(text, file=sys.stderr)
    else:
        print(texts.escaped(f"error: Usage: {text} (see {path} --help)"), file=sys.stderr)
    return REFUSED
