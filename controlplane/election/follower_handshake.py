"""The follower's half of a pulse handshake: which Hello to send, which answer to believe, what to send back. No I/O.

A candidate with `proves` is believed only with a proof when the follower has the cluster key. All other candidates run
an older version, or have no cluster key yet: they are followed without proofs.
"""

from __future__ import annotations

from controlplane.election import message
from controlplane.election.message import Pulse
from controlplane.election.pulse_proof import PulseHandshake, PulseProver, PulseRole
from controlplane.model.leadership import Candidate


class FollowerHandshake:
    """For a single connection: the nonce must not be used twice."""

    def __init__(self, incarnation: str, server: Candidate, prover: PulseProver | None) -> None:
        self._incarnation = incarnation
        self._prover = prover if server.proves else None
        self._nonce = self._prover.make_nonce() if self._prover is not None else ""

    def hello(self) -> bytes:
        return message.write(message.Hello(hello=self._incarnation, nonce=self._nonce))

    def is_believed(self, answer: Pulse) -> bool:
        """Whether the first answer has proven the incarnation that it names; that may be another than expected."""
        if self._prover is None:
            return True
        return self._prover.is_proof(PulseRole.SERVER, self._with(answer), answer.proof)

    def proof(self, answer: Pulse) -> bytes:
        """The line that proves the follower to a believed server; empty when the connection needs no proofs."""
        if self._prover is None:
            return b""
        return message.write(message.Proof(proof=self._prover.prove(PulseRole.FOLLOWER, self._with(answer))))

    def _with(self, answer: Pulse) -> PulseHandshake:
        return PulseHandshake(
            follower=self._incarnation,
            follower_nonce=self._nonce,
            server=answer.incarnation,
            server_nonce=answer.nonce,
        )
