"""The columns of tokens, bindings and the caller's own rights."""

from __future__ import annotations

from typing import Any

from controlplane.cli.output import TableColumn


def _column(title: str, key: str, *, wide: bool = False) -> TableColumn:
    return TableColumn(title, lambda item: _cell(item.get(key)), wide=wide)


def _cell(value: Any) -> str:
    return (",".join(value) if isinstance(value, list) else value) or "-"


def _grants(item: dict[str, Any]) -> str:
    """`submitter,viewer of film`: the roles, each with the owner that bounds the role."""
    parts = (f"{grant['role']} of {grant['owner']}" if grant["owner"] else grant["role"] for grant in item["grants"])
    return ",".join(parts) or "-"


def _first_and_last(targets: list[str]) -> str:
    return targets[0] if len(targets) == 1 else f"{targets[0]}..{targets[-1]}"


_TOKEN = (
    _column("ID", "id"),
    _column("SUBJECT", "subject"),
    _column("ROLES", "roles"),
    _column("OWNER", "owner"),
    _column("EXPIRES", "expires"),
)
_TOKEN_WIDE = (
    _column("GROUPS", "groups", wide=True),
    TableColumn("TARGETS", lambda item: _first_and_last(item.get("targets") or ["-"]), wide=True),
    _column("DRIVER", "driver", wide=True),
)
ENROLMENT = (
    _column("ID", "id"),
    TableColumn("TARGETS", lambda item: _first_and_last(item["targets"])),
    _column("DRIVER", "driver"),
    _column("OWNER", "owner"),
    _column("EXPIRES", "expires"),
    _column("TOKEN", "token"),
)
NEW_TOKEN = (*_TOKEN, *_TOKEN_WIDE, _column("TOKEN", "token"))
TOKENS = (
    *_TOKEN,
    *_TOKEN_WIDE,
    _column("CREATED", "created", wide=True),
    _column("CREATOR", "creator", wide=True),
    _column("RENEWED", "renewed", wide=True),
)
BINDINGS = (
    _column("NAME", "name"),
    _column("ROLE", "role"),
    _column("SUBJECT", "subject"),
    _column("GROUP", "group"),
    _column("OWNER", "owner"),
    _column("CREATED", "created", wide=True),
    _column("CREATOR", "creator", wide=True),
)
WHO = (
    _column("SUBJECT", "name"),
    TableColumn("ROLES", _grants),
    _column("GROUPS", "groups"),
    _column("EXPIRES", "expires"),
    _column("VIA", "via", wide=True),
    _column("TARGETS", "targets", wide=True),
)
