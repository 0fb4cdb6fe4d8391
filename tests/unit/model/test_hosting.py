"""Who hosts whom: a pure function, tried on many worlds."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from controlplane.model.hosting import GuestTarget, assign, living, why_not
from controlplane.model.leadership import Candidate


def a_host(name: str, *, life: str = "", keys: tuple[str, ...] = ("k",)) -> Candidate:
    return Candidate(
        id=name, incarnation=life or f"{name}-1", grpc="", http="", pulse="", pid=1, version="1", keys=keys
    )


def guests(count: int, key: str = "k") -> list[GuestTarget]:
    return [GuestTarget(f"t{number}", f"id{number}", key) for number in range(count)]


def lives(found: dict[str, Candidate | None]) -> dict[str, str]:
    return {name: host.incarnation for name, host in found.items() if host is not None}


@given(st.integers(0, 30), st.integers(1, 5), st.dictionaries(st.integers(0, 29), st.integers(0, 6)))
def test_everybody_is_hosted_evenly_and_a_second_look_changes_nothing(
    count: int, replicas: int, before: dict[int, int]
) -> None:
    hosts = [a_host(f"r{number}") for number in range(replicas)]
    now = {f"t{guest}": f"r{host}-1" for guest, host in before.items()}
    found = lives(assign(guests(count), hosts, now))
    assert set(found) == {f"t{number}" for number in range(count)}
    assert max(Counter(found.values()).values(), default=0) <= -(-count // replicas)
    assert lives(assign(guests(count), hosts, found)) == found


@given(st.integers(0, 30), st.integers(2, 5))
def test_when_a_host_dies_only_its_guests_move(count: int, replicas: int) -> None:
    hosts = [a_host(f"r{number}") for number in range(replicas)]
    found = lives(assign(guests(count), hosts, {}))
    left = lives(assign(guests(count), hosts[1:], found))
    assert all(left[name] == life for name, life in found.items() if life != "r0-1")
    assert set(left) == set(found)


def test_it_does_not_depend_on_the_order_in_which_they_are_told() -> None:
    hosts = [a_host(f"r{number}") for number in range(3)]
    assert lives(assign(guests(9), hosts, {})) == lives(assign(guests(9)[::-1], hosts[::-1], {}))


def test_only_who_has_the_key_hosts() -> None:
    hosts = [a_host("r1", keys=()), a_host("r2", keys=("other",)), a_host("r3", keys=("other", "k"))]
    assert lives(assign(guests(4), hosts, {"t0": "r1-1"})) == {f"t{number}": "r3-1" for number in range(4)}


def test_where_nobody_can_host_it_says_why() -> None:
    hosts = [a_host("r1", keys=("other",))]
    assert assign(guests(1), hosts, {"t0": "r1-1"}) == {"t0": None}
    assert assign(guests(1), [], {}) == {"t0": None}
    assert "key k" in why_not(guests(1)[0], hosts)
    assert "secret is not there" in why_not(guests(1, "")[0], hosts)
    assert "--secret-key-file" in why_not(guests(1)[0], [a_host("r1", keys=())])


def test_a_replica_that_stands_again_is_dead_in_its_life_before() -> None:
    old, new, other = a_host("r1", life="one"), a_host("r1", life="two"), a_host("r2")
    assert living([(9, new), (3, old), (5, other)]) == [new, other]
