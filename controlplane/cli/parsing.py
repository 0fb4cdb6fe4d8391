"""Command line parsing where typer is too lenient: repeated options, and suggestions for typos."""

from __future__ import annotations

from collections import Counter
from difflib import get_close_matches
from typing import Any

import typer.core

# A shell alias may set these options; the user of the alias may repeat them, and the last value counts.
_LAST_COUNTS = frozenset({"output", "endpoints", "data_dir", "token_file", "context"})
# Only commands that stop no work and delete no object are suggested for a typo.
_HARMLESS = frozenset({
    "apply", "auth", "backup", "bindings", "can-i", "config", "create", "describe", "explain", "get", "get-contexts",
    "help", "leader", "list", "login", "logs", "plan", "replay", "resume", "run", "status", "submit", "token", "top",
    "uncordon", "up", "verify", "version", "view", "whoami",
})  # fmt: skip


class OnceCommand(typer.core.TyperCommand):
    """Refuses a repeated option of a single value: typer would silently drop the first value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        _, _, given = self.make_parser(ctx).parse_args(args=list(args))
        for option, count in Counter(given).items():
            if count > 1 and _takes_one_value(option):
                ctx.fail(f"{max(option.opts, key=len)} must not be given twice.")
        return list(super().parse_args(ctx, args))


def _takes_one_value(option: Any) -> bool:
    if not isinstance(option, typer.core.TyperOption) or option.name in _LAST_COUNTS:
        return False
    return not (option.is_flag or option.multiple or option.count)


class HarmlessHints(typer.core.TyperGroup):
    """Suggests for an unknown command only commands that read, or add objects."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**{**attributes, "suggest_commands": False})

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            harmless = [name for name in self.list_commands(ctx) if name in _HARMLESS]
            matches = ", ".join(repr(name) for name in get_close_matches(args[0], harmless))
            ctx.fail(f"No such command {args[0]!r}." + (f" Did you mean {matches}?" if matches else ""))
        return super().resolve_command(ctx, args)
