"""Fixtures of several files here. A file that needs another API or replica defines the fixture of that name anew."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.component.api_stage import Api, an_api
from tests.component.leader_stage import Replica, following
from tests.etcd import Etcd, running_etcd


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    """One etcd for all tests of a file."""
    with running_etcd(tmp_path_factory.mktemp("etcd")) as started:
        yield started


@pytest.fixture
def emptied(shared: Etcd) -> Etcd:
    """The file's etcd, without the keys of the test before."""
    shared.etcdctl("del", "--prefix", "/controlplane/")
    return shared


@pytest.fixture
async def api(emptied: Etcd) -> AsyncIterator[Api]:
    """The API of one replica on the file's etcd."""
    async with an_api(emptied.endpoint) as started:
        yield started


@pytest.fixture
async def replica(etcd: Etcd) -> AsyncIterator[Replica]:
    """A cache with ledgers that follows an etcd of the test's own."""
    async with following(etcd.endpoint, Replica) as started:
        yield started
