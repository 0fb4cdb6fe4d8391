"""A wall clock of its own for one process: Debian's libfaketime, found or fetched like etcd is.

`provide` (also `python -m tests.faketime`) downloads the package and unpacks it into the cache folder; no root needed,
and the machine's own clock is never touched. Monotonic time stays what it is.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from controlplane.model.errors import Unavailable
from controlplane.standalone import debian
from controlplane.standalone.etcd_binary import cache_dir

_PACKAGE = "libfaketime"
_LIBRARY = "usr/lib/*/faketime/libfaketimeMT.so.1"


def find() -> Path | None:
    """The library, installed or in the cache folder; None when there is none."""
    for root in (Path("/"), cache_dir() / _PACKAGE):
        for found in root.glob(_LIBRARY):
            return found
    return None


def provide() -> Path:
    """`find`, after fetching what is missing; Unavailable when that is not possible."""
    found = find()
    if found is None:
        debian.unpack([_PACKAGE], cache_dir() / _PACKAGE, cache_dir() / "apt")
        found = find()
    if found is None:
        raise Unavailable(f"the package {_PACKAGE} does not hold {_LIBRARY}")
    return found


def environment(shift: str) -> dict[str, str]:
    """What a process needs in its environment for a wall clock that is off by that, such as `+1h`."""
    found = find()
    assert found is not None
    return {"LD_PRELOAD": str(found), "FAKETIME": shift, "FAKETIME_DONT_FAKE_MONOTONIC": "1", "NO_FAKE_STAT": "1"}


def main() -> None:
    try:
        sys.stderr.write(f"libfaketime from {provide()}\n")
    except (Unavailable, OSError, subprocess.SubprocessError) as error:
        sys.stderr.write(f"no libfaketime, the test of F13 cannot run: {error}\n")


if __name__ == "__main__":
    main()
