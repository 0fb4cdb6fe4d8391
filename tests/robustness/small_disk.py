"""A disk that a test can fill: a small tmpfs where this user may mount one, else a limit on the size of files.

The limit is RLIMIT_FSIZE of the joblet and of what makes its shims: every write of theirs to a file fails then (EFBIG),
while commands that write no file go on.
"""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from controlplane.joblet.drivers.process.spawner import fork_server_of
from tests.robustness.parts import Joblet

SIZE = 4 << 20


class SmallDisk:
    def __init__(self, folder: Path, *, mounted: bool) -> None:
        self.folder = folder
        self.mounted = mounted
        self._limited: list[int] = []

    def fill(self, joblet: Joblet) -> None:
        """Nothing more can be written."""
        if self.mounted:
            with (self.folder / "ballast").open("wb", buffering=0) as file:
                try:
                    while True:
                        file.write(bytes(4096))
                except OSError:
                    return
        # Shims that are there already are left alone: they could not even write where they have room.
        server = fork_server_of(joblet.data)
        self._limited = [joblet.pid, *((server.pid,) if server is not None else ())]
        for pid in self._limited:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))

    def free(self) -> None:
        if self.mounted:
            (self.folder / "ballast").unlink()
        for pid in self._limited:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


@contextmanager
def a_small_disk(folder: Path, *, mounted: bool = True) -> Iterator[SmallDisk]:
    """One that is not `mounted` where that is not possible, or not wanted."""
    folder.mkdir(parents=True)
    if mounted:
        mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=700", "tmpfs", str(folder)]
        mounted = subprocess.run(mount, check=False, capture_output=True).returncode == 0
    try:
        yield SmallDisk(folder, mounted=mounted)
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)
