"""Errors <-> gRPC status codes: one table, read in both directions.

A status carries the error's class name and the offending field in `google.rpc.ErrorInfo`, so a client raises the same
class as the server.
"""

from __future__ import annotations

import math

import grpc
from google.protobuf import any_pb2
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from controlplane.model import errors

DETAILS_KEY = "grpc-status-details-bin"
# Whole seconds, as the HTTP header of that name has them.
RETRY_KEY = "retry-after"
_DOMAIN = "controlplane"

CODES: dict[type[errors.ControlPlaneError], grpc.StatusCode] = {
    errors.Invalid: grpc.StatusCode.INVALID_ARGUMENT,
    errors.NotFound: grpc.StatusCode.NOT_FOUND,
    errors.AlreadyExists: grpc.StatusCode.ALREADY_EXISTS,
    errors.Forbidden: grpc.StatusCode.PERMISSION_DENIED,
    errors.Unauthenticated: grpc.StatusCode.UNAUTHENTICATED,
    errors.LimitExceeded: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.IllegalTransition: grpc.StatusCode.FAILED_PRECONDITION,
    errors.StaleAttempt: grpc.StatusCode.FAILED_PRECONDITION,
    errors.Refused: grpc.StatusCode.FAILED_PRECONDITION,
    errors.Conflict: grpc.StatusCode.ABORTED,
    errors.Unavailable: grpc.StatusCode.UNAVAILABLE,
    errors.OutcomeUnknown: grpc.StatusCode.UNKNOWN,
    errors.Deposed: grpc.StatusCode.FAILED_PRECONDITION,
    errors.Compacted: grpc.StatusCode.OUT_OF_RANGE,
    errors.Broken: grpc.StatusCode.INTERNAL,
}
_BY_NAME = {kind.__name__: kind for kind in CODES}


def code_of(error: errors.ControlPlaneError) -> grpc.StatusCode:
    for kind in type(error).__mro__:
        if kind in CODES:
            return CODES[kind]
    return grpc.StatusCode.INTERNAL


def trailing_metadata(error: errors.ControlPlaneError) -> tuple[tuple[str, str | bytes], ...]:
    field = getattr(error, "field", "")
    info = error_details_pb2.ErrorInfo(reason=type(error).__name__, domain=_DOMAIN, metadata={"field": field})
    details = [_packed(info)]
    if isinstance(error, errors.Invalid):
        violation = error_details_pb2.BadRequest.FieldViolation(field=error.field, description=error.rule)
        details.append(_packed(error_details_pb2.BadRequest(field_violations=[violation])))
    status = status_pb2.Status(code=code_of(error).value[0], message=str(error), details=details)
    trailing: tuple[tuple[str, str | bytes], ...] = ((DETAILS_KEY, status.SerializeToString()),)
    if isinstance(error, errors.LimitExceeded) and error.retry_after_seconds is not None:
        trailing += ((RETRY_KEY, str(math.ceil(error.retry_after_seconds))),)
    return trailing


def from_rpc(error: grpc.aio.AioRpcError) -> errors.ControlPlaneError:
    """The error raised by the server; a status from elsewhere becomes Unavailable or OutcomeUnknown."""
    message = error.details() or error.code().name
    trailing = dict(error.trailing_metadata() or ())
    details = trailing.get(DETAILS_KEY)
    raised = _named(details, message) if isinstance(details, bytes) else None
    if raised is not None:
        if isinstance(raised, errors.LimitExceeded):
            raised.retry_after_seconds = _seconds(trailing.get(RETRY_KEY))
        return raised
    if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNIMPLEMENTED):
        return errors.Unavailable(message)
    if error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED:
        return errors.LimitExceeded(message)
    return errors.OutcomeUnknown(f"{error.code().name}: {message}")


def rebuild(name: str, message: str, field: str) -> errors.ControlPlaneError:
    """The error of the class name, as raised elsewhere."""
    kind = _BY_NAME.get(name, errors.Broken)
    if kind is errors.Invalid:
        return errors.Invalid(field, message.removeprefix(f"{field}: "))
    if issubclass(kind, errors.Refused):
        return kind(message, field=field)
    return kind(message)


def _named(details: bytes, message: str) -> errors.ControlPlaneError | None:
    try:
        status = status_pb2.Status.FromString(details)
    except DecodeError:
        return None
    for detail in status.details:
        info = error_details_pb2.ErrorInfo()
        if detail.Unpack(info) and info.domain == _DOMAIN:
            return rebuild(info.reason, message, info.metadata.get("field", ""))
    return None


def _seconds(text: object) -> float | None:
    """The seconds of a retry-after; None for any other text."""
    return float(text) if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 10 else None


def _packed(message: error_details_pb2.ErrorInfo | error_details_pb2.BadRequest) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(message)
    return packed
