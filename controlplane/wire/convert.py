"""Model <-> wire, driven by the field names of both sides.

A plan per pair of types is built once from the struct's hints and the message's descriptor; converting follows the
plan. Fields of the same name in struct and message must have the same shape, and `tests/unit/wire/test_convert.py`
holds every pair to this rule. Three shapes differ on purpose: a `Quantities` message stands for a mapping or its
absence, a message with the oneof `ref` for "a name or the object itself", and a `Tier` for a list in a list.
"""

from __future__ import annotations

import typing
from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias, TypeVar

import msgspec
from google.protobuf import descriptor as protobuf_descriptor
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from controlplane.model.errors import Invalid
from controlplane.model.quantity import whole

S = TypeVar("S", bound=msgspec.Struct)
M = TypeVar("M", bound=Message)
Read = Callable[[Any], Any]

# Descriptors come in two classes (pure and native) that share no type.
Descriptor: TypeAlias = Any
FieldDescriptor: TypeAlias = Any

_NUMBERS = (protobuf_descriptor.FieldDescriptor.TYPE_DOUBLE, protobuf_descriptor.FieldDescriptor.TYPE_FLOAT)
# In these messages a field that is not set is shown as null, so that every object has the same keys.
_NULLS = frozenset({"Leader", "Task", "Fulfilment.observed", "Target.live"})


def to_model(message: Message, struct: type[S]) -> S:
    """The struct of the message; Invalid when the message carries unknown fields.

    Only set fields are looked at: an unset field takes the struct's default, where there is a default.
    """
    if len(UnknownFieldSet(message)):
        raise Invalid(f"{message.DESCRIPTOR.name}", "carries a field that this version does not know")
    required, readers = _readers(message.DESCRIPTOR, struct)
    arguments = dict(required)
    for field, value in message.ListFields():
        reader = readers.get(field.number)
        if reader is not None:
            attribute, read = reader
            arguments[attribute] = value if read is None else read(value)
    return struct(**arguments)


def to_wire(struct: msgspec.Struct, kind: type[M]) -> M:
    message = kind()
    fill(struct, message)
    return message


def fill(struct: msgspec.Struct, message: Message) -> None:
    for attribute, _, field in _pairs(message.DESCRIPTOR, type(struct)):
        value = getattr(struct, attribute)
        if value is not None:
            _set(message, field, value)


def to_plain(message: Message) -> dict[str, Any]:
    """JSON-ready: proto field names, whole numbers as ints, all lists and maps, no absent optionals."""
    plain: dict[str, Any] = {}
    owner = message.DESCRIPTOR.name
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.is_repeated:
            plain[field.name] = _plain_repeated(field, value)
        elif field.has_presence and not message.HasField(field.name):
            if owner in _NULLS or f"{owner}.{field.name}" in _NULLS:
                plain[field.name] = None
        elif field.message_type is not None:
            plain[field.name] = _plain_message(value)
        else:
            plain[field.name] = whole(value) if field.type in _NUMBERS else value
    return plain


def _plain_repeated(field: FieldDescriptor, value: Any) -> Any:
    if _is_map(field):
        inner = field.message_type.fields_by_name["value"]
        if inner.message_type is not None:
            return {key: _plain_message(item) for key, item in sorted(value.items())}
        return {key: whole(item) if inner.type in _NUMBERS else item for key, item in sorted(value.items())}
    return [_plain_message(item) if isinstance(item, Message) else item for item in value]


def _plain_message(message: Message) -> Any:
    name = message.DESCRIPTOR.name
    if name == "Quantities":
        return {key: whole(value) for key, value in sorted(message.of.items())}  # type: ignore[attr-defined]
    if name == "Tier":
        return list(message.targets)  # type: ignore[attr-defined]
    if _is_ref(message.DESCRIPTOR):
        which = message.WhichOneof("ref")
        return None if which is None else message.name if which == "name" else to_plain(message.object)  # type: ignore[attr-defined]
    return to_plain(message)


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _is_ref(descriptor: Descriptor) -> bool:
    return "ref" in descriptor.oneofs_by_name


