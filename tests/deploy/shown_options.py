"""The options that `controlplane replica` and `joblet` have, to compare what `deploy/` gives them with."""

from __future__ import annotations

import re

import typer.main

from controlplane.cli.controlplane import app

_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


def options_of(command: str) -> set[str]:
    group = typer.main.get_command(app)
    found = group.commands[command]  # type: ignore[attr-defined]
    return {name for parameter in found.params for name in parameter.opts}


def options_in(text: str) -> set[str]:
    return set(_OPTION.findall(text))
