"""Secrets through the API of real replicas: sent, sealed, never shown."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from controlplane.aio.clock import chance
from controlplane.model import errors
from controlplane.model.secret import Secret
from controlplane.sealing import Key, Keyring
from controlplane.store import codec
from controlplane.wire.v1 import cluster_pb2, common_pb2, secrets_pb2, targets_pb2
from tests.component.api_stage import Api, an_api, refusal
from tests.etcd import Etcd
from tests.kubeconfigs import TOKEN, a_kubeconfig, base64_of, written

OLD, NEW = Key(b"1" * 32), Key(b"2" * 32)


@pytest.fixture
async def api(emptied: Etcd) -> AsyncIterator[Api]:
    async with an_api(emptied.endpoint, keyring=a_keyring(OLD)) as started:
        yield started


def a_keyring(*keys: Key) -> Keyring:
    return Keyring(keys, chance)


def a_secret(name: str = "eu-1", *, token: str = TOKEN, **fields: Any) -> secrets_pb2.Secret:
    data = {"kubeconfig": written(a_kubeconfig(token=token))}
    return secrets_pb2.Secret(name=name, type="kubeconfig", data=data, **fields)


def a_target() -> targets_pb2.Target:
    return targets_pb2.Target(name="eu-1", driver="kubernetes", kubeconfig_secret="eu-1")


def applying(*items: secrets_pb2.Secret | targets_pb2.Target) -> cluster_pb2.ApplyRequest:
    request = cluster_pb2.ApplyRequest()
    for item in items:
        into = request.objects.add()
        if isinstance(item, secrets_pb2.Secret):
            into.secret.CopyFrom(item)
        else:
            into.target.CopyFrom(item)
    return request


def stored(etcd: Etcd, name: str = "eu-1") -> Secret:
    raw = etcdctl_value(etcd, f"/controlplane/config/secrets/{name}")
    return codec.decode(raw, Secret)


def etcdctl_value(etcd: Etcd, key: str) -> bytes:
    return etcd.etcdctl("get", "--print-value-only", key).strip().encode()


async def test_what_a_secret_holds_is_nowhere_to_be_seen(api: Api, shared: Etcd) -> None:
    made = await api.secrets.Create(a_secret())
    asked = common_pb2.GetRequest(name="eu-1", min_revision=made.revision)
    answers = [
        made,
        await api.secrets.Get(asked),
        await api.secrets.List(common_pb2.ListRequest()),
        await api.secrets.Update(a_secret(token="another-token")),
    ]
    for answer in answers:
        assert not any(text in str(answer) for text in (TOKEN, "another-token", "apiVersion"))
    assert not made.item.data
    assert (made.item.type, made.item.key) == ("kubeconfig", OLD.id)
    assert made.item.size == len(a_secret().data["kubeconfig"])
    # All of etcd, its history too: what a backup holds is no more.
    everything = shared.etcdctl("get", "--prefix", "/controlplane/")
    assert not any(text in everything for text in (TOKEN, base64_of(TOKEN)[:16], "127.0.0.1:6443"))
    value = json.loads(etcdctl_value(shared, "/controlplane/config/secrets/eu-1"))
    assert set(value) == {"kind", "name", "id", "owner", "creator", "created", "type", "size", "digest", "sealed"}


async def test_a_watch_shows_no_more_than_a_get(api: Api) -> None:
    await api.secrets.Create(a_secret())
    watching = api.secrets.Watch(common_pb2.WatchRequest(name="eu-1"))
    async for event in watching:
        assert not event.object.data
        if event.type == "put":
            break
    watching.cancel()


async def test_the_same_again_is_unchanged_and_other_content_is_an_update(api: Api, shared: Etcd) -> None:
    results = []
    for token in (TOKEN, TOKEN, "another-token"):
        answer = await api.cluster.Apply(applying(a_secret(token=token)))
        results.append(answer.items[0].result)
    assert results == ["created", "unchanged", "updated"]
    content = a_keyring(OLD).open(stored(shared))
    assert "another-token" in content.data["kubeconfig"]


async def test_what_is_derived_from_a_secret_stays_when_it_changes(api: Api, shared: Etcd) -> None:
    await api.secrets.Create(a_secret())
    before = a_keyring(OLD).open(stored(shared)).seed
    await api.secrets.Update(a_secret(token="another-token"))
    assert a_keyring(OLD).open(stored(shared)).seed == before


async def test_an_update_compares_the_revision(api: Api) -> None:
    made = await api.secrets.Create(a_secret())
    await api.secrets.Update(a_secret(token="another-token", revision=made.revision))
    error = await refusal(api.secrets.Update(a_secret(token="third-token", revision=made.revision)))
    assert isinstance(error, errors.Conflict)


async def test_a_replica_without_a_key_refuses_secrets_and_reads_what_may_be_told(api: Api, shared: Etcd) -> None:
    made = await api.secrets.Create(a_secret())
    async with an_api(shared.endpoint, "replica-2") as keyless:
        for call in (
            keyless.secrets.Create(a_secret("other")),
            keyless.secrets.Update(a_secret()),
            keyless.cluster.Apply(applying(a_secret())),
        ):
            error = await refusal(call)
            assert type(error) is errors.Refused
            assert "--secret-key-file" in str(error)
        assert (await keyless.secrets.Get(common_pb2.GetRequest(name="eu-1"))).digest == made.item.digest
    assert shared.etcdctl("get", "--prefix", "--keys-only", "/controlplane/config/secrets/").split() == [
        "/controlplane/config/secrets/eu-1"
    ]


async def test_keys_change_one_after_another_and_a_stranger_replaces(api: Api, shared: Etcd) -> None:
    await api.secrets.Create(a_secret())
    seed = a_keyring(OLD).open(stored(shared)).seed
    async with an_api(shared.endpoint, "replica-2", keyring=a_keyring(NEW, OLD)) as rotated:
        assert (await rotated.cluster.Apply(applying(a_secret()))).items[0].result == "updated"
        assert (await rotated.cluster.Apply(applying(a_secret()))).items[0].result == "unchanged"
    content = a_keyring(NEW).open(stored(shared))
    assert content.seed == seed
    # A replica that has never seen the new key cannot open it, but whoever has the content can seal it again.
    assert (await api.cluster.Apply(applying(a_secret()))).items[0].result == "updated"
    assert a_keyring(OLD).open(stored(shared)).data == content.data


async def test_a_kubeconfig_that_is_not_safe_is_refused_by_its_field_and_changes_nothing(
    api: Api, shared: Etcd
) -> None:
    config = a_kubeconfig()
    config["users"][0]["user"]["exec"] = {"command": "sh"}
    wish = secrets_pb2.Secret(name="eu-1", data={"kubeconfig": written(config)})
    error = await refusal(api.secrets.Create(wish))
    assert isinstance(error, errors.Invalid)
    assert error.field == "data.kubeconfig.users[0].user.exec"
    error = await refusal(api.cluster.Apply(applying(wish)))
    assert isinstance(error, errors.Invalid)
    assert error.field == "objects[0].data.kubeconfig.users[0].user.exec"
    for bad, field in (
        (secrets_pb2.Secret(name="eu-1", type="opaque", data={"a": TOKEN}), "type"),
        (secrets_pb2.Secret(name="eu-1", type="kubeconfig", data={"token": TOKEN}), "data"),
        (secrets_pb2.Secret(name="eu-1", type="kubeconfig"), "data.kubeconfig"),
    ):
        error = await refusal(api.secrets.Create(bad))
        assert isinstance(error, errors.Invalid)
        assert error.field == field
        assert TOKEN not in str(error)
    assert not shared.etcdctl("get", "--prefix", "/controlplane/config/").strip()


async def test_a_target_needs_its_secret_to_be_there_and_keeps_it_there(api: Api) -> None:
    error = await refusal(api.targets.Create(a_target()))
    assert isinstance(error, errors.NotFound)
    assert error.field == "kubeconfig_secret"
    done = await api.cluster.Apply(applying(a_target(), a_secret()))
    assert [item.result for item in done.items] == ["created", "created"]
    assert not done.warnings
    await api.cache.reached(done.revision, 5)
    error = await refusal(api.secrets.Delete(common_pb2.DeleteRequest(name="eu-1")))
    assert isinstance(error, errors.IllegalTransition)
    gone = await api.targets.Delete(common_pb2.DeleteRequest(name="eu-1"))
    await api.cache.reached(gone.revision, 5)
    await api.secrets.Delete(common_pb2.DeleteRequest(name="eu-1"))
