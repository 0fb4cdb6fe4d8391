"""Key files: files that only the user of the process can read or change, and the cluster key in such a file.

The cluster key is the whole content of its file, the same bytes for all replicas. Each use derives a key of its own
from the cluster key, so no use can weaken another. Keys never appear in an error.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

from controlplane.model.errors import Invalid

CLUSTER_KEY_BYTES = 32
# No key file is longer; a path to a device or to a log is refused instead of read to its end.
_MOST_BYTES = 65536
_ROOT = 0


def read_private(path: str, field: str, *, most_bytes: int = _MOST_BYTES) -> bytes:
    """The content of the file; Invalid, by the name of the field, when others than its owner may use the file."""
    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            content = file.read(most_bytes + 1)
    except OSError as error:
        raise Invalid(field, f"cannot be read from {path}: {error.strerror}") from None
    if not is_private(stat.S_IMODE(status.st_mode), status.st_uid, os.geteuid()):
        raise Invalid(field, f"{path} must not be open to others: chmod 600 {path}")
    if status.st_uid not in (os.geteuid(), _ROOT):
        raise Invalid(field, f"{path} must belong to the user who runs this process, or to root")
    if len(content) > most_bytes:
        raise Invalid(field, f"{path} is too long for a key file")
    return content


def is_private(mode: int, owner: int, user: int) -> bool:
    """Whether nobody but the owner of the file may use it. A file of root may also be readable for a group, by a user
    who is not root: systemd and Kubernetes hand their credentials over like that."""
    open_to_others = 0o037 if owner == _ROOT and user != _ROOT else 0o077
    return not mode & open_to_others


def make_private(path: Path, make_content: Callable[[], bytes]) -> None:
    """Creates the file for its owner alone, unless the file exists; the file is complete or absent."""
    if path.exists():
        return
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(make_content())
        file.flush()
        os.fsync(descriptor)
    new.replace(path)


def read_cluster_key(path: str) -> bytes:
    """The cluster key; empty without a path, Invalid when the file is too short or open to others."""
    if not path:
        return b""
    key = read_private(path, "cluster_key_file")
    if len(key) < CLUSTER_KEY_BYTES:
        raise Invalid("cluster_key_file", f"{path} must hold at least {CLUSTER_KEY_BYTES} bytes, not {len(key)}")
    return key


def make_cluster_key(path: Path, chance: Callable[[int], bytes]) -> None:
    make_private(path, lambda: chance(CLUSTER_KEY_BYTES))
