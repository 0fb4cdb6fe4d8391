"""One identity is one run: whatever became of its order, whoever asks again, and through which call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from controlplane.aio.clock import SystemClock, chance, wall_milliseconds
from controlplane.apiserver.commands.group_writer import GroupWriter
from controlplane.controller_manager.clean_up import CleanUp
from controlplane.model import errors
from controlplane.model.cleaned_orders import Cleaned, DeletedOrder
from controlplane.model.errors import OutcomeUnknown
from controlplane.model.identity import Mint
from controlplane.model.order import Counts, OrderStatus
from controlplane.model.settings import Settings
from controlplane.store import codec, keys
from controlplane.store.fenced import FencedWriter
from controlplane.store.kv import Store
from controlplane.store.transaction import Item, Outcome
from controlplane.wire.v1 import cluster_pb2, common_pb2, orders_pb2
from tests.component.api_stage import Api, an_api, an_order, refusal
from tests.component.leader_stage import Replica, following, lead
from tests.etcd import Etcd

HOUR = 3600


def made(seconds_ago: float) -> str:
    """An identity that was made so long ago."""
    return Mint(lambda: wall_milliseconds() - int(seconds_ago * 1000), chance).make()


class Stage:
    """One API, and a leader that cleans up when it is told to."""

    def __init__(self, api: Api, replica: Replica, writer: FencedWriter) -> None:
        self.api = api
        self.replica = replica
        self.writer = writer

    async def set_clean_up(self, seconds: float) -> None:
        await self._write({keys.SETTINGS: Settings(clean_up=seconds)})

    async def finish(self, order: str) -> None:
        now = "2026-01-01T00:00:00.000Z"
        status = OrderStatus(order=order, epoch=1, phase="Succeeded", counts=Counts(succeeded=1), finished=now)
        await self._write({keys.order_status(order): status})

    async def _write(self, contents: dict[str, Any]) -> None:
        revision = await self.replica.write(contents)
        await self.api.cache.reached(revision, 10)

    async def clean(self) -> None:
        """Everything that a leader cleans up now; a new leader each time."""
        cleaning = CleanUp(self.replica.ledgers, self.replica.settling(self.writer), SystemClock())
        await self.replica.cache.reached(await self.api.store.revision(), 10)
        for _ in range(2):
            for key in cleaning.every_key():
                await cleaning.reconcile(key)
        await self.api.cache.reached(await self.api.store.revision(), 10)


@asynccontextmanager
async def staged(etcd: Etcd, make_writer: Callable[[Store], GroupWriter] = GroupWriter) -> AsyncIterator[Stage]:
    async with an_api(etcd.endpoint, make_writer=make_writer) as api, following(etcd.endpoint, Replica) as replica:
        _, writer = await lead(replica)
        yield Stage(api, replica, writer)


@pytest.fixture
async def stage(etcd: Etcd) -> AsyncIterator[Stage]:
    async with staged(etcd) as started:
        yield started


async def submit(api: Api, order: orders_pb2.Order) -> None:
    await api.orders.Submit(order)


async def apply(api: Api, order: orders_pb2.Order) -> None:
    await api.cluster.Apply(cluster_pb2.ApplyRequest(objects=[cluster_pb2.Object(order=order)]))


async def submit_batch(api: Api, order: orders_pb2.Order) -> None:
    """As the one call, so that its failure is raised like theirs."""
    answer = await api.orders.SubmitBatch(orders_pb2.SubmitBatchRequest(orders=[order]))
    failure = answer.results[0].failure
    if failure.code:
        raise getattr(errors, failure.code)(failure.field, failure.message)


async def why_not(call: Awaitable[None]) -> errors.Invalid:
    try:
        error: errors.ControlPlaneError = await refusal(call)
    except errors.Invalid as raised:
        error = raised
    assert isinstance(error, errors.Invalid), error
    assert error.field.endswith("id")
    return error


calls = pytest.mark.parametrize("call", [submit, submit_batch, apply])


@calls
async def test_an_identity_is_not_used_again_after_clean_up(stage: Stage, call: Any) -> None:
    order = an_order(identity=made(2 * HOUR - 60))
    await stage.set_clean_up(2 * HOUR)
    await call(stage.api, order)
    await call(stage.api, order)
    await stage.finish(order.id)
    await stage.set_clean_up(HOUR)
    await stage.clean()
    assert await stage.api.store.get(keys.order(order.id)) is None
    await why_not(call(stage.api, order))


@calls
async def test_an_identity_is_not_used_again_after_clean_up_was_made_longer(stage: Stage, call: Any) -> None:
    order, younger = an_order(identity=made(60)), an_order(identity=made(1))
    await call(stage.api, order)
    await stage.finish(order.id)
    await stage.set_clean_up(30)
    await stage.clean()
    assert await stage.api.store.get(keys.order(order.id)) is None
    await stage.set_clean_up(HOUR)
    await why_not(call(stage.api, order))
    await why_not(call(stage.api, an_order(identity=made(61))))
    # Only what is as old as that, or older.
    await call(stage.api, younger)
    stored = await stage.api.store.get(keys.CLEANED)
    assert stored is not None
    before = codec.decode(stored.value, Cleaned).through
    await stage.finish(younger.id)
    await stage.set_clean_up(0)
    await stage.clean()
    stored = await stage.api.store.get(keys.CLEANED)
    assert stored is not None
    assert codec.decode(stored.value, Cleaned).through > before


@calls
@pytest.mark.parametrize("cleaned", [False, True])
async def test_an_identity_is_not_used_again_after_its_order_was_deleted(
    stage: Stage, call: Any, cleaned: bool
) -> None:
    order = an_order(identity=made(0))
    await call(stage.api, order)
    await stage.finish(order.id)
    gone = await stage.api.orders.Delete(common_pb2.DeleteRequest(name=order.id))
    await stage.api.cache.reached(gone.revision, 10)
    if cleaned:
        await stage.clean()
        assert await stage.api.store.get(keys.order_status(order.id)) is None
        kept = await stage.api.store.get(keys.deleted_order(order.id))
        assert kept is not None
        assert codec.decode(kept.value, DeletedOrder).order == order.id
    await why_not(call(stage.api, order))
    # The note goes when the identity is too old anyhow, and then that is on record for good.
    await stage.set_clean_up(0)
    await stage.clean()
    assert await stage.api.store.get(keys.deleted_order(order.id)) is None
    await stage.set_clean_up(HOUR)
    await why_not(call(stage.api, order))


@calls
async def test_an_identity_further_ahead_than_clocks_differ_is_refused(stage: Stage, call: Any) -> None:
    await call(stage.api, an_order(identity=made(-200)))
    error = await why_not(call(stage.api, an_order(identity=made(-400))))
    assert "ahead" in str(error)
    await why_not(call(stage.api, an_order(identity="7ZZZZZZZZZZZZZZZZZZZZZZZZZ")))


async def test_a_replica_whose_clock_is_behind_takes_what_the_others_take(stage: Stage) -> None:
    stage.api.leadership.off = {"replica-1": -float(HOUR)}
    await submit(stage.api, an_order(identity=made(-HOUR)))
    await why_not(submit(stage.api, an_order(identity=made(-HOUR - 400))))


async def test_a_replica_that_did_not_hear_of_a_delete_is_refused_by_etcd(etcd: Etcd, stage: Stage) -> None:
    order = an_order(identity=made(30))
    await submit(stage.api, order)
    async with an_api(etcd.endpoint, "replica-2") as late:
        await late.cache.reached(await stage.api.store.revision(), 10)
        # From here on its picture stands still.
        held = late.cache._apply
        late.cache._apply = lambda *_args: None  # type: ignore[method-assign]
        await stage.finish(order.id)
        await stage.api.orders.Delete(common_pb2.DeleteRequest(name=order.id))
        await why_not(submit(late, order))
        await why_not(submit_batch(late, order))
        await stage.clean()
        await why_not(submit(late, order))
        await why_not(submit_batch(late, order))
        late.cache._apply = held  # type: ignore[method-assign]


class Forgetful(GroupWriter):
    """Whose first create is answered by nobody, after `meanwhile` has happened."""

    meanwhile: Callable[[], Awaitable[None]] | None = None

    async def write(self, item: Item) -> Outcome:
        outcome = await super().write(item)
        if self.meanwhile is not None:
            happen, self.meanwhile = self.meanwhile, None
            await happen()
            raise OutcomeUnknown("nobody answered")
        return outcome


@pytest.mark.parametrize("how", ["cleaned up", "deleted"])
@pytest.mark.parametrize("call", [submit, apply])
async def test_a_lost_answer_is_not_repeated_once_its_order_has_run_and_gone(etcd: Etcd, call: Any, how: str) -> None:
    writers: list[Forgetful] = []

    def make_writer(store: Store) -> GroupWriter:
        writers.append(Forgetful(store))
        return writers[-1]

    async with staged(etcd, make_writer) as stage:
        order = an_order(identity=made(0))

        async def run_and_go() -> None:
            await stage.finish(order.id)
            if how == "deleted":
                await stage.replica.write({keys.order(order.id): None})
            else:
                await stage.set_clean_up(0)
            await asyncio.sleep(0.01)
            await stage.clean()
            await stage.set_clean_up(HOUR)

        writers[0].meanwhile = run_and_go
        error = await refusal(call(stage.api, order))
        assert isinstance(error, errors.OutcomeUnknown | errors.Invalid)
        assert await stage.api.store.get(keys.order(order.id)) is None
