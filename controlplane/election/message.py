"""What goes over a pulse connection: one JSON object a line, short, and nothing else.

A standby says Hello once; a leader answers with Pulse, and repeats it as its beat. A Pulse always says everything,
so that no message depends on one before it.
"""

from __future__ import annotations

import msgspec

LONGEST = 512


class Hello(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The incarnation of the replica that wants to follow."""

    hello: str


class Pulse(msgspec.Struct, frozen=True, kw_only=True):
    """`epoch` is the one that this incarnation leads, 0 for none; `ended` the last one that it gave up.

    `wall` is what its wall clock shows, in seconds since 1970; 0 from a version that does not tell.
    """

    incarnation: str
    epoch: int
    ended: int
    wall: float = 0.0


_hello = msgspec.json.Decoder(Hello)
_pulse = msgspec.json.Decoder(Pulse)


def write(message: Hello | Pulse) -> bytes:
    return msgspec.json.encode(message) + b"\n"


def read_hello(line: bytes) -> Hello | None:
    """None for anything that is no Hello."""
    try:
        return _hello.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def read_pulse(line: bytes) -> Pulse | None:
    try:
        return _pulse.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
