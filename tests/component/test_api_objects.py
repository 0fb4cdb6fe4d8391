"""Named objects, files of objects and settings through the API."""

from __future__ import annotations

import math
from typing import Any

import grpc
import grpc.aio
import pytest

from controlplane.model import errors
from controlplane.store import keys, transaction
from controlplane.store.transaction import Item
from controlplane.wire.v1 import (
    cluster_pb2,
    common_pb2,
    jobs_pb2,
    packets_pb2,
    resources_pb2,
    rules_pb2,
    scalepolicies_pb2,
    targets_pb2,
)
from tests.component.api_stage import Api, an_api, an_order, mint, refusal
from tests.etcd import Etcd


def a_job(name: str, **fields: Any) -> jobs_pb2.Job:
    return jobs_pb2.Job(name=name, command=["true"], **fields)


def a_packet(name: str, *jobs: str, resources: tuple[str, ...] = ()) -> packets_pb2.Packet:
    packet = packets_pb2.Packet(name=name, resources=resources)
    for job in jobs:
        packet.jobs.add().job.name = job
    return packet


async def test_a_created_object_gets_an_identity_and_its_maker(api: Api) -> None:
    answer = await api.jobs.Create(a_job("render", owner="ada"))
    job = await api.jobs.Get(common_pb2.GetRequest(name="render", min_revision=answer.revision))
    assert job == answer.item
    assert len(job.id) == 26
    assert (job.owner, job.creator, job.revision) == ("ada", "ada", answer.revision)


async def test_a_name_is_taken_once(api: Api) -> None:
    await api.jobs.Create(a_job("render"))
    error = await refusal(api.jobs.Create(a_job("render")))
    assert isinstance(error, errors.AlreadyExists)
    assert error.field == "name"


async def test_an_update_keeps_what_stays_for_life_and_the_same_again_is_no_write(api: Api) -> None:
    made = await api.jobs.Create(a_job("render", owner="ada"))
    changed = await api.jobs.Update(a_job("render", image="film:2", revision=made.revision))
    assert (changed.item.id, changed.item.created, changed.item.owner) == (made.item.id, made.item.created, "ada")
    assert changed.revision > made.revision
    again = await api.jobs.Update(a_job("render", image="film:2", revision=made.revision))
    assert again.revision == changed.revision
    error = await refusal(api.jobs.Update(a_job("render", image="film:3", revision=made.revision)))
    assert isinstance(error, errors.Conflict)
    error = await refusal(api.jobs.Update(a_job("other")))
    assert isinstance(error, errors.NotFound)
    error = await refusal(api.jobs.Update(a_job("render", id=mint.make())))
    assert (type(error), getattr(error, "field", "")) == (errors.Invalid, "id")


async def test_fields_of_a_newer_version_survive_an_update(api: Api) -> None:
    await api.jobs.Create(a_job("render"))
    stored = await api.store.get(keys.config("jobs", "render"))
    assert stored is not None
    newer = stored.value[:-1] + b',"mood":"good"}'
    await api.store.commit(Item((), (transaction.put(stored.key, newer),)))
    await api.jobs.Update(a_job("render", image="film:2"))
    after = await api.store.get(stored.key)
    assert after is not None
    assert b'"mood":"good"' in after.value
    assert b"film:2" in after.value


async def test_a_deleted_object_is_made_again_with_a_new_identity(api: Api) -> None:
    first = await api.jobs.Create(a_job("render"))
    await api.jobs.Delete(common_pb2.DeleteRequest(name="render"))
    error = await refusal(api.jobs.Delete(common_pb2.DeleteRequest(name="render")))
    assert isinstance(error, errors.NotFound)
    assert (await api.jobs.Create(a_job("render"))).item.id != first.item.id


async def test_a_delete_of_another_revision_is_a_conflict(api: Api) -> None:
    made = await api.jobs.Create(a_job("render"))
    await api.jobs.Update(a_job("render", image="film:2"))
    error = await refusal(api.jobs.Delete(common_pb2.DeleteRequest(name="render", revision=made.revision)))
    assert isinstance(error, errors.Conflict)


async def test_what_others_need_cannot_be_deleted(api: Api) -> None:
    await api.resources.Create(resources_pb2.Resource(name="licence", key="LICENCE"))
    await api.jobs.Create(a_job("render", resources=["licence"]))
    made = await api.packets.Create(a_packet("film", "render"))
    await api.cache.reached(made.revision, 10)
    for service, name in ((api.jobs, "render"), (api.resources, "licence")):
        error = await refusal(service.Delete(common_pb2.DeleteRequest(name=name)))
        assert isinstance(error, errors.IllegalTransition)
    await api.packets.Delete(common_pb2.DeleteRequest(name="film"))


async def test_what_one_replica_created_can_be_named_through_another_at_once(api: Api, shared: Etcd) -> None:
    async with an_api(shared.endpoint, "replica-2") as other:
        for number in range(20):
            await api.resources.Create(resources_pb2.Resource(name=f"r-{number}", key="KEY"))
            await api.jobs.Create(a_job(f"j-{number}", resources=[f"r-{number}"]))
            await api.packets.Create(a_packet(f"p-{number}", f"j-{number}"))
            answer = await other.orders.Submit(an_order(packet=f"p-{number}"))
            order = await other.orders.Get(common_pb2.GetRequest(name=answer.item.id, min_revision=answer.revision))
            assert order.resolved.resources[0].name == f"r-{number}"


