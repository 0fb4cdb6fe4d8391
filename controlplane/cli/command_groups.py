"""The commands of `cpctl`. Each group of commands is a module with a `register`; this one only names them."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from controlplane.cli import (
    auth_commands,
    backup_command,
    config_commands,
    create_command,
    drain_command,
    drill_command,
    enrol_command,
    explain_command,
    get_command,
    grant_commands,
    help_topics,
    leader_command,
    login_command,
    logs_command,
    order_commands,
    plan_command,
    replay_command,
    shell,
    status_command,
    submit_command,
    token_commands,
    top_command,
    verify_command,
)

GROUPS = (
    submit_command,
    create_command,
    get_command,
    logs_command,
    top_command,
    explain_command,
    plan_command,
    order_commands,
    drain_command,
    leader_command,
    status_command,
    enrol_command,
    token_commands,
    grant_commands,
    auth_commands,
    login_command,
    config_commands,
    verify_command,
    replay_command,
    drill_command,
    backup_command,
)


def application() -> typer.Typer:
    app = shell.application("cpctl", "Ask the control plane, and tell it what to run.")
    for group in GROUPS:
        group.register(app)
    app.command("help")(show_page)
    return app


def show_page(
    topic: Annotated[str, typer.Argument(metavar="[TOPIC]", help="A page; without one, the list of pages.")] = "",
) -> None:
    """Show a page of the manual, or the list of pages."""
    sys.stdout.write(help_topics.text_of(topic))
