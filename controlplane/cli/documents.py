"""Files of objects: from a path to model structs, or an Invalid that names file, document and field.

A file is YAML with several documents, or JSON with an object or a list of objects. Reading needs no cluster.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controlplane.cli import yaml12
from controlplane.model import manifest
from controlplane.model.errors import Invalid

MAX_BYTES = 8 * 1024 * 1024


class RepeatedKey(ValueError):
    """A key that appears twice in one JSON object."""


@dataclass(frozen=True)
class Document:
    """An object of a file; `place` names its document for messages."""

    place: str
    object: manifest.Manifest


def read(path: str) -> list[Document]:
    """Every object in the file (`-`: standard input), strictly. A file without objects is refused."""
    name = "standard input" if path == "-" else path
    values = [(number, value) for number, value in enumerate(_parse(_text(path, name), name), 1) if value is not None]
    if not values:
        raise Invalid(name, "holds no object")
    documents = []
    for number, value in values:
        place = f"{name}: document {number}"
        try:
            documents.append(Document(place, manifest.read(value)))
        except Invalid as error:
            raise Invalid(f"{place}: {error.field}", error.rule) from None
    return documents


def _text(path: str, name: str) -> str:
    try:
        if path == "-":
            raw = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with Path(path).open("rb") as file:
                raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise Invalid(name, f"cannot be read: {error.strerror or error}") from None
    if len(raw) > MAX_BYTES:
        raise Invalid(name, f"must not be above {MAX_BYTES // 2**20} MiB")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Invalid(name, f"must be UTF-8; byte {error.start} is not") from None


def _parse(text: str, name: str) -> list[Any]:
    if text.lstrip()[:1] in ("{", "["):
        try:
            value = json.loads(text, object_pairs_hook=_without_repeats)
        except RepeatedKey as error:
            raise Invalid(name, str(error)) from None
        except RecursionError:
            raise Invalid(name, f"must not be nested deeper than {yaml12.MAX_DEPTH} levels") from None
        except ValueError:
            pass  # YAML in flow style begins the same way, and its parser names the place of an error as well
        else:
            return value if isinstance(value, list) else [value]
    try:
        return list(yaml12.documents(text))
    except yaml12.YamlRefusal as error:
        raise Invalid(f"{name}: line {error.line}, column {error.column}", error.rule) from None


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for key, value in pairs:
        if key in members:
            raise RepeatedKey(f"the key {key!r} appears twice in one object")
        members[key] = value
    return members
