"""Schema: the fields which an expression may read: fields of job, order, target and now, with their types.

A *path* names a value: `job.name`, `now.hour`, or a single entry of a map: `job.labels.team`. Values are hashable, so
that results computed from values can be kept: a map is a tuple of sorted pairs, a list a tuple, every quantity a float;
None stands for an absent value. Expressions see protobuf messages, since messages have typed fields and know unset
fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import Enum
from functools import cache
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory, struct_pb2

Value = str | bool | int | float | tuple[Any, ...] | None
Path = tuple[str, ...]

PACKAGE: Final = "rule"


class Kind(Enum):
    TEXT = "text"
    FLAG = "flag"
    WHOLE = "whole"
    NUMBER = "number"
    TEXTS = "texts"
    LABELS = "labels"
    AMOUNTS = "amounts"


MAPS: Final = (Kind.LABELS, Kind.AMOUNTS)
FIELDS: Final[Mapping[str, Mapping[str, Kind]]] = {
    "job": {
        "name": Kind.TEXT, "labels": Kind.LABELS, "image": Kind.TEXT, "command": Kind.TEXTS, "env": Kind.LABELS,
        "requests": Kind.AMOUNTS, "time_limit": Kind.NUMBER, "class": Kind.TEXT, "region": Kind.TEXT,
        "drivers": Kind.TEXTS, "exclusive": Kind.FLAG, "preemptible": Kind.FLAG, "resources": Kind.TEXTS,
    },
    "order": {
        "id": Kind.TEXT, "priority": Kind.WHOLE, "owner": Kind.TEXT, "creator": Kind.TEXT, "packet": Kind.TEXT,
        "labels": Kind.LABELS, "deadline": Kind.NUMBER, "orchestration": Kind.TEXT, "preempts": Kind.FLAG,
    },
    "target": {
        "name": Kind.TEXT, "region": Kind.TEXT, "driver": Kind.TEXT, "labels": Kind.LABELS, "capacity": Kind.AMOUNTS,
    },
    "now": dict.fromkeys(("year", "month", "day", "hour", "minute", "weekday"), Kind.WHOLE),
}  # fmt: skip
# Fields whose name is a keyword of Python.
_ATTRIBUTES: Final = {"class": "class_"}


def kind_of(path: Path) -> Kind:
    return FIELDS[path[0]][path[1]]


def read(path: Path, source: object) -> Value:
    """The value of the path in `source`, the job, order or target named by the first part of the path."""
    value = getattr(source, _ATTRIBUTES.get(path[1], path[1]))
    kind = kind_of(path)
    if len(path) == 3:
        return _plain((value or {}).get(path[2]), kind)
    if kind in MAPS:
        return tuple((key, _plain(value[key], kind)) for key in sorted(value or {}))
    return tuple(value) if kind is Kind.TEXTS else _plain(value, kind)


def _plain(value: Any, kind: Kind) -> Value:
    if value is not None and kind in (Kind.NUMBER, Kind.AMOUNTS):
        return float(value)
    return value  # type: ignore[no-any-return]


def read_now(path: Path, now: datetime) -> int:
    there = now.astimezone(UTC)
    return there.weekday() if path[1] == "weekday" else int(getattr(there, path[1]))


def messages(values: Mapping[Path, Value]) -> dict[str, message.Message]:
    """The variables of an expression: a message for each of job, order, target and now with a value."""
    variables: dict[str, message.Message] = {}
    for path, value in values.items():
        if path[0] not in variables:
            variables[path[0]] = _class_of(path[0])()
        if value is not None:
            _fill(variables[path[0]], path, value)
    return variables


def _fill(into: message.Message, path: Path, value: Any) -> None:
    kind = kind_of(path)
    if kind in MAPS:
        entries = getattr(into, path[1])
        for key, entry in ((path[2], value),) if len(path) == 3 else value:
            if kind is Kind.LABELS:
                entries[key] = entry
            else:
                entries[key].number_value = entry
    elif kind is Kind.TEXTS:
        getattr(into, path[1]).extend(value)
    elif kind is Kind.NUMBER:
        getattr(into, path[1]).number_value = value
    else:
        setattr(into, path[1], value)


@cache
def _class_of(root: str) -> type[message.Message]:
    return message_factory.GetMessageClass(pool().FindMessageTypeByName(type_name(root)))


def type_name(root: str) -> str:
    return f"{PACKAGE}.{root.title()}"


@cache
def pool() -> descriptor_pool.DescriptorPool:
    """The types of the variables, in a pool separate from the types of the API."""
    types = descriptor_pool.DescriptorPool()
    types.AddSerializedFile(struct_pb2.DESCRIPTOR.serialized_pb)
    file = descriptor_pb2.FileDescriptorProto(
        name="rule.proto", package=PACKAGE, syntax="proto3", dependency=["google/protobuf/struct.proto"]
    )
    for root, fields in FIELDS.items():
        shape = file.message_type.add(name=root.title())
        for number, (name, kind) in enumerate(fields.items(), 1):
            _declare(shape, name, number, kind)
    types.Add(file)
    return types


_NUMBER: Final = ".google.protobuf.Value"
_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS: Final = {
    Kind.TEXT: _Field.TYPE_STRING,
    Kind.TEXTS: _Field.TYPE_STRING,
    Kind.FLAG: _Field.TYPE_BOOL,
    Kind.WHOLE: _Field.TYPE_INT64,
}


def _declare(shape: descriptor_pb2.DescriptorProto, name: str, number: int, kind: Kind) -> None:
    many = kind in (*MAPS, Kind.TEXTS)
    field = shape.field.add(name=name, number=number, label=_Field.LABEL_REPEATED if many else _Field.LABEL_OPTIONAL)
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
        return
    field.type = _Field.TYPE_MESSAGE
    # A quantity is a Value, not a double: CEL compares a Value with any literal, a double only with a double.
    field.type_name = _NUMBER
    if kind in MAPS:
        entry = shape.nested_type.add(name=f"{name.title()}Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, label=_Field.LABEL_OPTIONAL, type=_Field.TYPE_STRING)
        value = entry.field.add(name="value", number=2, label=_Field.LABEL_OPTIONAL, type=_Field.TYPE_STRING)
        if kind is Kind.AMOUNTS:
            value.type, value.type_name = _Field.TYPE_MESSAGE, _NUMBER
        field.type_name = f".{PACKAGE}.{shape.name}.{entry.name}"
