"""Apiservers on an etcd of the test's own, for streams that the test speaks as a joblet."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.component.joblet_sessions.stage import Api, Stage, staged
from tests.etcd import Etcd


@pytest.fixture
async def stage(etcd: Etcd) -> AsyncIterator[Stage]:
    async with staged(etcd) as started:
        yield started


@pytest.fixture
async def api(stage: Stage) -> Api:
    """One that follows etcd, which holds a target."""
    started = await stage.an_api()
    await started.a_target()
    return started
