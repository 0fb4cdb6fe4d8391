"""Questions that take long: in threads of their own, and not more at a time than somebody would wait for."""

from __future__ import annotations

import asyncio
import threading
from typing import cast

import pytest

from controlplane.apiserver.queries.frozen_worlds import MOST_WAITING, FrozenWorlds
from controlplane.cache.ledgers import Ledgers
from controlplane.model.errors import LimitExceeded
from controlplane.store.kv import Store
from tests.picture import Picture


async def test_a_question_is_answered_beside_the_loop_and_not_where_names_are_resolved() -> None:
    worlds = FrozenWorlds(Picture(), cast(Store, None))
    thread = await worlds.ask(lambda _world: threading.current_thread().name)
    assert thread.startswith("question")


async def test_a_flood_of_questions_is_refused_before_it_is_begun() -> None:
    worlds, go_on = FrozenWorlds(Picture(), cast(Store, None)), threading.Event()

    def slow(_world: Ledgers) -> str:
        go_on.wait()
        return "answered"

    asked = [asyncio.create_task(worlds.ask(slow)) for _ in range(MOST_WAITING)]
    await asyncio.sleep(0)
    with pytest.raises(LimitExceeded) as refused:
        await worlds.ask(slow)
    assert refused.value.retry_after_seconds
    # Whatever they wait for, the default executor is free.
    assert await asyncio.to_thread(lambda: "free") == "free"
    go_on.set()
    assert await asyncio.gather(*asked) == ["answered"] * MOST_WAITING
    assert await worlds.ask(slow) == "answered"