async def test_a_changed_packet_changes_new_orders_only(api: Api) -> None:
    await api.jobs.Create(a_job("render"))
    await api.packets.Create(a_packet("film", "render"))
    before = await api.orders.Submit(an_order(packet="film"))
    changed = await api.jobs.Update(a_job("render", image="film:2"))
    await api.cache.reached(changed.revision, 10)
    after = await api.orders.Submit(an_order(packet="film"))
    kept = await api.orders.Get(common_pb2.GetRequest(name=before.item.id))
    assert kept.resolved.jobs[0].job.image == ""
    fresh = await api.orders.Get(common_pb2.GetRequest(name=after.item.id, min_revision=after.revision))
    assert fresh.resolved.jobs[0].job.image == "film:2"


@pytest.mark.parametrize("amount", [-1.0, math.nan, math.inf])
async def test_amounts_that_are_none_are_refused(api: Api, amount: float) -> None:
    job = a_job("render")
    job.requests.of["cpu"] = amount
    error = await refusal(api.jobs.Create(job))
    assert (type(error), getattr(error, "field", "")) == (errors.Invalid, "requests.cpu")


async def test_a_field_that_nobody_knows_is_refused(api: Api) -> None:
    raw = a_job("render").SerializeToString() + b"\xfa\x3f\x01x"
    call: Any = api.channel.unary_unary(
        "/controlplane.v1.Jobs/Create", request_serializer=None, response_deserializer=jobs_pb2.JobResponse.FromString
    )
    assert isinstance(await refusal(call(raw)), errors.Invalid)


async def test_fields_without_effect_answer_with_a_warning(api: Api) -> None:
    answer = await api.jobs.Create(a_job("render", region="eu", spread="order", work=5))
    assert [warning.field for warning in answer.warnings] == ["work"]
    policy = scalepolicies_pb2.ScalePolicy(name="grow", provider="local", metric="queue", threshold=5, max=3)
    policy.template.capacity["cpu"] = 2
    assert not (await api.scalepolicies.Create(policy)).warnings
    target = targets_pb2.Target(name="here", driver="process", max_fulfilments=3, cordoned=True)
    assert not (await api.targets.Create(target)).warnings


def a_rule(name: str, when: str) -> rules_pb2.Rule:
    rule = rules_pb2.Rule(name=name, when=when)
    rule.then.forbid = True
    return rule


async def test_a_rule_is_stored_as_it_was_written_and_without_a_warning(api: Api) -> None:
    answer = await api.rules.Create(a_rule("night", "job.labels.team == 'film' &&\n  now.hour >= 22"))
    assert not answer.warnings
    stored = await api.rules.Get(common_pb2.GetRequest(name="night", min_revision=answer.revision))
    assert stored.when == "job.labels.team == 'film' &&\n  now.hour >= 22"


async def test_a_rule_that_does_not_compile_is_refused_with_the_place_and_nothing_is_written(api: Api) -> None:
    before = await api.store.revision()
    request = cluster_pb2.ApplyRequest()
    request.objects.add().job.CopyFrom(a_job("render"))
    request.objects.add().rule.CopyFrom(a_rule("night", "job.labels.team == 'film' &&\n  now.hour >= >= 22"))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await api.cluster.Apply(request)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    error = await refusal(api.cluster.Apply(request))
    assert (type(error), getattr(error, "field", "")) == (errors.Invalid, "objects[1].when")
    assert "at line 2, column 15:" in str(error)
    assert isinstance(await refusal(api.rules.Create(a_rule("night", "job.colour == 'red'"))), errors.Invalid)
    assert await api.store.revision() == before


async def test_objects_are_listed_by_name_and_a_foreign_token_is_refused(api: Api) -> None:
    for name in ("c", "a", "b"):
        last = await api.jobs.Create(a_job(name))
    page = await api.jobs.List(common_pb2.ListRequest(min_revision=last.revision, limit=2))
    assert [job.name for job in page.items] == ["a", "b"]
    page = await api.jobs.List(common_pb2.ListRequest(page_token=page.next_page_token))
    assert ([job.name for job in page.items], page.next_page_token) == (["c"], "")
    for bad in (common_pb2.ListRequest(page_token="???"), common_pb2.ListRequest(page_token="YWJj")):
        error = await refusal(api.jobs.List(bad))
        assert (type(error), getattr(error, "field", "")) == (errors.Invalid, "page_token")
    error = await refusal(api.jobs.List(common_pb2.ListRequest(limit=1001)))
    assert (type(error), getattr(error, "field", "")) == (errors.Invalid, "limit")


