"""Messages of a pulse connection: a short JSON object per line.

A standby sends Hello once; a leader answers with Pulse, and repeats the Pulse with every beat. A Pulse always holds the
whole state of its sender, so that no message depends on an earlier message.
"""

from __future__ import annotations

import msgspec

LONGEST = 512


class Hello(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`hello` is the incarnation of the replica that wants to follow."""

    hello: str


class Pulse(msgspec.Struct, frozen=True, kw_only=True):
    """`epoch` is the epoch that `incarnation` leads, 0 for none; `ended` is the last epoch that `incarnation` gave up.

    `wall` is the wall clock of the sender in seconds since 1970; 0 from a version without the field.
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
    """The decoded Hello; None for any other line."""
    try:
        return _hello.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def read_pulse(line: bytes) -> Pulse | None:
    try:
        return _pulse.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
