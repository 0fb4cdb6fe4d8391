"""The choice between a context and other ways to name a control plane; the token of a context, renewed when it ends.

`--context` counts before everything but `--endpoints` and `--data-dir`. The current context counts only when neither an
option nor the environment names a control plane: the token of a context goes to another address only if the command
line names both.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import msgspec

from controlplane.aio.clock import Clock, SystemClock
from controlplane.model import times
from controlplane.model.errors import Unauthenticated, Unavailable
from controlplane.standalone.contexts import Context, ContextFile, config_path
from controlplane.standalone.endpoints import CA_FILE, EndpointSource, find_endpoints

_NAMES = ("CONTROLPLANE_ENDPOINTS", "CONTROLPLANE_DATA_DIR")
# Tokens are renewed ahead of their end, so that no call is under way with a token that ends.
_AHEAD = timedelta(seconds=20)


def find_source(
    endpoints: str | None,
    data_dir: Path | None,
    *,
    token_file: Path | None = None,
    context: str = "",
    ca_file: Path | None = None,
    environment: Mapping[str, str] = os.environ,
) -> EndpointSource:
    """NotFound when there is no context of the given name."""
    plain = find_endpoints(endpoints, data_dir, environment, token_file=token_file, ca_file=ca_file)
    named = bool(endpoints or data_dir)
    if not context and (named or any(environment.get(name) for name in _NAMES)):
        return plain
    file = ContextFile(config_path(environment))
    contexts = file.read()
    name = context or contexts.current
    if not name:
        return plain
    chosen = contexts.get(name)
    if not named and chosen.endpoints:
        ca = str(ca_file or chosen.ca_file or environment.get(CA_FILE, ""))
        plain = EndpointSource(chosen.endpoints, given_token=plain.given_token, given_ca=ca)
    elif not named and chosen.data_dir:
        plain = EndpointSource(
            data_dir=Path(chosen.data_dir), given_token=plain.given_token, given_ca=str(ca_file or "")
        )
    token = ContextToken(name, file, SystemClock())
    return replace(plain, context=chosen, context_token=token.current)


@dataclass(frozen=True, slots=True)
class ContextToken:
    """The token of a context."""

    name: str
    file: ContextFile
    clock: Clock

    def current(self) -> str:
        """The token to send now, '' for none. Unauthenticated when a new login is needed."""
        context = self.file.read().get(self.name)
        if context.token or not self._is_over(context, _AHEAD):
            return context.token or (context.tokens.token if context.tokens is not None else "")
        # A loop of its own, since callers are in the midst of another one. A renewal takes some seconds at most.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, self._renewed()).result()

    async def _renewed(self) -> str:
        """Renews under the lock: providers take a refresh token once, and refuse the second command that uses it."""
        from controlplane.client.device_login import DeviceLogin

        async with self.file.locked(self.clock):
            contexts = self.file.read()
            context = contexts.get(self.name)
            login, tokens = context.login, context.tokens
            if login is None or tokens is None or not self._is_over(context, _AHEAD):
                return tokens.token if tokens is not None else ""
            try:
                tokens = await DeviceLogin(login, self.clock).renew(tokens)
            except (Unauthenticated, Unavailable) as error:
                if not self._is_over(context):
                    return tokens.token
                hint = f"run `cpctl login --context {self.name}`"
                raise type(error)(f"the login of context {self.name!r} has ended, {hint}: {error}") from None
            self.file.write(contexts.having(self.name, msgspec.structs.replace(context, tokens=tokens)))
            return tokens.token

    def _is_over(self, context: Context, ahead: timedelta = timedelta()) -> bool:
        """Whether the login ended, or will have ended so much later."""
        tokens = context.tokens
        if tokens is None or not tokens.expires:
            return False
        return self.clock.wall() + ahead >= times.parse(tokens.expires, "expires")
