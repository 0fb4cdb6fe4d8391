"""A client raises the very error that the server raised."""

from __future__ import annotations

import grpc
import pytest

from controlplane.model import errors
from controlplane.wire import status_codes as wire

ALL: list[errors.ControlPlaneError] = [
    errors.Invalid("priority", "must be 1 to 100"),
    errors.NotFound("no order x", field="order"),
    errors.AlreadyExists("again"),
    errors.Unauthenticated("the token is unknown"),
    errors.Forbidden("no"),
    errors.LimitExceeded("too big"),
    errors.IllegalTransition("Succeeded cannot cancel"),
    errors.StaleAttempt("old", field="session"),
    errors.Refused("no"),
    errors.Conflict("changed"),
    errors.Unavailable("away"),
    errors.OutcomeUnknown("who knows"),
    errors.Deposed("not the leader"),
    errors.Compacted("gone"),
    errors.Broken("impossible"),
]


def raised(error: errors.ControlPlaneError) -> grpc.aio.AioRpcError:
    metadata = grpc.aio.Metadata(*wire.trailing_metadata(error))
    return grpc.aio.AioRpcError(wire.code_of(error), grpc.aio.Metadata(), metadata, str(error))


def bare(code: grpc.StatusCode) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), "said")


@pytest.mark.parametrize("error", ALL, ids=lambda error: type(error).__name__)
def test_an_error_arrives_as_itself_with_its_words_and_its_field(error: errors.ControlPlaneError) -> None:
    back = wire.from_rpc(raised(error))
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert getattr(back, "field", "") == getattr(error, "field", "")


def test_a_limit_says_after_how_many_whole_seconds_to_come_again() -> None:
    error = raised(errors.LimitExceeded("too many", retry_after_seconds=4.2))
    assert ("retry-after", "5") in list(error.trailing_metadata())
    back = wire.from_rpc(error)
    assert isinstance(back, errors.LimitExceeded)
    assert back.retry_after_seconds == 5
    without = wire.from_rpc(raised(errors.LimitExceeded("too big")))
    assert isinstance(without, errors.LimitExceeded)
    assert without.retry_after_seconds is None


@pytest.mark.parametrize("text", ["", "soon", "-1", "1e9", "9" * 400])
def test_a_time_that_is_no_number_of_seconds_counts_as_none(text: str) -> None:
    error = raised(errors.LimitExceeded("too many"))
    metadata = grpc.aio.Metadata(*error.trailing_metadata(), ("retry-after", text))
    back = wire.from_rpc(grpc.aio.AioRpcError(error.code(), grpc.aio.Metadata(), metadata, "too many"))
    assert isinstance(back, errors.LimitExceeded)
    assert back.retry_after_seconds is None


def test_every_error_has_its_place_in_the_table() -> None:
    def below(kind: type[errors.ControlPlaneError]) -> set[type[errors.ControlPlaneError]]:
        return {kind}.union(*(below(inner) for inner in kind.__subclasses__()))

    # Others, such as those of a driver, never leave the place where they are raised.
    ours = {kind for kind in below(errors.ControlPlaneError) if kind.__module__ == errors.__name__}
    assert ours - {errors.ControlPlaneError} == set(wire.CODES)
    assert {type(error) for error in ALL} == set(wire.CODES)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.UNAVAILABLE, errors.Unavailable),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, errors.LimitExceeded),
        (grpc.StatusCode.DEADLINE_EXCEEDED, errors.OutcomeUnknown),
        (grpc.StatusCode.CANCELLED, errors.OutcomeUnknown),
        (grpc.StatusCode.INTERNAL, errors.OutcomeUnknown),
    ],
)
def test_what_our_server_never_said_is_judged_by_its_code(
    code: grpc.StatusCode, kind: type[errors.ControlPlaneError]
) -> None:
    assert type(wire.from_rpc(bare(code))) is kind


def test_junk_in_the_details_is_judged_by_the_code_too() -> None:
    metadata = grpc.aio.Metadata((wire.DETAILS_KEY, b"\xff\xff junk"))
    error = grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), metadata, "said")
    assert type(wire.from_rpc(error)) is errors.Unavailable
