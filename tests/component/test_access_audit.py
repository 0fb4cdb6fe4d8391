"""The audit log of a replica: who did what, by which credential, and who was refused; never what was in it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from controlplane.wire.v1 import access_pb2, common_pb2, jobs_pb2, orders_pb2, secrets_pb2
from tests.component.access_stage import KEYRING, Plane
from tests.component.api_stage import an_api, an_order, mint
from tests.etcd import Etcd

HIDDEN = "hunter2-7f3a"


class Audited:
    """A closed replica with an audit log."""

    def __init__(self, plane: Plane, file: Path) -> None:
        self.plane = plane
        self.file = file

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.file.read_text().splitlines()] if self.file.exists() else []


@pytest.fixture
async def audited(emptied: Etcd, tmp_path: Path) -> AsyncIterator[Audited]:
    file = tmp_path / "audit.log"
    async with an_api(emptied.endpoint, closed=True, keyring=KEYRING, audit=str(file)) as api:
        yield Audited(Plane(api), file)


async def written(audited: Audited, count: int) -> list[dict[str, Any]]:
    """So many lines, and no more: a line may come after the answer to its call."""
    async with asyncio.timeout(10):
        while len(audited.lines()) < count:
            await asyncio.sleep(0.02)
    await audited.plane.api.audit.close()
    lines = audited.lines()
    assert len(lines) == count
    return lines


async def test_every_change_is_a_line_with_subject_credential_object_and_revision(audited: Audited) -> None:
    token, text = await audited.plane.token_record("ada", "admin")
    order = an_order()
    submitted = (await audited.plane.ask("Orders.Submit", order, text)).messages[0]
    identity = submitted.item.id
    cancelled = (await audited.plane.ask("Orders.Cancel", orders_pb2.OrderRequest(id=identity), text)).messages[0]
    batch = orders_pb2.SubmitBatchRequest(orders=[an_order(), an_order()])
    await audited.plane.ask("Orders.SubmitBatch", batch, text)
    first, second, third = await written(audited, 3)
    assert (first["subject"], first["via"], first["verb"], first["kind"]) == ("ada", token.id, "create", "Order")
    assert (first["name"], first["owner"], first["decision"]) == (identity, "ada", "allowed")
    assert (first["revision"], second["revision"]) == (submitted.revision, cancelled.revision)
    assert (second["method"], second["verb"]) == ("controlplane.v1.Orders.Cancel", "update")
    assert first["peer"].startswith("ipv4:127.0.0.1:")
    assert third["name"] == "2 orders"
    assert len({line["request_id"] for line in (first, second, third)}) == 3


async def test_reading_is_no_line(audited: Audited) -> None:
    text = await audited.plane.token("ada", "admin")
    await audited.plane.ask("Orders.List", common_pb2.ListRequest(), text)
    await audited.plane.ask("Jobs.Watch", common_pb2.WatchRequest(), text)
    await audited.plane.ask("Orders.Submit", an_order(), text)
    [line] = await written(audited, 1)
    assert line["method"] == "controlplane.v1.Orders.Submit"


async def test_refusals_say_who_and_why_and_failures_too(audited: Audited) -> None:
    viewer = await audited.plane.token("bob", "viewer")
    await audited.plane.ask("Orders.List", common_pb2.ListRequest())
    await audited.plane.ask("Orders.Submit", an_order(), viewer)
    admin = await audited.plane.token("ada", "admin")
    await audited.plane.ask("Orders.Cancel", orders_pb2.OrderRequest(id=(missing := mint.make())), admin)
    lines = {line["decision"] + line["subject"]: line for line in await written(audited, 3)}
    assert lines["refused"]["reason"].startswith("Unauthenticated: ")
    assert lines["refusedbob"]["reason"] == "Forbidden: 'bob' (viewer) may not create order"
    assert lines["failedada"]["name"] == missing
    assert lines["failedada"]["reason"] == f"NotFound: there is no order {missing}"


async def test_no_token_no_secret_and_no_value_is_in_the_log(audited: Audited) -> None:
    text = await audited.plane.token("ada", "admin")
    kubeconfig = secrets_pb2.Secret(name="eu", type="kubeconfig", data={"kubeconfig": HIDDEN})
    await audited.plane.ask("Secrets.Create", kubeconfig, text)
    await audited.plane.ask("Jobs.Create", jobs_pb2.Job(name="j", command=[HIDDEN], env={"PASSWORD": HIDDEN}), text)
    made = await audited.plane.ask(
        "Access.CreateToken", access_pb2.CreateTokenRequest(subject="bob", roles=["viewer"]), text
    )
    new = made.messages[0].token
    await audited.plane.ask("Orders.List", common_pb2.ListRequest(), f"{new[:-1]}x")
    await written(audited, 4)
    content = audited.file.read_text()
    assert HIDDEN not in content
    assert new not in content
    assert text not in content
    assert new[:-1] not in content
