"""What travels inside the messages of joblets and replicas."""

from __future__ import annotations

import pytest

from controlplane.model.errors import Invalid
from controlplane.model.fulfilment import Fulfilment
from controlplane.store import codec
from controlplane.wire import payload
from tests.builders import a_fulfilment, an_identity


def test_it_is_what_stands_in_etcd() -> None:
    builder = a_fulfilment(an_identity()).task(0)
    placed, observed = builder.build(), builder.observed("Running")
    assert payload.encode(placed) == codec.encode(placed)
    assert payload.encode(observed) == codec.encode(observed)
    assert payload.fulfilment(codec.encode(placed)) == placed
    assert payload.observed(codec.encode(observed)) == observed


def test_a_field_that_this_version_does_not_know_is_stepped_over() -> None:
    placed = a_fulfilment(an_identity()).task(0).build()
    newer = codec.encode(placed)[:-1] + b',"colour":"red"}'
    assert payload.fulfilment(newer) == placed


@pytest.mark.parametrize(
    "junk", [b"", b"{", b"[]", b'{"kind":"Claim"}', b"\xff", b'{"kind":"Observed"}', b"[" * 10_000]
)
def test_junk_is_invalid(junk: bytes) -> None:
    with pytest.raises(Invalid):
        payload.fulfilment(junk)
    with pytest.raises(Invalid):
        payload.observed(junk)


def test_one_is_not_taken_for_the_other() -> None:
    builder = a_fulfilment(an_identity()).task(0)
    with pytest.raises(Invalid):
        payload.fulfilment(codec.encode(builder.observed("Running")))
    with pytest.raises(Invalid):
        payload.observed(codec.encode(builder.build()))
    assert isinstance(payload.fulfilment(codec.encode(builder.build())), Fulfilment)
