"""Resource: a key-value pair handed to tasks; a unique one is held by at most one running task at a time."""

from __future__ import annotations

from controlplane.model.object import Named


class Resource(Named, tag="Resource", frozen=True, kw_only=True):
    """With `mount` the value is in a file at that path, and the variable `key` holds the path."""

    key: str = ""
    value: str = ""
    unique: bool | None = None
    mount: str = ""
