"""Requests for events of `get` and `describe`: all events, or the events about an object."""

from __future__ import annotations

from typing import Any

from controlplane.cli import kind_views
from controlplane.client import Client
from controlplane.client.service_calls import PAGE
from controlplane.model.errors import Invalid
from controlplane.wire import json_shapes
from controlplane.wire.v1 import events_pb2

# Kinds that events may be about beside the kinds of `get`.
_OTHERS = {"cluster": "Cluster", "key": "Key"}


def about(text: str) -> tuple[str, str]:
    """(kind, name) of `KIND/NAME` or `KIND`: singular or plural, upper or lower case."""
    kind, _, name = text.partition("/")
    if not kind:
        raise Invalid("about", f"must be KIND/NAME, such as order/ID or target/NAME, not {text!r}")
    return _OTHERS.get(kind.lower()) or kind_views.find(kind).name, name


def list_request(text: str, limit: int) -> events_pb2.ListEventsRequest:
    kind, name = about(text) if text else ("", "")
    return events_pb2.ListEventsRequest(about_kind=kind, about_name=name, limit=limit)


def watch_request(text: str, identity: str) -> events_pb2.WatchEventsRequest:
    kind, name = about(text) if text else ("", "")
    return events_pb2.WatchEventsRequest(about_kind=kind, about_name=name, name=identity)


async def events_about(client: Client, kind: str, name: str) -> list[dict[str, Any]]:
    """The events of an object, oldest first."""
    request = events_pb2.ListEventsRequest(about_kind=kind, about_name=name, limit=PAGE)
    events: list[dict[str, Any]] = []
    while True:
        page = await client.events.page(request)
        events += [json_shapes.plain("Event", item) for item in page.items]
        if not page.next_page_token:
            return events
        request.page_token = page.next_page_token
