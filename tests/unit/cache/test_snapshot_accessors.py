"""Reading a snapshot: every accessor gives the object under its key, None when it is absent, and None for poison."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest

from controlplane.cache.snapshot import Entry, Snapshot
from controlplane.model.errors import Broken
from controlplane.model.leadership import Term
from controlplane.model.target import Live
from controlplane.store import codec, keys
from controlplane.store.keys import Single, Tree
from tests import poison
from tests.picture import Told

TREES: Mapping[str, Tree[Any]] = {
    "order": keys.ORDERS,
    "order_status": keys.ORDER_STATUS,
    "job": keys.JOBS,
    "packet": keys.PACKETS,
    "resource": keys.RESOURCES,
    "target": keys.TARGETS,
    "target_status": keys.TARGET_STATUS,
    "rule": keys.RULES,
    "scale_policy": keys.SCALE_POLICIES,
    "scaling": keys.SCALING,
    "made": keys.MADE,
    "secret": keys.SECRETS,
    "hosting": keys.HOSTING,
    "claim": keys.CLAIMS,
    "event": keys.EVENTS,
    "fulfilment": keys.DESIRED,
    "report": keys.INVENTORY,
}
SINGLES: Mapping[str, Single[Any]] = {
    "cluster_status": keys.CLUSTER_STATUS,
    "archive_status": keys.ARCHIVE_STATUS,
    "totals": keys.TOTALS,
    "isolation": keys.ISOLATED,
    "resume": keys.RESTORE,
}


def a_sane(struct: type[msgspec.Struct]) -> msgspec.Struct:
    return codec.decode(msgspec.json.encode(poison.a_sample(struct)), struct)


def holding(key: str, value: msgspec.Struct | bytes) -> Snapshot:
    told = Told()
    told.picture.tell(told.history.write({key: value}))
    return told.picture.snapshot


def key_of(tree: Tree[Any], item: msgspec.Struct) -> tuple[str, tuple[str, ...]]:
    parts = tree.rule.parts_of(item) if tree.rule.parts_of is not None else ("name",)
    return tree.prefix + "/".join(parts), parts


@pytest.mark.parametrize("name", TREES)
def test_an_accessor_gives_the_object_of_its_tree(name: str) -> None:
    item = a_sane(TREES[name].struct)
    key, parts = key_of(TREES[name], item)
    read: Callable[..., Any] = getattr(Snapshot, name)
    assert read(holding(key, item), *parts) == item
    assert read(holding(key, b"poison"), *parts) is None
    assert read(holding(keys.MARK, b""), *parts) is None
    assert read(Snapshot(1, {}), *parts) is None


@pytest.mark.parametrize("name", SINGLES)
def test_an_accessor_gives_the_object_of_its_single_key(name: str) -> None:
    single = SINGLES[name]
    item = a_sane(single.struct)
    read: Callable[[Snapshot], Any] = getattr(Snapshot, name)
    assert read(holding(single, item)) == item
    assert read(holding(single, b"poison")) is None
    assert read(Snapshot(1, {})) is None
    entry = holding(single, item).single(single)
    assert entry is not None
    assert entry.read() == item


def test_the_live_record_of_a_target_is_not_the_report_of_a_fulfilment() -> None:
    live = a_sane(Live)
    assert isinstance(live, Live)
    snapshot = holding(keys.live(live.target), live)
    assert snapshot.live(live.target) == live
    assert snapshot.live("elsewhere") is None
    assert holding(keys.observed(live.target, "other"), b"poison").live(live.target) is None


def test_a_term_is_read_by_its_epoch() -> None:
    term = a_sane(Term)
    assert isinstance(term, Term)
    assert holding(keys.term(term.epoch), term).term(term.epoch) == term


def test_objects_are_those_that_are_not_poison() -> None:
    told = Told()
    job = a_sane(keys.JOBS.struct)
    told.picture.tell(told.history.write({key_of(keys.JOBS, job)[0]: job, keys.config("jobs", "poison"): b"poison"}))
    assert list(told.picture.snapshot.objects(keys.JOBS)) == [job]
    assert told.picture.snapshot.count(keys.JOBS) == 2


@pytest.mark.parametrize("tree", keys.TREES)
def test_every_tree_is_found_by_its_keys_and_by_its_struct(tree: Tree[Any]) -> None:
    parts = ("a", "b")[: tree.depth]
    assert keys.parse(tree.prefix + "/".join(parts)) == (tree, parts)
    if tree in poison.TREES:
        assert keys.tree_of(tree.struct) is tree


@pytest.mark.parametrize("single", keys.SINGLES)
def test_a_single_key_parses_to_its_place_and_holds_its_struct(single: Single[Any]) -> None:
    tree, parts = keys.parse(single) or ("", ())
    assert (tree, *parts) == single.place
    rule = keys.rule_of(tree, parts)
    assert rule is not None
    assert rule.struct is single.struct


def test_a_key_of_no_tree_holds_no_object() -> None:
    [entry] = holding(keys.MARK, b"poison").everything()
    with pytest.raises(Broken):
        entry.read()
    assert Entry.readable(entry) is None
