"""Sessions on a restored etcd: opened only by joblets that are done with what was before, and given nothing old."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from controlplane.model.cluster import ClusterStatus
from controlplane.model.errors import Unavailable
from controlplane.store import codec, keys
from tests.component.joblet_sessions.stage import Api, Stage


@pytest.fixture
async def api(api: Api) -> Api:
    await api.ports.writes.space.look()
    return api


async def noted(api: Api, **fields: Any) -> ClusterStatus:
    """As the leader would."""
    status = ClusterStatus(epoch=1, cluster_id=api.ports.writes.space.cluster_id, since="")
    status = msgspec.structs.replace(status, **fields)
    await api.put(keys.CLUSTER_STATUS, codec.encode(status))
    return status


async def test_the_welcome_and_the_session_name_the_etcd(stage: Stage, api: Api) -> None:
    await noted(api)
    talk = await stage.a_talk(api, known_attempt=4)
    welcome = await talk.until("welcome")
    found = await api.live()
    assert found is not None
    assert welcome.cluster == found[1].cluster == api.ports.writes.space.cluster_id
    assert (found[1].known_attempt, welcome.start_over, welcome.restored) == (4, False, False)


async def test_nobody_gets_a_session_before_a_leader_has_noticed(stage: Stage, api: Api) -> None:
    await noted(api, cluster_id="before")
    talk = await stage.a_talk(api)
    refusal = await talk.refusal()
    assert isinstance(refusal, Unavailable)
    assert "restored" in str(refusal)


@pytest.mark.parametrize("cluster", ["before", ""])
async def test_a_joblet_of_before_starts_over(stage: Stage, api: Api, cluster: str) -> None:
    """Its highest revision is one that this etcd may never reach."""
    status = await noted(api, restored=1, restoring=True)
    revision = 10**9 if cluster else 0
    talk = await stage.a_talk(api, cluster=cluster, highest_revision=revision)
    welcome = await talk.until("welcome")
    assert (welcome.start_over, welcome.cluster, welcome.session) == (True, status.cluster_id, "")
    assert await api.live() is None


async def test_another_etcd_makes_it_start_over_without_a_restore_too(stage: Stage, api: Api) -> None:
    await noted(api)
    talk = await stage.a_talk(api, cluster="elsewhere")
    assert (await talk.until("welcome")).start_over


async def test_nothing_that_a_backup_brought_back_is_assigned(stage: Stage, api: Api) -> None:
    await api.desire()
    status = await noted(api, restored=1, restoring=True)
    talk = await stage.a_talk(api, cluster=status.cluster_id)
    assert (await talk.until("welcome")).restored
    assert await talk.synced() == []
    await noted(api, restored=1)
    fresh = await api.desire()
    assert (await talk.until("assign")).fulfilment == fresh


async def test_revisions_that_went_back_are_noticed_without_a_new_cluster_id_too(stage: Stage, api: Api) -> None:
    status = await noted(api)
    talk = await stage.a_talk(api, cluster=status.cluster_id, highest_revision=10**9)
    refusal = await talk.refusal()
    assert isinstance(refusal, Unavailable)
    assert "restored without a new cluster id" in str(refusal)
