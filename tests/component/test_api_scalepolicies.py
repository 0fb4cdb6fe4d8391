"""Scale policies as the API shows them: joined with what they did and the targets that they made."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from controlplane.model.errors import Invalid
from controlplane.model.scalepolicy import REMOVE, Made, Scaling, ScalingStep
from controlplane.store import codec, keys
from controlplane.store.transaction import Item, put
from controlplane.wire.v1 import common_pb2, scalepolicies_pb2
from tests.component.api_stage import Api, refusal

UP = Made(
    id="A", target="farm-9", policy="farm", provider="local", epoch=1, request="A", phase="Up", capacity={"cpu": 2}
)
STEP = ScalingStep(at="2026-01-01T00:00:00.000Z", action="grow", target="farm-9", targets=1, why="3 tasks wait")


def a_policy(name: str = "farm", **more: Any) -> scalepolicies_pb2.ScalePolicy:
    policy = scalepolicies_pb2.ScalePolicy(name=name, provider="local", metric="queue", threshold=5, max=3, **more)
    policy.template.capacity["cpu"] = 2
    return policy


async def test_a_policy_shows_what_it_did_and_made(api: Api) -> None:
    await api.scalepolicies.Create(a_policy())
    await api.scalepolicies.Create(a_policy("other"))
    leaving = replace(UP, target="farm-10", want=REMOVE, error="Unavailable: nobody is there")
    scaling = Scaling(policy="farm", epoch=1, serial=10, acted=STEP.at, timeline=(STEP,))
    contents = {keys.made("farm-9"): UP, keys.made("farm-10"): leaving, keys.scaling("farm"): scaling}
    written = await api.store.commit(Item(then=tuple(put(key, codec.encode(one)) for key, one in contents.items())))
    found = await api.scalepolicies.Get(common_pb2.GetRequest(name="farm", min_revision=written.revision))
    status = found.status
    assert (status.targets, status.up, status.acted) == (1, 1, STEP.at)
    assert [(made.target, made.phase, made.want, made.error) for made in status.made] == [
        ("farm-9", "Up", "run", ""), ("farm-10", "Up", "remove", "Unavailable: nobody is there"),
    ]  # fmt: skip
    assert [(step.action, step.why) for step in status.timeline] == [("grow", "3 tasks wait")]
    listed = await api.scalepolicies.List(common_pb2.ListRequest())
    assert [(item.name, item.status.targets) for item in listed.items] == [("farm", 1), ("other", 0)]


async def test_what_a_user_says_of_the_status_is_not_stored(api: Api) -> None:
    policy = a_policy()
    policy.status.targets = 7
    await api.scalepolicies.Create(policy)
    assert (await api.scalepolicies.Get(common_pb2.GetRequest(name="farm"))).status.targets == 0


async def test_a_bad_policy_is_refused_by_field_and_changes_nothing(api: Api) -> None:
    error = await refusal(api.scalepolicies.Create(a_policy(min=4)))
    assert isinstance(error, Invalid)
    assert error.field == "max"
    assert not (await api.scalepolicies.List(common_pb2.ListRequest())).items
