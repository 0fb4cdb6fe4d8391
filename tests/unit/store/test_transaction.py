"""Transactions are checked before they are sent."""

from __future__ import annotations

import grpc
import pytest
from aetcd import rpc
from hypothesis import given
from hypothesis import strategies as st

from controlplane.model import errors
from controlplane.store import transaction
from controlplane.store.channel import EtcdOptions, translate
from controlplane.store.transaction import MAX_BYTES, MAX_GROUP, MAX_OPERATIONS, Fence, Item, absent, delete, put

FENCE = Fence("/controlplane/election/1", epoch=5, mod_revision=7)


def puts(count: int, size: int = 1, name: str = "k") -> Item:
    return Item(then=tuple(put(f"/{name}-{at}", b"x" * size) for at in range(count)))


def test_a_transaction_above_the_limits_is_refused_before_it_is_sent() -> None:
    transaction.flat(puts(MAX_OPERATIONS))
    for item in (puts(MAX_OPERATIONS + 1), puts(1, MAX_BYTES), Item(compares=(absent("/a"),) * (MAX_OPERATIONS + 1))):
        with pytest.raises(errors.LimitExceeded):
            transaction.flat(item)


def test_with_n_items_each_may_hold_n_operations_less() -> None:
    transaction.nested([puts(MAX_OPERATIONS - 2), puts(1, name="l")], None)
    with pytest.raises(errors.LimitExceeded):
        transaction.nested([puts(MAX_OPERATIONS - 1), puts(1, name="l")], None)


def test_a_group_above_the_bytes_of_a_transaction_is_refused() -> None:
    with pytest.raises(errors.LimitExceeded):
        transaction.nested([puts(1, MAX_BYTES // 2, "a"), puts(1, MAX_BYTES // 2, "b")], FENCE)


def test_an_empty_group_is_refused() -> None:
    with pytest.raises(errors.LimitExceeded):
        transaction.nested([], FENCE)


def test_a_fence_compares_the_mod_revision_of_the_leader_key() -> None:
    request = rpc.TxnRequest.FromString(transaction.nested([puts(1)], FENCE))
    (compare,) = request.compare
    assert (compare.key, compare.mod_revision) == (b"/controlplane/election/1", 7)
    assert (compare.target, compare.result) == (rpc.Compare.MOD, rpc.Compare.EQUAL)


ITEMS = st.lists(
    st.builds(
        lambda names, size, weight: Item(
            compares=(absent("/c"),) * weight, then=tuple(put(f"/{name}", b"x" * size) for name in sorted(names))
        ),
        st.sets(st.integers(0, 300), min_size=1, max_size=30),
        st.sampled_from([1, 100, 40_000]),
        st.integers(0, MAX_OPERATIONS),
    ),
    min_size=1,
    max_size=20,
)


@given(ITEMS)
def test_the_front_of_what_waits_is_a_group_that_etcd_takes(items: list[Item]) -> None:
    count = transaction.group_size(items)
    assert 1 <= count <= len(items)
    group = items[:count]
    if count > 1:
        transaction.nested(group, FENCE)
        written = [key for item in group for key in item.written()]
        assert len(written) == len(set(written))


def test_the_front_holds_as_much_as_fits_and_no_more() -> None:
    small = [puts(1, name=f"n{at}") for at in range(MAX_GROUP + 5)]
    assert transaction.group_size(small) == MAX_GROUP
    assert transaction.group_size([puts(1, name="a"), puts(1, name="a"), puts(1, name="b")]) == 1
    assert transaction.group_size([puts(MAX_OPERATIONS + 1, name="too-big"), puts(1)]) == 1
    assert transaction.group_size([puts(1), Item(then=(delete("/k-0"),))]) == 1


def rpc_error(code: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details)


@pytest.mark.parametrize(
    ("code", "details", "kind"),
    [
        (grpc.StatusCode.UNAVAILABLE, "failed to connect to all addresses; last error: x", errors.Unavailable),
        (grpc.StatusCode.UNAVAILABLE, "etcdserver: no leader", errors.Unavailable),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded", errors.Unavailable),
        (grpc.StatusCode.UNAVAILABLE, "Socket closed", errors.OutcomeUnknown),
        (grpc.StatusCode.UNAVAILABLE, "etcdserver: request timed out", errors.OutcomeUnknown),
        # etcd says this also after it proposed the write to the others.
        (grpc.StatusCode.UNAVAILABLE, "etcdserver: server stopped", errors.OutcomeUnknown),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded", errors.OutcomeUnknown),
        (grpc.StatusCode.OUT_OF_RANGE, "etcdserver: mvcc: required revision has been compacted", errors.Compacted),
        (grpc.StatusCode.NOT_FOUND, "etcdserver: requested lease not found", errors.NotFound),
        (grpc.StatusCode.INVALID_ARGUMENT, "etcdserver: duplicate key given in txn request", errors.Broken),
    ],
)
def test_a_failed_write_is_unavailable_only_when_it_certainly_did_not_apply(
    code: grpc.StatusCode, details: str, kind: type[errors.ControlPlaneError]
) -> None:
    assert type(translate(rpc_error(code, details), applies=True)) is kind


@pytest.mark.parametrize("details", ["Socket closed", "etcdserver: server stopped", "Deadline Exceeded"])
def test_a_failed_read_has_no_effect_and_is_just_unavailable(details: str) -> None:
    error = translate(rpc_error(grpc.StatusCode.UNAVAILABLE, details), applies=False)
    assert type(error) is errors.Unavailable


@pytest.mark.parametrize(
    "options",
    [
        {"endpoints": ()},
        {"endpoints": ("127.0.0.1:2379",)},
        {"endpoints": ("ftp://127.0.0.1:2379",)},
        {"endpoints": ("http://127.0.0.1",)},
        {"endpoints": ("http://127.0.0.1:port",)},
        {"endpoints": ("http://127.0.0.1:99999",)},
        {"endpoints": ("https://127.0.0.1:2379",), "cert_file": "only-the-certificate"},
        {"endpoints": ("https://127.0.0.1:2379",), "key_file": "only-the-key"},
    ],
)
def test_options_that_cannot_reach_an_etcd_are_refused(options: dict[str, tuple[str, ...]]) -> None:
    with pytest.raises(errors.Invalid):
        EtcdOptions(**options)  # type: ignore[arg-type]
