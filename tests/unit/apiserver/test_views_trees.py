"""Views and waits on a cache: a view names the trees of its objects, and waits that ended are forgotten."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from controlplane.aio.clock import SystemClock
from controlplane.apiserver.queries.views.event_view import EventView
from controlplane.apiserver.queries.views.fulfilment_view import FulfilmentView
from controlplane.apiserver.queries.views.named_view import NamedView, ScalePolicyView, TargetView
from controlplane.apiserver.queries.views.object_view import Filter
from controlplane.apiserver.queries.views.order_view import OrderView
from controlplane.apiserver.queries.views.term_view import CycleView, TermView
from controlplane.cache.reflector import Cache, Delta
from controlplane.cache.snapshot import Entry
from controlplane.model.errors import Unavailable
from controlplane.model.job import Job
from controlplane.model.secret import Secret
from controlplane.store import keys
from controlplane.store.channel import EtcdOptions
from controlplane.store.kv import Store
from controlplane.store.transaction import Value

NOTHING: Any = None
VIEWS: list[Any] = [
    EventView(NOTHING), FulfilmentView(NOTHING, NOTHING), CycleView(), TermView(), NamedView(Job), ScalePolicyView(),
    NamedView(Secret), TargetView(), OrderView(NOTHING, NOTHING, NOTHING),
]  # fmt: skip


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: type(view).__name__)
def test_a_view_is_touched_by_changes_of_its_trees_only(view: Any) -> None:
    value = Value("key", b'{"policy":"x"}', 1, 1, 0)
    for tree in keys.TREES:
        parts = ("x", keys.LIVE if tree == "inventory" and isinstance(view, TargetView) else "y")
        delta = Delta(tree, parts, None, Entry(tree, parts, value), 1)
        if tree not in view.trees:
            assert view.touched(delta, Filter()) is None
    assert set(view.trees) <= set(keys.TREES)


async def test_waits_that_nobody_waits_for_any_more_are_forgotten() -> None:
    cache = Cache(Store(EtcdOptions(("http://127.0.0.1:1",)), SystemClock()), SystemClock())
    for _ in range(1000):
        with pytest.raises(Unavailable):
            await cache.reached(2**62, 0)
    gc.collect()
    assert sum(isinstance(thing, asyncio.Future) for thing in gc.get_objects()) < 300
