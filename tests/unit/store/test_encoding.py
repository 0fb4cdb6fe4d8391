"""What is encoded by hand is what etcd's own messages read."""

from __future__ import annotations

from aetcd import rpc
from hypothesis import given
from hypothesis import strategies as st

from controlplane.store import encoding, transaction
from controlplane.store.transaction import Fence, Item
from tests.prefixes import delete_prefix

KEYS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=300)
VALUES = st.one_of(
    st.binary(max_size=300), st.sampled_from([b"x" * size for size in (127, 128, 16383, 16384, 1 << 20)])
)
NUMBERS = st.one_of(st.integers(0, (1 << 63) - 1), st.sampled_from([0, 1, 127, 128, 16383, 16384, 1 << 35]))


@given(KEYS, VALUES, NUMBERS)
def test_every_operation_reads_as_what_it_was_made_for(key: str, value: bytes, lease: int) -> None:
    name = key.encode()
    putting = rpc.PutRequest(key=name, value=value, lease=lease)
    for operation, meant in (
        (transaction.put(key, value, lease=lease), rpc.RequestOp(request_put=putting)),
        (transaction.get(key), rpc.RequestOp(request_range=rpc.RangeRequest(key=name))),
        (transaction.delete(key), rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=name))),
    ):
        assert rpc.RequestOp.FromString(operation.raw) == meant
        assert operation.key == name


def test_a_prefix_is_deleted_up_to_its_end() -> None:
    meant = rpc.DeleteRangeRequest(key=b"/p/", range_end=b"/p0")
    operation = delete_prefix("/p/")
    assert rpc.RequestOp.FromString(operation.raw) == rpc.RequestOp(request_delete_range=meant)


@given(KEYS, NUMBERS)
def test_every_compare_reads_as_what_it_was_made_for(key: str, number: int) -> None:
    name, kind = key.encode(), rpc.Compare
    for raw, meant in (
        (transaction.absent(key), kind(result=kind.EQUAL, target=kind.CREATE, key=name, create_revision=0)),
        (transaction.present(key), kind(result=kind.GREATER, target=kind.CREATE, key=name, create_revision=0)),
        (transaction.mod_is(key, number), kind(result=kind.EQUAL, target=kind.MOD, key=name, mod_revision=number)),
        (
            transaction.nothing_below(f"{key}/"),
            kind(result=kind.EQUAL, target=kind.CREATE, key=name + b"/", create_revision=0, range_end=name + b"0"),
        ),
        (
            transaction.unchanged_below(f"{key}/", number - 1),
            kind(result=kind.LESS, target=kind.MOD, key=name + b"/", mod_revision=number, range_end=name + b"0"),
        ),
        (transaction.lease_is(key, number), kind(result=kind.EQUAL, target=kind.LEASE, key=name, lease=number)),
    ):
        assert kind.FromString(raw) == meant


@given(st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=5))
def test_a_group_reads_as_one_fenced_transaction_of_its_items(writes: list[tuple[str, bytes]]) -> None:
    items = [
        Item((transaction.absent(key),), (transaction.put(key, value[:1000]),), (transaction.get(key),))
        for key, value in writes
    ]
    fence = Fence("/leader", epoch=5, mod_revision=7)
    request = rpc.TxnRequest.FromString(transaction.nested(items, fence))
    assert [compare.SerializeToString() for compare in request.compare] == [
        rpc.Compare.FromString(fence.compare()).SerializeToString()
    ]
    assert [operation.request_range.key for operation in request.failure] == [b"/leader"]
    for operation, item in zip(request.success, items, strict=True):
        inner = operation.request_txn
        assert inner == rpc.TxnRequest.FromString(transaction.flat(item))
        assert list(inner.compare) == [rpc.Compare.FromString(compare) for compare in item.compares]
        assert list(inner.success) == [rpc.RequestOp.FromString(then.raw) for then in item.then]
        assert list(inner.failure) == [rpc.RequestOp.FromString(otherwise.raw) for otherwise in item.otherwise]


@given(KEYS, VALUES)
def test_creating_a_key_reads_as_its_compare_its_put_and_its_get(key: str, value: bytes) -> None:
    item = transaction.create_item(key, value)
    assert (
        item == Item((transaction.absent(key),), (transaction.put(key, value),), (transaction.get(key),)) or not value
    )
    request = rpc.TxnRequest.FromString(item.raw())
    assert list(request.compare) == [rpc.Compare.FromString(transaction.absent(key))]
    assert list(request.success) == [rpc.RequestOp.FromString(transaction.put(key, value).raw)]
    assert list(request.failure) == [rpc.RequestOp.FromString(transaction.get(key).raw)]
    assert item.written() == [key.encode()]


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_a_number_of_any_size_is_read_back(number: int) -> None:
    assert rpc.PutRequest.FromString(b"\x18" + encoding.varint(number)).lease == number
