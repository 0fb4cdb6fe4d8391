"""A store on a real etcd of the test's own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from controlplane.aio.clock import SystemClock
from controlplane.store.channel import EtcdOptions
from controlplane.store.kv import Store
from tests.etcd import Etcd


@pytest.fixture
async def store(etcd: Etcd) -> AsyncIterator[Store]:
    opened = Store(EtcdOptions((etcd.endpoint,)), SystemClock())
    yield opened
    await opened.close()
