"""Jobs, packets, resources, rules: shown as stored. Secrets: what may be told about them. Targets and scale policies:
joined with what became of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from google.protobuf.message import Message

from controlplane.apiserver.admission.named import FOLDERS
from controlplane.apiserver.reading import object_of
from controlplane.apiserver.views.view import Filter, sorted_after
from controlplane.cache.reflector import Delta
from controlplane.cache.snapshot import Snapshot
from controlplane.model.hosting import Hosting
from controlplane.model.object import Named
from controlplane.model.scalepolicy import REMOVE, Made, MadePhase, ScalePolicy, Scaling
from controlplane.model.secret import Secret
from controlplane.model.target import Live, Target, TargetStatus
from controlplane.store.keys import LIVE
from controlplane.wire import convert
from controlplane.wire.v1 import scalepolicies_pb2, secrets_pb2, targets_pb2


class NamedView:
    def __init__(self, kind: type[Named], message: type[Message]) -> None:
        self.kind = kind
        self.tree = f"config/{FOLDERS[kind]}"
        self._message = message

    @property
    def trees(self) -> Collection[str]:
        return (self.tree,)

    def keys(self, snapshot: Snapshot, wanted: Filter, after: str) -> Iterator[str]:
        names = [wanted.name] if wanted.name else snapshot.names(self.tree)
        return sorted_after(names, after)

    def touched(self, delta: Delta, wanted: Filter) -> str | None:
        if delta.tree == self.tree and wanted.name in ("", delta.parts[0]):
            return delta.parts[0]
        return None

    def removes(self, delta: Delta) -> bool:
        return delta.tree == self.tree and delta.new is None

    def read(self, snapshot: Snapshot, key: str) -> tuple[Any, int] | None:
        entry = snapshot.get(self.tree, key)
        if entry is None:
            return None
        return self.show(object_of(entry, self.kind), entry.revision), entry.revision

    def show(self, item: Named, revision: int) -> Any:
        message: Any = convert.to_wire(item, self._message)
        message.revision = revision
        return message

    def bare(self, key: str) -> Any:
        message: Any = self._message()
        message.name = key
        return message


class SecretView(NamedView):
    """Neither what it holds nor what that was sealed into."""

    def __init__(self) -> None:
        super().__init__(Secret, secrets_pb2.Secret)

    def show(self, item: Named, revision: int) -> Any:
        message = super().show(item, revision)
        if isinstance(item, Secret) and item.sealed is not None:
            message.key = item.sealed.key
        return message


class ScalePolicyView(NamedView):
    """Joined with what scaling did and the targets that it made."""

    def __init__(self) -> None:
        super().__init__(ScalePolicy, scalepolicies_pb2.ScalePolicy)

    @property
    def trees(self) -> Collection[str]:
        return (self.tree, "status/made", "status/scaling")

    def touched(self, delta: Delta, wanted: Filter) -> str | None:
        if delta.tree == "status/made":
            entry = delta.new or delta.old
            made = entry.sound(Made) if entry is not None else None
            name = made.policy if made is not None else ""
        else:
            name = delta.parts[0] if delta.tree in (self.tree, "status/scaling") else ""
        return name if name and wanted.name in ("", name) else None

    def read(self, snapshot: Snapshot, key: str) -> tuple[Any, int] | None:
        found = super().read(snapshot, key)
        if found is None:
            return None
        message, revision = found
        status = message.status
        status.SetInParent()
        entry = snapshot.get("status/scaling", key)
        scaling = entry.sound(Scaling) if entry is not None else None
        if entry is not None and scaling is not None:
            convert.fill(scaling, status)
            revision = max(revision, entry.revision)
        for one in sorted(snapshot.all("status/made"), key=lambda entry: (len(entry.parts[0]), entry.parts[0])):
            made = one.sound(Made)
            if made is None or made.policy != key:
                continue
            convert.fill(made, status.made.add())
            status.targets += made.want != REMOVE
            status.up += made.want != REMOVE and made.phase in (MadePhase.UP, MadePhase.RESIZING)
            revision = max(revision, one.revision)
        return message, revision


class TargetView(NamedView):
    def __init__(self) -> None:
        super().__init__(Target, targets_pb2.Target)

    @property
    def trees(self) -> Collection[str]:
        return (self.tree, "status/targets", "status/hosting", "inventory")

    def touched(self, delta: Delta, wanted: Filter) -> str | None:
        name = delta.parts[0]
        ours = delta.tree in (self.tree, "status/targets", "status/hosting") or (
            delta.tree == "inventory" and delta.parts[1] == LIVE
        )
        return name if ours and wanted.name in ("", name) else None

    def read(self, snapshot: Snapshot, key: str) -> tuple[Any, int] | None:
        found = super().read(snapshot, key)
        if found is None:
            return None
        message, revision = found
        message.status.phase = "Provisioning"
        status_entry = snapshot.get("status/targets", key)
        status = status_entry.sound(TargetStatus) if status_entry is not None else None
        if status_entry is not None and status is not None:
            convert.fill(status, message.status)
            revision = max(revision, status_entry.revision)
        hosting_entry = snapshot.get("status/hosting", key)
        hosting = hosting_entry.sound(Hosting) if hosting_entry is not None else None
        if hosting_entry is not None and hosting is not None:
            message.status.hosted_by, message.status.hosting = hosting.replica, hosting.reason
            revision = max(revision, hosting_entry.revision)
        live_entry = snapshot.get("inventory", key, LIVE)
        live = live_entry.sound(Live) if live_entry is not None else None
        if live_entry is not None and live is not None:
            message.live.SetInParent()
            convert.fill(live, message.live)
            revision = max(revision, live_entry.revision)
        return message, revision
