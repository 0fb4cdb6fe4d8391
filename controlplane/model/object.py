"""The base of all stored objects: frozen, compact JSON with `kind` first, unknown fields ignored when read.

A tree of plain values has no cycles, so that these objects are kept from the garbage collector.
"""

from __future__ import annotations

import msgspec

from controlplane.model.bounds import Labels, Line, Name, TimeOrEmpty


class Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A piece of an object, without a kind."""


class Object(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", gc=False):
    """A value in etcd. Fields that equal their default are left out of the JSON."""


class Named(Object, frozen=True, kw_only=True):
    """A config object that people refer to by its unique name. `changed_by` is the subject of the last change."""

    name: Name = ""
    id: Line = ""
    labels: Labels = {}
    owner: Line = ""
    creator: Line = ""
    created: TimeOrEmpty = ""
    changed_by: Line = ""