async def test_a_watch_of_one_name_tells_of_that_one_only(api: Api) -> None:
    await api.targets.Create(targets_pb2.Target(name="here"))
    made = await api.targets.Create(targets_pb2.Target(name="there"))
    call = api.targets.Watch(common_pb2.WatchRequest(name="there", min_revision=made.revision))
    event = await call.read()
    assert (event.type, event.object.name, event.object.status.phase) == ("put", "there", "Provisioning")
    assert (await call.read()).type == "sync"
    await api.targets.Update(targets_pb2.Target(name="here", cordoned=True))
    await api.targets.Update(targets_pb2.Target(name="there", cordoned=True))
    event = await call.read()
    assert (event.object.name, event.object.cordoned) == ("there", True)
    await api.targets.Delete(common_pb2.DeleteRequest(name="there"))
    event = await call.read()
    assert (event.type, event.object.name) == ("delete", "there")
    call.cancel()


def a_file() -> cluster_pb2.ApplyRequest:
    """Everything refers to what comes behind it."""
    request = cluster_pb2.ApplyRequest()
    request.objects.add().order.CopyFrom(an_order(packet="film", identity=mint.make()))
    request.objects.add().packet.CopyFrom(a_packet("film", "render", resources=("scene",)))
    request.objects.add().job.CopyFrom(a_job("render", target_policy="strict:here"))
    request.objects.add().resource.CopyFrom(resources_pb2.Resource(name="scene", key="SCENE", value="42"))
    request.objects.add().target.CopyFrom(targets_pb2.Target(name="here"))
    return request


async def test_a_file_is_applied_whole_and_again_unchanged(api: Api) -> None:
    request = a_file()
    answer = await api.cluster.Apply(request)
    assert [(item.kind, item.name, item.result) for item in answer.items] == [
        ("Order", "", "created"),
        ("Packet", "film", "created"),
        ("Job", "render", "created"),
        ("Resource", "scene", "created"),
        ("Target", "here", "created"),
    ]
    again = await api.cluster.Apply(request)
    assert {item.result for item in again.items} == {"unchanged"}
    assert [item.id for item in again.items] == [item.id for item in answer.items]
    request.objects[3].resource.value = "43"
    assert [item.result for item in (await api.cluster.Apply(request)).items].count("updated") == 1


async def test_a_file_with_one_bad_object_changes_nothing(api: Api) -> None:
    request = a_file()
    request.objects.add().job.CopyFrom(a_job("Bad Name"))
    before = await api.store.revision()
    error = await refusal(api.cluster.Apply(request))
    assert (type(error), getattr(error, "field", "")) == (errors.Invalid, "objects[5].name")
    request = a_file()
    request.objects[0].order.priority = 101
    error = await refusal(api.cluster.Apply(request))
    assert (type(error), getattr(error, "field", "")) == (errors.Invalid, "objects[0].priority")
    request = a_file()
    del request.objects[3]
    error = await refusal(api.cluster.Apply(request))
    assert isinstance(error, errors.NotFound)
    request = a_file()
    request.objects.add().target.CopyFrom(targets_pb2.Target(name="here"))
    error = await refusal(api.cluster.Apply(request))
    assert (type(error), getattr(error, "field", "")) == (errors.Invalid, "objects[5]")
    assert await api.store.revision() == before


async def test_a_file_has_between_one_and_a_hundred_objects(api: Api) -> None:
    assert isinstance(await refusal(api.cluster.Apply(cluster_pb2.ApplyRequest())), errors.Invalid)
    request = cluster_pb2.ApplyRequest()
    for number in range(100):
        request.objects.add().job.CopyFrom(a_job(f"job-{number}"))
    assert len((await api.cluster.Apply(request)).items) == 100
    request.objects.add().job.CopyFrom(a_job("one-more"))
    assert isinstance(await refusal(api.cluster.Apply(request)), errors.LimitExceeded)
    big = cluster_pb2.ApplyRequest()
    for number in range(5):
        big.objects.add().job.CopyFrom(a_job(f"big-{number}", env={f"E{at}": "x" * 30_000 for at in range(8)}))
    assert isinstance(await refusal(api.cluster.Apply(big)), errors.LimitExceeded)


async def test_settings_are_checked_together_and_shape_new_orders(api: Api) -> None:
    shown = await api.cluster.GetSettings(cluster_pb2.SettingsRequest())
    assert (shown.clean_up, shown.joblet_lease, shown.revision) == (3600, 6, 0)
    error = await refusal(api.cluster.UpdateSettings(cluster_pb2.Settings(heartbeat=3, joblet_lease=6)))
    assert (type(error), getattr(error, "field", "")) == (errors.Invalid, "heartbeat")
    wish = cluster_pb2.Settings(clean_up=60)
    wish.default_requests.of["cpu"] = 2
    done = await api.cluster.UpdateSettings(wish)
    await api.cache.reached(done.revision, 10)
    answer = await api.orders.Submit(an_order())
    order = await api.orders.Get(common_pb2.GetRequest(name=answer.item.id, min_revision=answer.revision))
    assert dict(order.resolved.jobs[0].job.requests.of) == {"cpu": 2}
    stale = cluster_pb2.Settings(clean_up=61, revision=done.revision - 1)
    assert isinstance(await refusal(api.cluster.UpdateSettings(stale)), errors.Conflict)
