"""The tables of `docs/reference.md` that follow from the code.

`python -m tests.architecture.reference_tables` puts fresh ones into the page. Names, types and defaults come from the
code; a column `meaning` is written by hand in the page and kept, row by row. A row without a meaning fails the test.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import socket
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import typer.main

import controlplane.model
import controlplane.wire.v1
from controlplane.cli.controlplane import app
from controlplane.engine import reason_codes
from controlplane.model.kinds import WRITTEN
from controlplane.model.object import Named, Object, Part
from controlplane.model.settings import Settings
from controlplane.wire.status_codes import CODES

REFERENCE = Path(__file__).parents[2] / "controlplane" / "docs" / "reference.md"
MEANING = "meaning"
_SECTION = re.compile(r"(<!-- generated:([a-z-]+) -->\n)(.*?)(<!-- /generated -->)", re.DOTALL)
_WORDS: Mapping[Any, str] = {
    str: "text", int: "number", float: "number", bool: "true or false", msgspec.Raw: "JSON", type(None): "",
}  # fmt: skip
_SPACED = str.maketrans({",": ", ", ":": ": ", '"': None})

Rows = Iterable[tuple[str, ...]]


def settings() -> Rows:
    yield ("setting", "default", MEANING)
    for field in msgspec.structs.fields(Settings):
        yield (f"`{field.encode_name}`", f"`{_default(field)}`")


def waiting() -> Rows:
    yield ("reason", MEANING)
    for name, word in vars(reason_codes).items():
        if name.isupper() and isinstance(word, str):
            yield (f"`{word}`",)


def errors() -> Rows:
    yield ("error", "gRPC code", MEANING)
    for error, code in CODES.items():
        yield (f"`{error.__name__}`", f"`{code.name}`")


def fields() -> Rows:
    yield ("kind", "fields")
    for kind, struct in WRITTEN.items():
        yield (f"`{kind}`", _fields(struct))


def parts() -> Rows:
    """What the fields of written kinds consist of, in the order of their names."""
    yield ("part", "fields")
    written = {part for struct in WRITTEN.values() for part in _parts(struct)}
    for part in sorted(written - set(WRITTEN.values()), key=lambda part: part.__name__):
        yield (f"`{part.__name__}`", _fields(part))


def records() -> Rows:
    """What the system itself stores."""
    for module in pkgutil.iter_modules(controlplane.model.__path__):
        importlib.import_module(f"controlplane.model.{module.name}")
    yield ("kind", "fields")
    written = {_name(struct) for struct in WRITTEN.values()} - {"Order", "Secret"}
    stored = (struct for struct in _below(Object) if not struct.__subclasses__() and struct not in WRITTEN.values())
    for struct in sorted(stored, key=_name):
        if _name(struct) not in written:
            yield (f"`{_name(struct)}`", ", ".join(f"`{name}`" for name in _encoded(struct)))


def services() -> Rows:
    yield ("service", "methods")
    for module in sorted(module.name for module in pkgutil.iter_modules(controlplane.wire.v1.__path__)):
        if module.endswith("_pb2"):
            file = importlib.import_module(f"controlplane.wire.v1.{module}").DESCRIPTOR
            for service in file.services_by_name.values():
                yield (f"`{service.name}`", ", ".join(f"`{method.name}`" for method in service.methods))


def replica_options() -> Rows:
    return _options("replica")


def joblet_options() -> Rows:
    return _options("joblet")


SECTIONS: Mapping[str, Callable[[], Rows]] = {
    "settings": settings,
    "waiting": waiting,
    "errors": errors,
    "fields": fields,
    "parts": parts,
    "records": records,
    "services": services,
    "replica": replica_options,
    "joblet": joblet_options,
}


def refreshed(page: str) -> str:
    """The page with every table made anew."""
    return _SECTION.sub(lambda section: section[1] + _table(SECTIONS[section[2]](), section[3]) + section[4], page)


def sections(page: str) -> dict[str, str]:
    return {section[2]: section[3] for section in _SECTION.finditer(page)}


def unexplained(page: str) -> list[str]:
    """The rows whose meaning nobody has written yet."""
    return [line for table in sections(page).values() for line in table.splitlines() if line.endswith("|  |")]


def _table(rows: Rows, old: str) -> str:
    header, *rest = rows
    lines = [f"| {' | '.join(header)} |", "|" + "---|" * len(header)]
    meanings = dict(_meanings(old))
    for row in rest:
        cells = (*row, meanings.get(row[0], "")) if header[-1] == MEANING else row
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _meanings(table: str) -> Iterator[tuple[str, str]]:
    for line in table.splitlines():
        cells = re.split(r"(?<!\\)\|", line)[1:-1]
        yield cells[0].strip(), cells[-1].strip()


def _options(command: str) -> Iterator[tuple[str, ...]]:
    yield ("option", "default", "help")
    group: Any = typer.main.get_command(app)
    for option in group.commands[command].params:
        if not option.hidden and option.name != "help":
            yield (
                f"`{option.opts[0]}`",
                "required" if option.required else _option_default(option.default),
                option.help,
            )


def _option_default(default: Any) -> str:
    if default == socket.gethostname():
        return "the host's name"
    return "" if default is None or default is False or default == "" else f"`{default}`"


def _default(field: msgspec.structs.FieldInfo) -> str:
    default = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
    return msgspec.json.encode(msgspec.to_builtins(_whole(default))).decode().translate(_SPACED)


def _whole(default: Any) -> Any:
    """A struct with all of its fields: they are left out of its JSON when they are the default."""
    return msgspec.structs.asdict(default) if isinstance(default, msgspec.Struct) else default


def _fields(struct: type[msgspec.Struct]) -> str:
    """With their types, but for those that every named kind has."""
    shared = set(_encoded(Named)) if issubclass(struct, Named) else set()
    own = (field for field in msgspec.structs.fields(struct) if field.encode_name not in shared)
    return ", ".join(f"`{field.encode_name}` {_word(field.type)}" for field in own)


def _encoded(struct: type[msgspec.Struct]) -> Sequence[str]:
    return struct.__struct_encode_fields__


def _name(struct: type[msgspec.Struct]) -> str:
    tag = struct.__struct_config__.tag
    return tag if isinstance(tag, str) else struct.__name__


def _word(kind: Any) -> str:
    """A type as a person reads it: text, number, [list], {mapping}, or the name of a part."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return _word(arguments[0])
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(filter(None, map(_word, arguments))))
    if origin is tuple:
        return f"[{_word(arguments[0])}]"
    if origin is dict:
        return f"{{{_word(arguments[0])}: {_word(arguments[1])}}}"
    return _WORDS[kind] if kind in _WORDS else _name(kind)


def _parts(struct: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    for field in msgspec.structs.fields(struct):
        for kind in _structs(field.type):
            yield kind
            yield from _parts(kind)


def _structs(kind: Any) -> Iterator[type[msgspec.Struct]]:
    if isinstance(kind, type) and issubclass(kind, Part | Object):
        yield kind
    for argument in typing.get_args(kind):
        yield from _structs(argument)


def _below(struct: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    for below in struct.__subclasses__():
        yield below
        yield from _below(below)


if __name__ == "__main__":
    REFERENCE.write_text(refreshed(REFERENCE.read_text()))
