"""Trimming: files that only grow are kept below a bound while other processes append to them."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path


def trim(path: Path, most_bytes: int) -> bool:
    """Empties a file above the bound and keeps its content as NAME.1, replacing an older NAME.1; True when emptied.

    Writers must append (O_APPEND) and may keep the file open. A line written in the moment between the copy and the
    emptying is lost. Without disk space for a copy, the file is emptied all the same.
    """
    try:
        if path.stat().st_size <= most_bytes:
            return False
    except OSError:
        return False
    older = path.with_name(path.name + ".1")
    try:
        shutil.copyfile(path, older)
    except OSError:
        with contextlib.suppress(OSError):
            older.unlink()
    try:
        os.truncate(path, 0)
    except OSError:
        return False
    return True
