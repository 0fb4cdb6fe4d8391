"""History as a real etcd tells it: from the oldest revision to the head, compacted or not, and `cpctl verify` on it."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from controlplane.aio.clock import SystemClock
from controlplane.model.errors import Compacted
from controlplane.store import codec, keys
from controlplane.store.channel import EtcdOptions
from controlplane.store.kv import Store
from controlplane.store.transaction import Item, delete, put
from controlplane.verify.gathering import history_reader
from controlplane.verify.history import KeyChange
from controlplane.verify.p9_leader import LeaderCheck
from controlplane.verify.promises import SENTENCES
from tests.etcd import Etcd
from tests.unit.verify import past
from tests.unit.verify.past import ORDER


class Heard:
    def __init__(self) -> None:
        self.state: dict[str, int] = {}
        self.changes: list[tuple[int, tuple[str, ...]]] = []

    def start(self, state: Sequence[KeyChange]) -> None:
        self.state.update((event.key, event.revision) for event in state)

    def change(self, revision: int, changes: Sequence[KeyChange]) -> None:
        self.changes.append((revision, tuple(event.key for event in changes)))


@pytest.fixture
async def store(etcd: Etcd) -> AsyncIterator[Store]:
    opened = Store(EtcdOptions((etcd.endpoint,)), SystemClock())
    yield opened
    await opened.close()


async def write(store: Store, *names: str) -> int:
    """All of them in one transaction."""
    return (await store.commit(Item(then=tuple(put(keys.claim(name), b"{}") for name in names)))).revision


async def test_all_revisions_are_read_in_order_and_whole(store: Store) -> None:
    first = await write(store, "a", "b")
    second = (await store.commit(Item(then=(delete(keys.claim("a")),)))).revision
    span, heard = await history_reader.read(store, Heard)
    assert (span.first, span.last) == (1, second)
    assert heard.state == {}
    assert heard.changes == [(first, (keys.claim("a"), keys.claim("b"))), (second, (keys.claim("a"),))]


async def test_after_a_compaction_history_begins_with_the_state_that_is_left(store: Store) -> None:
    await write(store, "a")
    compacted = await write(store, "b")
    await store.compact(compacted)
    last = await write(store, "c")
    span, heard = await history_reader.read(store, Heard)
    assert (span.first, span.last) == (compacted, last)
    assert heard.state == {keys.claim("a"): compacted - 1, keys.claim("b"): compacted}
    assert heard.changes == [(last, (keys.claim("c"),))]


async def test_a_history_that_is_compacted_to_its_head_is_a_state_alone(store: Store) -> None:
    await store.compact(await write(store, "a"))
    span, heard = await history_reader.read(store, Heard)
    assert span.first == span.last
    assert list(heard.state) == [keys.claim("a")]


async def test_revisions_of_keys_that_are_not_ours_do_not_keep_the_reading_waiting(store: Store) -> None:
    ours = await write(store, "a")
    await store.commit(Item(then=(put("/elsewhere", b"x"),)))
    span, heard = await history_reader.read(store, Heard)
    assert (span.last, heard.changes[-1][0]) == (ours + 1, ours)


async def test_a_history_that_goes_under_the_reading_is_read_again_from_its_new_beginning(store: Store) -> None:
    await write(store, "a")
    head = await write(store, "b")

    made: list[Heard] = []

    class Interrupted(Heard):
        """The first one finds history compacted in the middle of the reading."""

        def change(self, revision: int, changes: Sequence[KeyChange]) -> None:
            super().change(revision, changes)
            if len(made) == 1:
                raise Compacted("gone", revision=head)

    def make() -> Heard:
        made.append(Interrupted())
        return made[-1]

    span, heard = await history_reader.read(store, make)
    assert (len(made), heard) == (2, made[1])
    assert heard.changes[-1][0] == span.last == head


async def test_a_term_that_is_written_a_moment_later_is_waited_for(store: Store) -> None:
    key = keys.candidate(1)
    epoch = (await store.commit(Item(then=(put(key, codec.encode(past.candidate())),)))).revision
    span, leader = await history_reader.read(store, LeaderCheck)
    assert not leader.leads
    following = asyncio.create_task(history_reader.follow(store, leader, span.last, lambda: leader.leads, 20.0))
    await store.commit(Item(then=(put(keys.term(epoch), codec.encode(past.term(epoch))),)))
    assert await following is True


async def cpctl(*arguments: str) -> tuple[int, Any, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "controlplane.cli.cpctl", "verify", "-o", "json", *arguments,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "NO_COLOR": "1"},
    )  # fmt: skip
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, json.loads(out) if out else None, err.decode()


async def test_a_kept_history_is_0_and_says_why_the_rest_cannot_be_judged(store: Store, etcd: Etcd) -> None:
    head = (await store.commit(Item(then=(put(keys.order(ORDER), codec.encode(past.order())),)))).revision
    code, answer, _ = await cpctl("--etcd", etcd.endpoint)
    assert code == 0
    assert (answer["revision"], answer["from_revision"]) == (head, 1)
    found = {promise["promise"]: promise for promise in answer["promises"]}
    assert list(found) == [f"P{number}" for number in range(1, 12)]
    assert {name for name, promise in found.items() if promise["ok"] is None} == set(found) - {"P2"}
    assert all(promise["why"] for promise in found.values() if promise["ok"] is None)
    sentences = {name: promise.pop("sentence") for name, promise in found.items()}
    assert sentences == SENTENCES
    assert found["P2"] == {"promise": "P2", "ok": True, "checked": 1, "violations": []}


async def test_a_broken_promise_is_2_and_names_key_and_revision(store: Store, etcd: Etcd) -> None:
    status = put(keys.order_status(ORDER), codec.encode(past.status("Running", epoch=99)))
    broken = (await store.commit(Item(then=(status,)))).revision
    code, answer, _ = await cpctl("--etcd", etcd.endpoint)
    assert code == 2
    first = answer["promises"][0]
    assert (first["promise"], first["ok"]) == ("P1", False)
    why = "carries epoch 99, but nobody led"
    assert first["violations"] == [{"key": keys.order_status(ORDER), "revision": broken, "why": why}]


async def test_a_record_of_an_order_that_etcd_never_had_breaks_p2(etcd: Etcd, tmp_path: Any) -> None:
    record = tmp_path / "record.jsonl"
    record.write_text(json.dumps({"id": "7ZZZZZZZZZZZZZZZZZZZZZZZZZ"}) + "\n")
    code, answer, _ = await cpctl("--etcd", etcd.endpoint, "--record", str(record))
    assert (code, answer["promises"][1]["ok"]) == (2, False)


async def test_an_etcd_that_cannot_be_read_is_1(etcd: Etcd) -> None:
    etcd.kill()
    code, answer, err = await cpctl("--etcd", etcd.endpoint)
    assert (code, answer) == (1, None)
    assert err.startswith("error: Unavailable")


async def test_without_a_folder_or_etcd_the_question_is_refused() -> None:
    code, answer, err = await cpctl("--endpoints", "127.0.0.1:1")
    assert (code, answer) == (1, None)
    assert "data-dir" in err
