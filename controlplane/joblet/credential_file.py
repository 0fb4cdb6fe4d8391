"""The file `credential` of a joblet's folder: readable by its user alone, and never half written."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import msgspec

from controlplane.aio.files import write_durably
from controlplane.model.credential import StoredCredential
from controlplane.model.errors import Invalid

NAME = "credential"
_MOST_BYTES = 1 << 20


class CredentialFile:
    """Without a folder the credential lives as long as the process."""

    def __init__(self, folder: str) -> None:
        self.path = Path(folder).absolute() / NAME if folder else None

    def read(self) -> StoredCredential | None:
        """None when there is none; Invalid for a file that others may use, or that is no credential."""
        if self.path is None:
            return None
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Invalid("credential", f"cannot be read from {self.path}: {error.strerror}") from None
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or stat.S_IMODE(status.st_mode) & 0o077:
                raise Invalid("credential", f"{self.path} must be a file that is not open to others: mode 0600")
            content = file.read(_MOST_BYTES)
        try:
            return msgspec.json.decode(content, type=StoredCredential)
        except msgspec.DecodeError:
            raise Invalid("credential", f"{self.path} is damaged: remove it and enrol the joblet again") from None

    def write(self, stored: StoredCredential) -> None:
        """OSError when it cannot be kept."""
        if self.path is not None:
            write_durably(self.path, msgspec.json.encode(stored))
