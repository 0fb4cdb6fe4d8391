"""Which secrets are sealed anew, and which replicas stand in the way."""

from __future__ import annotations

import pytest

from controlplane.aio.clock import chance
from controlplane.model.errors import Refused
from controlplane.model.leadership import Candidate
from controlplane.model.secret import Content, Secret
from controlplane.sealing import Key, Keyring
from controlplane.standalone.resealing import lacking, sealed_anew

OLD, NEW = Key(b"1" * 32), Key(b"2" * 32)
BOTH = Keyring((NEW, OLD), chance)
CONTENT = Content(data={"kubeconfig": "text"}, seed="0b")


def a_secret(key: Key) -> Secret:
    return Keyring((key,), chance).seal(Secret(name="a"), CONTENT)


def a_candidate(identity: str, *of: Key) -> Candidate:
    names = tuple(key.id for key in of)
    return Candidate(id=identity, incarnation="", grpc="", http="", pulse="", pid=1, version="", keys=names)


def test_only_what_an_older_key_sealed_is_sealed_anew() -> None:
    assert sealed_anew(a_secret(NEW), BOTH) is None
    anew = sealed_anew(a_secret(OLD), BOTH)
    assert anew is not None
    assert Keyring((NEW,), chance).open(anew) == CONTENT


def test_what_no_key_opens_is_refused() -> None:
    with pytest.raises(Refused, match="which this replica does not have"):
        sealed_anew(a_secret(OLD), Keyring((NEW,), chance))


def test_replicas_without_the_key_are_named() -> None:
    candidates = [a_candidate("r3"), a_candidate("r1", OLD), a_candidate("r2", OLD, NEW)]
    assert lacking(candidates, NEW.id) == ["r1", "r3"]
