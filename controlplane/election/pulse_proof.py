"""Proofs on a pulse connection: each end shows the other end that it has the cluster key. Pure, except for the nonces.

A proof is an HMAC over the role of the prover, the incarnations of both ends and a fresh nonce of each end:

- The role makes a proof of a server useless as a proof of a follower, so no proof can be sent back to its maker.
- The incarnations make a proof useless for any other process: a stranger at the address of a dead leader can ask a
  living replica for a proof, but the living replica proves only its own incarnation.
- The nonces make a proof useless on any other connection, so a recorded proof cannot be sent again.

The server proves itself first and to every peer, because a follower then needs a single round trip to believe a pulse.
A follower shows its proof only to a server that has proven itself.

Only the start of a connection is proven; later beats rely on TCP. Somebody on the way between two replicas could change
beats, but could as well cut the connection and refuse new connections, which ends a term too. The fence keeps every
write of a deposed leader out of etcd, so a forged pulse can cost a change of leader and never a wrong write.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import msgspec

_LABEL = b"controlplane pulse 1"
_NONCE_BYTES = 16


class PulseRole(Enum):
    """The end of a connection that makes a proof."""

    FOLLOWER = "follower"
    SERVER = "server"


@dataclass(frozen=True, slots=True)
class PulseHandshake:
    """The ends of a single connection: their incarnations and their nonces."""

    follower: str
    follower_nonce: str
    server: str
    server_nonce: str


def derive_pulse_key(cluster_key: bytes) -> bytes:
    """The key of pulses, from which the cluster key cannot be computed."""
    return hmac.digest(cluster_key, _LABEL, hashlib.sha256)


def prove(key: bytes, role: PulseRole, handshake: PulseHandshake) -> str:
    ends = (handshake.follower, handshake.follower_nonce, handshake.server, handshake.server_nonce)
    # JSON keeps the borders between the parts, whatever characters the parts contain.
    return hmac.digest(key, msgspec.json.encode((role.value, *ends)), hashlib.sha256).hex()


def is_proof(key: bytes, role: PulseRole, handshake: PulseHandshake, proof: str) -> bool:
    """Whether the proof fits; the comparison takes the same time wherever the proof differs."""
    return hmac.compare_digest(prove(key, role, handshake).encode(), proof.encode())


class PulseProver:
    """The pulse key of a replica, and the chance that its nonces come from."""

    __slots__ = ("_chance", "_key")

    def __init__(self, cluster_key: bytes, chance: Callable[[int], bytes]) -> None:
        self._key = derive_pulse_key(cluster_key)
        self._chance = chance

    def make_nonce(self) -> str:
        return self._chance(_NONCE_BYTES).hex()

    def prove(self, role: PulseRole, handshake: PulseHandshake) -> str:
        return prove(self._key, role, handshake)

    def is_proof(self, role: PulseRole, handshake: PulseHandshake, proof: str) -> bool:
        return is_proof(self._key, role, handshake, proof)
