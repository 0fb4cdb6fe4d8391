"""Backup and restore of etcd: snapshots taken over the network, turned into a data folder by etcd's own tool.

A snapshot is written to a temporary name, checked against the checksum that etcd appends, synced, and only then given
its name. A data folder appears by one rename; an older data folder is moved aside, never deleted.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from controlplane.aio.clock import SystemClock, chance
from controlplane.model.errors import AlreadyExists, Broken, NotFound, Refused, Unavailable
from controlplane.standalone import etcd_binary, folder_tls
from controlplane.standalone.endpoints import PLAIN_ETCD, EtcdFiles
from controlplane.standalone.layout import Layout
from controlplane.standalone.ports import ETCD_PEER, HOST
from controlplane.standalone.process_plan import MEMBER
from controlplane.store import maintenance
from controlplane.store.channel import EtcdOptions
from controlplane.store.kv import Store

_CHECKSUM_BYTES = hashlib.sha256().digest_size
_TOOL_SECONDS = 600.0
# Since this version etcdctl no longer restores.
_ETCDUTL_ONLY = (3, 6, 0)


@dataclass(frozen=True)
class Saved:
    """`revision` is certainly in the snapshot; the snapshot may hold newer revisions too."""

    size: int
    sha256: str
    revision: int


@dataclass(frozen=True)
class Member:
    """The flags that etcd will be started with; an empty field means a single member with default flags."""

    name: str = ""
    peer: str = ""
    cluster: str = ""
    token: str = ""


@dataclass(frozen=True)
class Restored:
    folder: Path
    aside: Path | None


async def save(etcd: tuple[str, ...], file: Path, *, force: bool = False, tls: EtcdFiles = PLAIN_ETCD) -> Saved:
    """Unavailable when etcd broke off, Broken when the checksum differs; either way no file is left behind."""
    _check_absent(file, force)
    new = file.with_name(f".{file.name}.new")
    store = Store(EtcdOptions(etcd, *tls), SystemClock())
    try:
        revision = await store.revision()
        digest, size, tail = hashlib.sha256(), 0, b""
        with _opened(new) as copy:
            async for piece in maintenance.snapshot(store.channels):
                copy.write(piece)
                size += len(piece)
                whole = tail + piece
                digest.update(whole[:-_CHECKSUM_BYTES])
                tail = whole[-_CHECKSUM_BYTES:]
            copy.flush()
            os.fsync(copy.fileno())
        if digest.digest() != tail:
            raise Broken(f"the copy of etcd is damaged: its checksum is not {tail.hex()}")
        new.replace(file)
        _sync(file.parent)
        return Saved(size, tail.hex(), revision)
    except OSError as error:
        raise Refused(f"{file} cannot be written: {error.strerror}", field="file") from None
    finally:
        new.unlink(missing_ok=True)
        await store.close()


def _check_absent(file: Path, force: bool) -> None:
    if file.exists() and not force:
        raise AlreadyExists(f"{file} is there already; --force replaces it", field="file")


def check(file: Path) -> None:
    """NotFound when the file is missing, Broken when the file is not a whole snapshot."""
    digest, tail = hashlib.sha256(), b""
    try:
        with file.open("rb") as copy:
            while piece := copy.read(1 << 20):
                whole = tail + piece
                digest.update(whole[:-_CHECKSUM_BYTES])
                tail = whole[-_CHECKSUM_BYTES:]
    except OSError as error:
        raise NotFound(f"{file} cannot be read: {error.strerror}", field="file") from None
    if digest.digest() != tail:
        raise Broken(f"{file} is not a whole copy of etcd: its checksum is wrong")


def restore_up(file: Path, data_dir: Path, *, force: bool = False) -> Restored:
    """Restores into the data folder of a stopped `up`; AlreadyExists while an `up` runs from the folder."""
    layout = Layout(data_dir)
    layout.make()
    lock = layout.take_lock()
    try:
        scheme = "http" if folder_tls.find(layout) is None else "https"
        member = Member(name=MEMBER, peer=f"{scheme}://{HOST}:{ETCD_PEER}")
        restored = restore(file, layout.etcd, member, force=force)
        layout.note_etcd(etcd_binary.find().version)
        return restored
    finally:
        os.close(lock)


def restore(file: Path, folder: Path, member: Member, *, force: bool = False) -> Restored:
    """Makes a new etcd data folder; AlreadyExists when the folder holds data and `force` does not allow to move it."""
    check(file)
    holds_data = folder.exists() and any(folder.iterdir())
    if holds_data and not force:
        raise AlreadyExists(f"{folder} holds data; --force moves it aside", field="etcd-dir")
    folder.parent.mkdir(parents=True, exist_ok=True)
    new = folder.with_name(f".{folder.name}.restoring")
    shutil.rmtree(new, ignore_errors=True)
    try:
        _unpack(file, new, member)
        aside = _move_aside(folder) if holds_data else None
        if folder.exists():
            folder.rmdir()
        new.replace(folder)
        _sync(folder.parent)
        return Restored(folder, aside)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _unpack(file: Path, folder: Path, member: Member) -> None:
    """Every restore gets a new token, and so a new cluster id, which tells the restored etcd from the earlier etcd."""
    name = member.name or "default"
    peer = member.peer or "http://localhost:2380"
    flags = {
        "name": name,
        "data-dir": str(folder),
        "initial-advertise-peer-urls": peer,
        "initial-cluster": member.cluster or f"{name}={peer}",
        "initial-cluster-token": member.token or f"restored-{chance(8).hex()}",
    }
    argv = [*_tool(), "snapshot", "restore", str(file), *(f"--{flag}={value}" for flag, value in flags.items())]
    done = subprocess.run(
        argv, env={**os.environ, "ETCDCTL_API": "3"}, capture_output=True, text=True, timeout=_TOOL_SECONDS, check=False
    )
    if done.returncode != 0:
        raise Refused(f"{argv[0]} could not restore {file}: {done.stderr.strip()[-500:]}")


def _tool() -> list[str]:
    """The restore tool beside the etcd that `up` runs, or on PATH: etcdutl, and below etcd 3.6 etcdctl too."""
    binary = etcd_binary.find()
    beside = Path(binary.path).parent
    etcdutl_only = binary.version >= _ETCDUTL_ONLY
    for name in ("etcdutl",) if etcdutl_only else ("etcdutl", "etcdctl"):
        for place in (str(beside / name), shutil.which(name)):
            if place and os.access(place, os.X_OK):
                return [place]
    if etcdutl_only:
        raise Unavailable(f"etcdutl is needed (it comes with etcd): put it beside {binary.path}, or on PATH")
    raise Unavailable("neither etcdutl nor etcdctl is here: install etcd-client")


def _move_aside(folder: Path) -> Path:
    number = 1
    while (aside := folder.with_name(f"{folder.name}.before-restore-{number}")).exists():
        number += 1
    folder.replace(aside)
    return aside


def _opened(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb")


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