@cache
def _pairs(descriptor: Descriptor, struct: type[msgspec.Struct]) -> tuple[tuple[str, Any, FieldDescriptor], ...]:
    hints = typing.get_type_hints(struct)
    return tuple(
        (field.name, hints[field.name], descriptor.fields_by_name[field.encode_name])
        for field in msgspec.structs.fields(struct)
        if field.encode_name in descriptor.fields_by_name
    )


@cache
def _readers(
    descriptor: Descriptor, struct: type[msgspec.Struct]
) -> tuple[dict[str, Any], dict[int, tuple[str, Read | None]]]:
    """The value of a required attribute for an unset field, and the reader of each field by its number."""
    required: dict[str, Any] = {}
    readers: dict[int, tuple[str, Read | None]] = {}
    needs = {field.name for field in msgspec.structs.fields(struct) if field.required}
    for attribute, hint, field in _pairs(descriptor, struct):
        readers[field.number] = (attribute, _reader(field, hint))
        if attribute in needs and not (field.has_presence and not field.is_repeated):
            required[attribute] = {} if _is_map(field) else () if field.is_repeated else field.default_value
    return required, readers


def _reader(field: FieldDescriptor, hint: Any) -> Read | None:
    struct = _struct_in(hint)
    if _is_map(field):
        inner = field.message_type.fields_by_name["value"]
        if inner.message_type is not None and struct is not None:
            return lambda value: {key: to_model(item, struct) for key, item in value.items()}
        return _numbers if inner.type in _NUMBERS else dict
    if field.is_repeated:
        if field.message_type is None:
            return tuple
        if field.message_type.name == "Tier":
            return lambda value: tuple(tuple(item.targets) for item in value)
        if struct is not None:
            return lambda value: tuple(to_model(item, struct) for item in value)
    if field.message_type is None:
        return whole if field.type in _NUMBERS else None
    if field.message_type.name == "Quantities":
        return lambda value: _numbers(value.of)
    if _is_ref(field.message_type) and struct is not None:
        return lambda value: to_model(value.object, struct) if value.WhichOneof("ref") == "object" else value.name
    if _is_ref(field.message_type):
        return lambda value: value.object.name if value.WhichOneof("ref") == "object" else value.name
    if struct is not None:
        return lambda value: to_model(value, struct)
    raise TypeError(f"{field.full_name} has no counterpart in {hint}")


def _numbers(value: Any) -> dict[str, Any]:
    return {key: whole(item) for key, item in value.items()}


def _struct_in(hint: Any) -> type[msgspec.Struct] | None:
    if typing.get_origin(hint) is None and isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return hint
    for part in typing.get_args(hint):
        struct = _struct_in(part)
        if struct is not None:
            return struct
    return None


def _set(message: Message, field: FieldDescriptor, value: Any) -> None:
    if _is_map(field):
        target = getattr(message, field.name)
        if field.message_type.fields_by_name["value"].message_type is not None:
            for key, item in value.items():
                fill(item, target[key])
        else:
            target.update(value)
    elif field.is_repeated:
        _set_repeated(getattr(message, field.name), field, value)
    elif field.message_type is None:
        setattr(message, field.name, value)
    else:
        _set_message(getattr(message, field.name), value)


def _set_repeated(target: Any, field: FieldDescriptor, value: Any) -> None:
    if field.message_type is None:
        target.extend(value)
    elif field.message_type.name == "Tier":
        for item in value:
            target.add().targets.extend(item)
    else:
        for item in value:
            fill(item, target.add())


def _set_message(target: Any, value: Any) -> None:
    if target.DESCRIPTOR.name == "Quantities":
        target.SetInParent()
        target.of.update(value)
    elif _is_ref(target.DESCRIPTOR):
        if isinstance(value, str):
            target.name = value
        else:
            target.object.SetInParent()
            fill(value, target.object)
    else:
        target.SetInParent()
        fill(value, target)
