"""Ports of an embedded control plane: nobody else gets one that is given away; only its own replicas make it ready."""

from __future__ import annotations

import socket

from controlplane.standalone import wait_ready
from controlplane.standalone.ports import HOST, Ports, is_free

WANTED = 29_999


def test_a_port_is_given_once_and_stays_free_to_bind() -> None:
    with Ports() as ports:
        first = ports.address(WANTED)
        assert ports.address(WANTED) != first
        host, _, port = first.rpartition(":")
        assert host == HOST
        assert is_free(int(port))


def test_two_that_start_at_once_never_get_the_same_port() -> None:
    with Ports() as one, Ports() as other:
        wanted = [WANTED - number for number in range(5)]
        given = {ports.address(port) for port in wanted for ports in (one, other)}
        assert len(given) == 10


def test_what_was_reserved_is_free_for_the_next_one() -> None:
    with Ports() as one:
        first = one.address(WANTED)
    with Ports() as other:
        assert other.address(int(first.rpartition(":")[2])) == first


def test_a_port_on_which_somebody_listens_is_passed_over_and_not_kept() -> None:
    with socket.create_server((HOST, 0)) as server:
        taken = server.getsockname()[1]
        with Ports() as ports:
            assert ports.address(taken) != f"{HOST}:{taken}"
            server.close()
            assert ports.address(taken) == f"{HOST}:{taken}"


def test_another_ones_replica_at_the_address_is_not_ours() -> None:
    up = {"replicas": [{"id": "replica-1", "pid": 11}, {"id": "replica-2", "pid": 12}]}
    assert wait_ready.others(up, {"replica-1": 11, "replica-2": 12}) == []
    assert wait_ready.others(up, {"replica-1": 99, "replica-2": 12}) == ["replica-1"]
    assert wait_ready.others(up, {"replica-1": 11}) == ["replica-2"]
