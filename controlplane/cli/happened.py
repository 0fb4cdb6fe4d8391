"""Events as `get` and `describe` ask for them: all, or those about one object."""

from __future__ import annotations

from typing import Any

from controlplane.cli import kinds, shapes
from controlplane.client import Client
from controlplane.client.services import PAGE
from controlplane.model.errors import Invalid
from controlplane.wire.v1 import events_pb2

# What events may be about that is no object to get.
_OTHERS = {"cluster": "Cluster", "key": "Key"}


def about(text: str) -> tuple[str, str]:
    """(kind, name) of `KIND/NAME` or `KIND`: singular or plural, upper or lower case."""
    kind, _, name = text.partition("/")
    if not kind:
        raise Invalid("about", f"must be KIND/NAME, such as order/ID or target/NAME, not {text!r}")
    return _OTHERS.get(kind.lower()) or kinds.find(kind).name, name


def list_request(text: str, limit: int) -> events_pb2.ListEventsRequest:
    kind, name = about(text) if text else ("", "")
    return events_pb2.ListEventsRequest(about_kind=kind, about_name=name, limit=limit)


def watch_request(text: str, identity: str) -> events_pb2.WatchEventsRequest:
    kind, name = about(text) if text else ("", "")
    return events_pb2.WatchEventsRequest(about_kind=kind, about_name=name, name=identity)


async def events_about(client: Client, kind: str, name: str) -> list[dict[str, Any]]:
    """The events of one object, oldest first."""
    request = events_pb2.ListEventsRequest(about_kind=kind, about_name=name, limit=PAGE)
    found: list[dict[str, Any]] = []
    while True:
        page = await client.events.page(request)
        found += [shapes.plain("Event", item) for item in page.items]
        if not page.next_page_token:
            return found
        request.page_token = page.next_page_token
