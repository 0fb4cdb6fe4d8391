"""Orders as clients send them, read from their messages."""

from __future__ import annotations

import pytest

from controlplane.apiserver.edge.sent_objects import order_request
from controlplane.model.access import ANYONE
from controlplane.model.errors import Invalid
from controlplane.model.order import OrderRequest
from controlplane.wire import convert
from controlplane.wire.v1 import orders_pb2
from tests.builders import an_identity


def an_order(identity: str = "", **fields: object) -> orders_pb2.Order:
    order = orders_pb2.Order(id=identity, owner="ada", labels={"a": "1"}, **fields)  # type: ignore[arg-type]
    order.packet.object.jobs.add(count=2).job.object.command.append("true")
    return order


@pytest.mark.parametrize("identity", ["", "short", "x" * 26, "ö" * 13, "ö" * 26, "x" * 27])
def test_what_is_read_is_what_was_sent_whatever_the_identity(identity: str) -> None:
    for _ in range(2):
        assert order_request(ANYONE, an_order(identity)) == convert.to_model(an_order(identity), OrderRequest)


def test_orders_that_differ_in_their_identity_only_are_read_as_themselves() -> None:
    first, second = an_identity(), an_identity()
    assert [order_request(ANYONE, an_order(identity)).id for identity in (first, second)] == [first, second]
    assert order_request(ANYONE, an_order(first, priority=7)).priority == 7
    assert order_request(ANYONE, an_order(second)).priority is None


def test_what_the_system_writes_is_refused_also_beside_content_that_was_read_before() -> None:
    order_request(ANYONE, an_order(an_identity()))
    with pytest.raises(Invalid) as refused:
        order_request(ANYONE, an_order(an_identity(), tasks_total=3))
    assert refused.value.field == "tasks_total"


def test_a_field_that_nobody_knows_is_refused_also_beside_content_that_was_read_before() -> None:
    identity = an_identity()
    order_request(ANYONE, an_order(identity))
    newer = orders_pb2.Order.FromString(an_order(identity).SerializeToString() + b"\xc2\x3e\x01x")
    with pytest.raises(Invalid):
        order_request(ANYONE, newer)
    with pytest.raises(Invalid):
        order_request(ANYONE, orders_pb2.Order.FromString(b"\xc2\x3e\x01x" + an_order(identity).SerializeToString()))
