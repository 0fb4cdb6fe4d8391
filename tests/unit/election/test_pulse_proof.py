"""A proof fits one key, one role, one pair of incarnations and one pair of nonces."""

from __future__ import annotations

import itertools
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.election import message
from controlplane.election.follower_handshake import FollowerHandshake
from controlplane.election.pulse_proof import (
    PulseHandshake,
    PulseProver,
    PulseRole,
    derive_pulse_key,
    is_proof,
    prove,
)
from controlplane.model.leadership import Candidate

KEY = derive_pulse_key(b"k" * 32)
SERVER, FOLLOWER = PulseRole.SERVER, PulseRole.FOLLOWER
HANDSHAKE = PulseHandshake(follower="standby", follower_nonce="aa", server="leader", server_nonce="bb")
PARTS = [field.name for field in fields(PulseHandshake)]


def a_candidate(*, proves: bool) -> Candidate:
    return Candidate(id="x", incarnation="leader", grpc="", http="", pulse="", pid=1, version="", proves=proves)


def counting(start: int) -> PulseProver:
    """A prover whose nonces are known."""
    numbers = itertools.count(start)
    return PulseProver(b"k" * 32, lambda size: next(numbers).to_bytes(size, "big"))


@pytest.mark.parametrize("role", PulseRole)
def test_a_proof_fits_what_it_was_made_for(role: PulseRole) -> None:
    assert is_proof(KEY, role, HANDSHAKE, prove(KEY, role, HANDSHAKE))


def test_a_proof_with_another_key_is_refused() -> None:
    other = derive_pulse_key(b"k" * 31 + b"l")
    assert not is_proof(KEY, SERVER, HANDSHAKE, prove(other, SERVER, HANDSHAKE))
    assert not is_proof(KEY, SERVER, HANDSHAKE, prove(b"k" * 32, SERVER, HANDSHAKE))


def test_a_reflected_proof_is_refused() -> None:
    assert not is_proof(KEY, FOLLOWER, HANDSHAKE, prove(KEY, SERVER, HANDSHAKE))
    # Also when the one to whom it is sent back plays the other part.
    turned = PulseHandshake(follower="leader", follower_nonce="bb", server="standby", server_nonce="aa")
    assert not is_proof(KEY, FOLLOWER, turned, prove(KEY, SERVER, HANDSHAKE))


@pytest.mark.parametrize("part", PARTS)
def test_a_proof_of_another_connection_or_another_life_is_refused(part: str) -> None:
    assert not is_proof(KEY, SERVER, replace(HANDSHAKE, **{part: "other"}), prove(KEY, SERVER, HANDSHAKE))


def test_swapped_incarnations_are_refused() -> None:
    swapped = replace(HANDSHAKE, follower=HANDSHAKE.server, server=HANDSHAKE.follower)
    assert not is_proof(KEY, SERVER, swapped, prove(KEY, SERVER, HANDSHAKE))


@pytest.mark.parametrize("junk", ["", "0", "é" * 64, "0" * 64, prove(KEY, SERVER, HANDSHAKE).upper()])
def test_junk_is_refused(junk: str) -> None:
    assert not is_proof(KEY, SERVER, HANDSHAKE, junk)


@given(st.lists(st.text(), min_size=4, max_size=4), st.lists(st.text(), min_size=4, max_size=4))
def test_no_two_handshakes_share_a_proof(one: list[str], other: list[str]) -> None:
    proofs = {prove(KEY, role, PulseHandshake(*parts)) for parts in (one, other) for role in PulseRole}
    assert len(proofs) == (2 if one == other else 4)


def test_both_ends_prove_themselves_and_the_lines_stay_short() -> None:
    server, follower = counting(100), FollowerHandshake("standby", a_candidate(proves=True), counting(200))
    hello = message.read_hello(follower.hello().rstrip(b"\n"))
    assert hello is not None
    handshake = PulseHandshake(
        follower=hello.hello, follower_nonce=hello.nonce, server="leader", server_nonce=server.make_nonce()
    )
    proof = server.prove(SERVER, handshake)
    answer = message.Pulse(
        incarnation="leader", epoch=2**63, ended=2**63, wall=1e9 + 0.123456, nonce=handshake.server_nonce, proof=proof
    )
    assert follower.is_believed(answer)
    shown = message.read_proof(follower.proof(answer).rstrip(b"\n"))
    assert shown is not None
    assert server.is_proof(FOLLOWER, handshake, shown.proof)
    assert max(map(len, (follower.hello(), follower.proof(answer), message.write(answer)))) < message.LONGEST


def test_each_connection_has_a_nonce_of_its_own() -> None:
    prover, candidate = counting(0), a_candidate(proves=True)
    assert FollowerHandshake("a", candidate, prover).hello() != FollowerHandshake("a", candidate, prover).hello()


def test_an_answer_of_another_connection_is_not_believed() -> None:
    prover, candidate = counting(0), a_candidate(proves=True)
    recorded = PulseHandshake(follower="standby", follower_nonce=prover.make_nonce(), server="leader", server_nonce="b")
    answer = message.Pulse(incarnation="leader", epoch=0, ended=0, nonce="b", proof=prover.prove(SERVER, recorded))
    assert not FollowerHandshake("standby", candidate, prover).is_believed(answer)


@pytest.mark.parametrize(
    ("proves", "prover"), [(False, counting(0)), (True, None), (False, None)], ids=["old server", "no key", "neither"]
)
def test_without_a_key_on_both_sides_the_wire_is_as_it_was(proves: bool, prover: PulseProver | None) -> None:
    handshake = FollowerHandshake("standby", a_candidate(proves=proves), prover)
    assert handshake.hello() == b'{"hello":"standby"}\n'
    answer = message.Pulse(incarnation="leader", epoch=1, ended=0, wall=2.5)
    assert message.write(answer) == b'{"incarnation":"leader","epoch":1,"ended":0,"wall":2.5}\n'
    assert handshake.is_believed(answer)
    assert handshake.proof(answer) == b""


@pytest.mark.parametrize(
    "line", [b"", b"{}", b"\xff", b'{"proof":1}', b'{"proof":"a","more":1}', b'{"proof":"\\ud800aaaaaaaa"}']
)
def test_what_is_no_proof_is_not_read_as_one(line: bytes) -> None:
    assert message.read_proof(line) is None
