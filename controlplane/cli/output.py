"""Data on stdout in five formats: table, wide, json, yaml, name. Messages for people go to stderr instead.

JSON and YAML carry the same value. A table is plain aligned text, fit for cut and grep; colours appear only on a
terminal without NO_COLOR.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import yaml
from rich.console import Console
from rich.text import Text

from controlplane.model import texts

_COLOURS = {
    **dict.fromkeys(("Succeeded", "Ready", "created"), "green"),
    **dict.fromkeys(("Running", "updated"), "cyan"),
    **dict.fromkeys(("Pending", "Placed", "Provisioning", "Paused", "Held", "Suspect", "Draining"), "yellow"),
    **dict.fromkeys(("Failed", "Gone"), "red"),
    **dict.fromkeys(("Cancelled", "Cordoned", "Drained", "unchanged"), "dim"),
}
_GAP = 3


class Format(StrEnum):
    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


@dataclass(frozen=True)
class TableColumn:
    title: str
    value: Callable[[Any], str]
    wide: bool = False


class AnswerPrinter:
    """Prints an answer, or event after event."""

    def __init__(self, form: Format) -> None:
        self.form = form
        self._console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
        self._widths: list[int] = []

    @property
    def is_table(self) -> bool:
        return self.form in (Format.TABLE, Format.WIDE)

    @property
    def has_header(self) -> bool:
        return bool(self._widths)

    def value(self, value: Any) -> None:
        """Prints a value as JSON or YAML."""
        if self.form == Format.YAML:
            sys.stdout.write(_yaml(value))
        else:
            sys.stdout.write(texts.escaped_json(json.dumps(value, indent=2, ensure_ascii=False)) + "\n")

    def line(self, value: Any) -> None:
        """Prints an event of a watch without delay."""
        if self.form == Format.YAML:
            sys.stdout.write("---\n" + _yaml(value))
        else:
            sys.stdout.write(texts.escaped_json(json.dumps(value, separators=(",", ":"), ensure_ascii=False)) + "\n")
        sys.stdout.flush()

    def text(self, text: str) -> None:
        sys.stdout.write(texts.escaped(text) + "\n")
        sys.stdout.flush()

    def rows(self, columns: Sequence[TableColumn], items: Sequence[Any], *, header: bool = True) -> None:
        """Prints rows of a table. A later call without header keeps the widths of the first call, or widens them."""
        shown = [column for column in columns if self.form == Format.WIDE or not column.wide]
        cells = [[texts.printable(column.value(item)) for column in shown] for item in items]
        lines = [[column.title for column in shown], *cells] if header else cells
        widths = [0] * len(shown) if header else self._widths
        self._widths = [max([widths[at], *(len(line[at]) for line in lines)]) for at in range(len(shown))]
        for line in lines:
            self._console.print(self._aligned(line), soft_wrap=True)

    def _aligned(self, line: Sequence[str]) -> Text:
        text = Text()
        for at, cell in enumerate(line):
            text.append(cell, style=_COLOURS.get(cell, ""))
            if at < len(line) - 1:
                text.append(" " * (max(self._widths[at] - len(cell), 0) + _GAP))
        return text


def _yaml(value: Any) -> str:
    """YAML escapes all non-ASCII text or none: escapes are used when the text would steer a terminal."""
    text = str(yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=1000))
    return str(yaml.safe_dump(value, sort_keys=False, width=1000)) if texts.steers(text) else text
