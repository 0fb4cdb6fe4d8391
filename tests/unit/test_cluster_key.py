"""Credentials of the cluster key: only a credential made with the same key, unchanged, is read."""

from __future__ import annotations

import base64
import string

import pytest

from controlplane.cluster_key import PREFIX, Claims, ClusterKey

KEY, OTHER = ClusterKey(b"k" * 32), ClusterKey(b"o" * 32)
JOBLET = KEY.joblet_credential("here", "process", "ada")
REPLICA = KEY.replica_credential("127.0.0.1:7000")
CHARACTERS = string.ascii_letters + string.digits + "-_=./ é"


def test_a_credential_says_what_it_was_made_for() -> None:
    assert KEY.read(JOBLET) == Claims(target="here", driver="process", owner="ada")
    assert KEY.read(REPLICA) == Claims(audience="127.0.0.1:7000")


@pytest.mark.parametrize("text", [JOBLET, REPLICA], ids=["joblet", "replica"])
def test_every_change_of_a_single_character_is_refused(text: str) -> None:
    for position in range(len(PREFIX), len(text)):
        for new in CHARACTERS:
            if new != text[position]:
                assert KEY.read(text[:position] + new + text[position + 1 :]) is None, (position, new)


@pytest.mark.parametrize("text", [JOBLET, REPLICA], ids=["joblet", "replica"])
def test_a_truncated_credential_is_refused(text: str) -> None:
    assert not any(KEY.read(text[:length]) for length in range(len(text)))
    assert not any(KEY.read(PREFIX + text[start:]) for start in range(len(PREFIX) + 1, len(text)))


def test_a_credential_of_another_key_is_refused() -> None:
    assert KEY.read(OTHER.joblet_credential("here", "process", "ada")) is None
    assert KEY.read(OTHER.replica_credential("127.0.0.1:7000")) is None


def test_claims_under_the_code_of_other_claims_are_refused() -> None:
    bodies, macs = zip(*(text.removeprefix(PREFIX).split(".") for text in (JOBLET, REPLICA)), strict=True)
    assert KEY.read(f"{PREFIX}{bodies[0]}.{macs[1]}") is None
    assert KEY.read(f"{PREFIX}{bodies[1]}.{macs[0]}") is None


def test_a_forged_credential_is_refused() -> None:
    body = base64.urlsafe_b64encode(b'{"target":"there"}').decode()
    for mac in ("", "0" * 64, KEY.derived(b"credential").hex(), JOBLET.rpartition(".")[2]):
        assert KEY.read(f"{PREFIX}{body}.{mac}") is None
    assert not any(KEY.read(text) for text in ("", PREFIX, ".", f"{PREFIX}.", "x" * 5000, f"{PREFIX}\n.é"))


def test_each_purpose_has_a_key_of_its_own() -> None:
    assert len({KEY.derived(b"credential"), KEY.derived(b"pulse"), OTHER.derived(b"credential")}) == 3
