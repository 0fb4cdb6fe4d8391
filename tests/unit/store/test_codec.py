"""JSON in etcd: strict about types, tolerant of fields from other versions."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.model.errors import Broken
from controlplane.model.order import Order
from controlplane.model.target import Target
from controlplane.store import codec
from tests.builders import an_order


def test_an_object_comes_back_as_it_went_in_with_its_kind_first() -> None:
    order = an_order().of(3).jobs(cpu=2).build()
    raw = codec.encode(order)
    assert raw.startswith(b'{"kind":"Order","id":')
    assert codec.encode(codec.decode(raw, Order)) == raw


def test_unknown_fields_are_ignored_when_read_and_kept_when_rewritten() -> None:
    raw = b'{"kind":"Target","name":"t","from_the_future":{"a":[1]},"cordoned":false}'
    target = codec.decode(raw, Target)
    changed = Target(name=target.name, cordoned=True)
    rewritten = json.loads(codec.rewrite(raw, changed))
    assert rewritten == {"kind": "Target", "name": "t", "cordoned": True, "from_the_future": {"a": [1]}}


def test_a_known_field_that_was_taken_back_does_not_survive_a_rewrite() -> None:
    raw = b'{"kind":"Target","name":"t","region":"eu","new":1}'
    assert json.loads(codec.rewrite(raw, Target(name="t"))) == {"kind": "Target", "name": "t", "new": 1}


POISON = [
    b"", b"nonsense", b"\xff\xfe", b'{"kind":"Target"', b"[]", b"null", b'{"kind":"Job","name":"t"}',
    b'{"kind":"Target","name":7}', b'{"kind":"Target","name":"\xff"}', b"[" * 100_000,
    b'{"kind":"Target","max_fulfilments":' + b"9" * 5000 + b"}",
]  # fmt: skip


@pytest.mark.parametrize("raw", POISON, ids=range(len(POISON)))
def test_poison_is_broken_when_read_and_replaced_when_rewritten(raw: bytes) -> None:
    with pytest.raises(Broken):
        codec.decode(raw, Target)
    assert codec.decode(codec.rewrite(raw, Target(name="t")), Target).name == "t"


@given(st.binary(max_size=60))
def test_any_bytes_are_an_object_or_broken(raw: bytes) -> None:
    with suppress(Broken):
        assert isinstance(codec.decode(raw, Target), Target)
