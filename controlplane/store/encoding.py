"""etcd's transactions as bytes: the few messages of a write, encoded by hand.

Building message objects, copying messages into their group and measuring them cost more than all other parts of a
write. The functions here yield the same bytes, each piece once. Answers are still read with etcd's own messages, and a
test decodes all bytes made here with these messages. Encoding knows no meaning of a write.
"""

from __future__ import annotations

from collections.abc import Iterable

# The varints of all short lengths; longer ones are worked out.
_SHORT = tuple(bytes([number]) for number in range(128))
_MEDIUM = tuple(bytes([number & 127 | 128, number >> 7]) for number in range(1 << 14))
_MASK = (1 << 64) - 1


def varint(number: int) -> bytes:
    if 0 <= number < 128:
        return _SHORT[number]
    if 0 <= number < 1 << 14:
        return _MEDIUM[number]
    left = number & _MASK
    encoded = bytearray()
    while left > 127:
        encoded.append(left & 127 | 128)
        left >>= 7
    encoded.append(left)
    return bytes(encoded)


def put(key: bytes, value: bytes, lease: int) -> bytes:
    request = b"\x0a" + varint(len(key)) + key
    if value:
        request += b"\x12" + varint(len(value)) + value
    if lease:
        request += b"\x18" + varint(lease)
    return b"\x12" + varint(len(request)) + request


def get(key: bytes) -> bytes:
    request = b"\x0a" + varint(len(key)) + key
    return b"\x0a" + varint(len(request)) + request


def delete(key: bytes, end: bytes = b"") -> bytes:
    request = b"\x0a" + varint(len(key)) + key
    if end:
        request += b"\x12" + varint(len(end)) + end
    return b"\x1a" + varint(len(request)) + request


def created(key: bytes, revision: int, *, greater: bool = False) -> bytes:
    """A compare of the create revision."""
    front = b"\x08\x01\x10\x01\x1a" if greater else b"\x10\x01\x1a"
    return front + varint(len(key)) + key + b"\x28" + varint(revision)


def created_below(key: bytes, end: bytes, revision: int) -> bytes:
    """A compare of the create revision of every key of a range; an empty range counts as a key of revision 0."""
    return created(key, revision) + b"\x82\x04" + varint(len(end)) + end


def modified(key: bytes, revision: int) -> bytes:
    """A compare of the mod revision."""
    return b"\x10\x02\x1a" + varint(len(key)) + key + b"\x30" + varint(revision)


def modified_below(key: bytes, end: bytes, before: int) -> bytes:
    """A compare: every key of a range was last written before the revision."""
    name = b"\x1a" + varint(len(key)) + key
    return b"\x08\x02\x10\x02" + name + b"\x30" + varint(before) + b"\x82\x04" + varint(len(end)) + end


def leased(key: bytes, lease: int) -> bytes:
    """A compare of the lease."""
    return b"\x10\x04\x1a" + varint(len(key)) + key + b"\x40" + varint(lease)


def creation(key: bytes, value: bytes) -> tuple[bytes, bytes, bytes, bytes]:
    """The most common write in one go: a compare with "key is absent", the put, the get, and all three together."""
    named = varint(len(key)) + key
    compare = b"\x10\x01\x1a" + named + b"\x28\x00"
    putting = b"\x0a" + named + b"\x12" + varint(len(value)) + value
    put = b"\x12" + varint(len(putting)) + putting
    get = b"\x0a" + varint(len(named) + 1) + b"\x0a" + named
    whole = (b"\x0a", varint(len(compare)), compare, b"\x12", varint(len(put)), put, b"\x1a", varint(len(get)), get)
    return compare, put, get, b"".join(whole)


def transaction(compares: Iterable[bytes], success: Iterable[bytes], failure: Iterable[bytes]) -> bytes:
    pieces: list[bytes] = []
    for tag, messages in ((b"\x0a", compares), (b"\x12", success), (b"\x1a", failure)):
        for message in messages:
            pieces += (tag, varint(len(message)), message)
    return b"".join(pieces)


def nested(inner: bytes) -> bytes:
    """A whole transaction as one operation of another."""
    return b"\x22" + varint(len(inner)) + inner
