"""The table of kinds, and all that lists kinds beside it."""

from __future__ import annotations

import typing

import pytest

from controlplane.cli import kind_views
from controlplane.client import Client
from controlplane.model import kinds, manifest
from controlplane.model.kinds import KINDS, ObjectKind
from controlplane.store import keys
from controlplane.wire.v1 import cluster_pb2


@pytest.mark.parametrize("kind", KINDS)
def test_the_word_of_a_kind_is_what_its_objects_carry(kind: ObjectKind) -> None:
    assert kind.stored.__struct_config__.tag == kind.word
    assert kinds.kind_of(kind.stored) is kind
    if kind.written is not None:
        assert kind.written.__struct_config__.tag == kind.word
        assert kinds.kind_of(kind.written) is kind


@pytest.mark.parametrize("kind", KINDS)
def test_the_field_that_identifies_an_object_is_one_of_its_fields(kind: ObjectKind) -> None:
    assert not kind.identified_by or kind.identified_by in kind.stored.__struct_encode_fields__


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_stored_somewhere(kind: ObjectKind) -> None:
    structs = {tree.struct for tree in keys.TREES} | {single.struct for single in keys.SINGLES}
    assert kind.stored in structs
    if kind in kinds.NAMED:
        assert keys.tree_of(kind.stored) == f"config/{kind.plural}"


def test_a_document_is_of_any_kind_that_is_written() -> None:
    assert set(typing.get_args(manifest.Manifest)) == set(kinds.WRITTEN.values())


def test_a_client_applies_every_kind_that_is_written() -> None:
    fields = cluster_pb2.Object.DESCRIPTOR.fields_by_name
    assert {word.lower() for word in kinds.WRITTEN} == set(fields)


@pytest.mark.parametrize("kind", KINDS)
async def test_every_kind_has_a_service_and_columns(kind: ObjectKind) -> None:
    view = kind_views.find(kind.word)
    assert kind_views.find(kind.plural) is view
    assert view.columns
    async with Client(["127.0.0.1:1"]) as client:
        assert view.service(client) is not None
