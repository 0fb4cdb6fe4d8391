"""Inputs that no client of ours would send, made from descriptors and a seed: one seed gives the same inputs again.

An input is the bytes of a request: a valid request with fields changed at any depth, a message of random fields, bytes
changed after they were written, random bytes, fields nested deeper than a parser follows, and more than is allowed.
Nothing here knows a transport, so that every face of the API can be asked the same.
"""

from __future__ import annotations

from random import Random
from typing import Any

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import EncodeError, Message

_NUMBERS = (0, 1, -1, 2, 7, 100, 101, 2**31 - 1, -(2**31), 2**32 - 1, 2**53, 2**63 - 1, -(2**63), 2**64 - 1)
_FLOATS = (0.0, -0.0, 1.0, -1.0, 1e-310, 1e300, -1e300, float("inf"), float("-inf"), float("nan"), 0.5)
_TEXTS = (
    "", "x", "..", "../../etc/passwd", "a/b", "\0", "\u202e", "é", "\U0001f600" * 50, "x" * 300, "x" * 70_000,
    "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999Z", "2026-01-01T00:00:00+14:00", "* * * * *", "*/0 * * * *",
    "0 0 31 2 *", "Europe/Berlin", "/etc/localtime", "1h", "-1s", "9" * 400, "1e999", "strict:..", "task.cpu > 1.0",
    "(" * 500, "true || " * 200 + "true", "%s%n{0}", "cp_x", "{}", "[]", "null", "%00", "*",
)  # fmt: skip
_DEPTH = 6
_MIB = 1 << 20
# By the width of the numbers; the kinds that are signed differently are written alike.
_RANGES = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
    FieldDescriptor.CPPTYPE_ENUM: (-(2**31), 2**31 - 1),
}


