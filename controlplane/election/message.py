"""Messages of a pulse connection: a short JSON object per line.

A standby sends Hello once; a leader answers with Pulse, and repeats the Pulse with every beat. A Pulse always holds the
whole state of its sender, so that no message depends on an earlier message.

Replicas with a cluster key prove themselves to each other (`pulse_proof`): the Hello carries a nonce, the first Pulse
carries the server's nonce and proof, and the follower then sends a Proof. Without a cluster key no message has these
fields. A Hello with a nonce goes only to candidates with `proves`: older versions refuse a Hello with unknown fields.
"""

from __future__ import annotations

import msgspec

LONGEST = 512


class Hello(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """`hello` is the incarnation of the replica that wants to follow; `nonce` asks the server for a proof."""

    hello: str
    nonce: str = ""


class Pulse(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`epoch` is the epoch that `incarnation` leads, 0 for none; `ended` is the last epoch that `incarnation` gave up.

    `wall` is the wall clock of the sender in seconds since 1970; 0 from a version without the field. `nonce` and
    `proof` are in the answer to a Hello with a nonce, and in no later beat.
    """

    incarnation: str
    epoch: int
    ended: int
    wall: float = 0.0
    nonce: str = ""
    proof: str = ""


class Proof(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The follower's proof, sent once after the server has proven itself."""

    proof: str


_hello = msgspec.json.Decoder(Hello)
_pulse = msgspec.json.Decoder(Pulse)
_proof = msgspec.json.Decoder(Proof)


def write(message: Hello | Pulse | Proof) -> bytes:
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


def read_proof(line: bytes) -> Proof | None:
    try:
        return _proof.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
