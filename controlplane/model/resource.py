"""Resource: a key-value pair handed to tasks; a unique resource is held by at most one running task at a time."""

from __future__ import annotations

from controlplane.model.bounds import Line, Text
from controlplane.model.object import Named


class Resource(Named, tag="Resource", frozen=True, kw_only=True):
    """With `mount` the value is in a file at this path, and the variable `key` holds the path."""

    key: Line = ""
    value: Text = ""
    unique: bool | None = None
    mount: Line = ""