class Fuzzer:
    """Draws inputs; `large_share` of them are large, since these take most of the time."""

    def __init__(self, seed: int, *, large_share: float = 0.004) -> None:
        self.random = Random(seed)
        self._large_share = large_share

    def request(self, valid: Message) -> bytes:
        """The bytes of a request that may be anything, most often something that is nearly `valid`."""
        descriptor: Any = valid.DESCRIPTOR
        draw = self.random.random()
        if draw < self._large_share:
            return self._large(descriptor)
        if draw < 0.05:
            return self.random.randbytes(self.random.choice((0, 1, 3, 20, 300, 5000)))
        if draw < 0.12:
            return self._broken(valid.SerializeToString())
        if draw < 0.16:
            return nested(descriptor, self.random.choice((20, 99, 101, 5000)))
        message = message_factory.GetMessageClass(descriptor)()
        if draw < 0.8:
            message.CopyFrom(valid)
            for _ in range(self.random.choice((1, 1, 2, 5))):
                self._change(message)
        else:
            self._fill(message, _DEPTH)
        try:
            raw = message.SerializeToString()
        except (EncodeError, ValueError):
            return b""
        return self._broken(raw) if self.random.random() < 0.05 else raw

    def _change(self, message: Message) -> None:
        """Changes one field, in one of the messages inside."""
        inside = [message, *_inner(message)]
        self._set(self.random.choice(inside), _DEPTH - 2)

    def _fill(self, message: Message, depth: int) -> None:
        for _ in range(self.random.randint(0, 6)):
            self._set(message, depth)

    def _set(self, message: Message, depth: int) -> None:
        fields: Any = message.DESCRIPTOR.fields
        if not fields:
            return
        field = self.random.choice(fields)
        if self.random.random() < 0.15:
            message.ClearField(field.name)
        elif _is_map(field):
            self._put(message, field, depth)
        elif field.is_repeated:
            items: Any = getattr(message, field.name)
            for _ in range(self.random.choice((1, 1, 2, 3, 70))):
                if field.message_type is not None:
                    self._deeper(items.add(), depth)
                else:
                    items.append(self._value(field))
        elif field.message_type is not None:
            inner = getattr(message, field.name)
            inner.SetInParent()
            self._deeper(inner, depth)
        else:
            setattr(message, field.name, self._value(field))

    def _put(self, message: Message, field: FieldDescriptor, depth: int) -> None:
        kind: Any = field.message_type
        entry = kind.fields_by_name
        table: Any = getattr(message, field.name)
        for _ in range(self.random.choice((1, 1, 2, 40))):
            key = self._value(entry["key"])
            if entry["value"].message_type is not None:
                self._deeper(table[key], depth)
            else:
                table[key] = self._value(entry["value"])

    def _deeper(self, message: Message, depth: int) -> None:
        if depth > 0:
            self._fill(message, depth - 1)

    def _value(self, field: FieldDescriptor) -> Any:
        kind = field.cpp_type
        if kind in _RANGES:
            lowest, highest = _RANGES[kind]
            return min(max(self.random.choice(_NUMBERS), lowest), highest)
        if kind in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
            return self.random.choice(_FLOATS)
        if kind == FieldDescriptor.CPPTYPE_BOOL:
            return self.random.random() < 0.5
        if field.type == FieldDescriptor.TYPE_BYTES:
            return self.random.randbytes(self.random.choice((0, 1, 100)))
        return self.random.choice(_TEXTS)

    def _broken(self, raw: bytes) -> bytes:
        """Some bytes changed, left out or put twice; also a text that is no UTF-8."""
        changed = bytearray(raw)
        for _ in range(self.random.randint(1, 4)):
            at = self.random.randrange(len(changed) + 1)
            way = self.random.randrange(4)
            if way == 0:
                changed[at:at] = self.random.randbytes(self.random.randint(1, 9))
            elif way == 1:
                del changed[at : at + self.random.randint(1, 9)]
            elif way == 2 and at < len(changed):
                changed[at] ^= 1 << self.random.randrange(8)
            else:
                changed += changed[at : at + 50]
        return bytes(changed)

    def _large(self, descriptor: Descriptor) -> bytes:
        """Up to some times what a request may have: one long text, or very many small elements."""
        size = self.random.choice((_MIB, 4 * _MIB, 17 * _MIB))
        lists = [field for field in descriptor.fields if field.is_repeated and field.message_type is not None]
        texts = [field for field in descriptor.fields if field.type == FieldDescriptor.TYPE_STRING]
        if lists and (not texts or self.random.random() < 0.5):
            return (_varint(self.random.choice(lists).number << 3 | 2) + b"\0") * (size // 3)
        number = self.random.choice(texts).number if texts else 15
        return _varint(number << 3 | 2) + _varint(size) + b"x" * size


def nested(descriptor: Descriptor, depth: int) -> bytes:
    """A message in a message in a message: along fields that lead back to a message seen before, where there are any.

    Elsewhere the same as groups of an unknown field, which parsers must follow to skip them.
    """
    way = _cycle(descriptor)
    if not way:
        return _varint(1000 << 3 | 3) * depth + _varint(1000 << 3 | 4) * depth
    raw = b""
    for number in reversed((way * (depth // len(way) + 1))[:depth]):
        raw = _varint(number << 3 | 2) + _varint(len(raw)) + raw
    return raw


def _cycle(descriptor: Descriptor) -> list[int]:
    """The numbers of the fields from a message back to itself; empty where the message does not hold itself."""
    found: list[int] = []

    def search(current: Descriptor, way: list[int], seen: frozenset[str]) -> None:
        for field in current.fields:
            inner = field.message_type
            if found or inner is None:
                continue
            if inner.full_name == descriptor.full_name:
                found.extend([*way, field.number])
            elif inner.full_name not in seen:
                search(inner, [*way, field.number], seen | {inner.full_name})

    search(descriptor, [], frozenset({descriptor.full_name}))
    return found


def _inner(message: Message) -> list[Message]:
    """All messages that are set inside of a message."""
    inner: list[Message] = []
    for field, value in message.ListFields():
        if field.message_type is None or _is_map(field):
            continue
        for item in value if field.is_repeated else [value]:
            inner += [item, *_inner(item)]
    return inner


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _varint(number: int) -> bytes:
    raw = bytearray()
    while number > 127:
        raw.append(number & 127 | 128)
        number >>= 7
    raw.append(number)
    return bytes(raw)
