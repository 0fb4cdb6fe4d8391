"""Contexts: named control planes of a user, with their addresses and credentials, in a file of the user alone.

The file is `config.json` in the user's configuration folder, or the file that CONTROLPLANE_CONFIG names. It holds
tokens, so a file that others can read is refused. Changes are made under a lock and written by rename: two commands at
once lose no change.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from controlplane.aio import files
from controlplane.aio.clock import Clock
from controlplane.client.login_records import LoginClient, LoginTokens
from controlplane.key_files import read_private
from controlplane.model.bounds import is_name
from controlplane.model.errors import Invalid, NotFound, Unavailable

_MOST_BYTES = 1 << 20
_LOCK_SECONDS, _LOOK_SECONDS = 30.0, 0.05
_HIDDEN = "REDACTED"


class Context(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A control plane: the endpoints of its replicas, or the data folder of its `up`; the credentials for it.

    `ca_file` holds the CA that the replicas' certificates are checked against. `login` says where tokens come from, and
    `tokens` are those of the present login.
    """

    endpoints: tuple[str, ...] = ()
    data_dir: str = ""
    ca_file: str = ""
    token: str = ""
    login: LoginClient | None = None
    tokens: LoginTokens | None = None

    def redacted(self) -> Context:
        """The context without its secrets."""
        login, tokens = self.login, self.tokens
        if login is not None and login.client_secret:
            login = msgspec.structs.replace(login, client_secret=_HIDDEN)
        if tokens is not None:
            refresh = _HIDDEN if tokens.refresh else ""
            tokens = msgspec.structs.replace(tokens, token=_HIDDEN, refresh=refresh)
        token = _HIDDEN if self.token else ""
        return msgspec.structs.replace(self, token=token, login=login, tokens=tokens)


class Contexts(msgspec.Struct, frozen=True, kw_only=True):
    """All contexts of a user; `current` is chosen, '' for none."""

    current: str = ""
    contexts: dict[str, Context] = {}

    def get(self, name: str) -> Context:
        context = self.contexts.get(name)
        if context is None:
            raise NotFound(f"context: there is no context {name!r}; `cpctl config get-contexts` lists them")
        return context

    def having(self, name: str, context: Context) -> Contexts:
        """With the context. The first context of a user is chosen at once."""
        if not is_name(name):
            raise Invalid("context", "must be 1 to 63 characters of a-z, 0-9, '.' and '-', not only dots")
        return Contexts(current=self.current or name, contexts={**self.contexts, name: context})

    def using(self, name: str) -> Contexts:
        self.get(name)
        return msgspec.structs.replace(self, current=name)

    def without(self, name: str) -> Contexts:
        self.get(name)
        left = {other: context for other, context in self.contexts.items() if other != name}
        return Contexts(current="" if self.current == name else self.current, contexts=left)


class ContextFile:
    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> Contexts:
        """All contexts; none without a file. Invalid for a file that others can use, or that is no such file."""
        # A folder that cannot be entered holds nothing for this user.
        if not os.path.exists(self.path):
            return Contexts()
        content = read_private(str(self.path), "config", most_bytes=_MOST_BYTES)
        try:
            return msgspec.json.decode(content, type=Contexts)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Invalid("config", f"{self.path} cannot be read: {error}") from None

    @asynccontextmanager
    async def locked(self, clock: Clock) -> AsyncIterator[None]:
        """Keeps other commands from changing the file; Unavailable when another one holds the lock for too long."""
        give_up = clock.monotonic() + _LOCK_SECONDS
        while (lock := self._lock()) is None:
            if clock.monotonic() >= give_up:
                raise Unavailable(f"another command keeps {self.path} locked")
            await clock.sleep(_LOOK_SECONDS)
        try:
            yield
        finally:
            os.close(lock)

    def _lock(self) -> int | None:
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            return files.lock_file(self.path.with_name(f".{self.path.name}.lock"))
        except OSError as error:
            raise Invalid("config", f"{self.path} cannot be written: {error.strerror}") from None

    def write(self, contexts: Contexts) -> None:
        """To be called with the lock."""
        content = msgspec.json.format(msgspec.json.encode(contexts), indent=2)
        try:
            files.write_by_rename(self.path, content + b"\n")
        except OSError as error:
            raise Invalid("config", f"{self.path} cannot be written: {error.strerror}") from None


def config_path(environment: Mapping[str, str] = os.environ) -> Path:
    if environment.get("CONTROLPLANE_CONFIG"):
        return Path(environment["CONTROLPLANE_CONFIG"])
    folder = environment.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(folder) / "controlplane" / "config.json"
