"""The provider `webhook`: a server behind a URL creates the targets, asked over HTTP.

A request is a POST of JSON: `action` (create, resize, remove), the target and its properties. `Idempotency-Key` names
the request: a server that gets the same key again answers as before and does nothing. So a request without an answer
is sent again, a few times with growing pauses. `Controlplane-Signature` is `v2=` and the HMAC, in hex, of the method,
the URL, the timestamp and the body, a line each, with the key of the policy: a receiver can tell that a request was
meant for its own URL. The key of a policy is derived from the secret, so no receiver can sign for another policy's.

The author of a policy chooses the URL. So hosts are bounded (`OutsideHosts`), other hosts than loopback need https, and
whatever goes wrong there is told in one sentence; the log has the details.
"""

from __future__ import annotations

import hashlib
import hmac
import socket
from functools import partial
from urllib.parse import urlsplit

import aiohttp
import msgspec
import structlog
from aiohttp.abc import AbstractResolver, ResolveResult

from controlplane.aio.clock import Clock
from controlplane.model import times
from controlplane.model.errors import OutcomeUnknown, Refused, Unavailable
from controlplane.model.outside_hosts import OutsideHosts, is_loopback
from controlplane.model.scalepolicy import Made
from controlplane.providers.retry_policy import RetryPolicy

_GONE = (404, 410)
_BUSY = (408, 409, 425, 429)
METHOD = "POST"
NOT_ACCEPTED = "the webhook did not accept the request; the log of the leading replica says why"
_PORTS = {"http": 80, "https": 443}
log = structlog.get_logger(__name__)


class WebhookProvider:
    def __init__(
        self, secret: bytes, clock: Clock, policy: RetryPolicy | None = None, hosts: OutsideHosts | None = None
    ) -> None:
        self._secret = secret
        self._clock = clock
        self._hosts = hosts or OutsideHosts()
        self._policy = policy or RetryPolicy()

    async def create(self, made: Made) -> None:
        await self._ask("create", made)

    async def resize(self, made: Made) -> None:
        await self._ask("resize", made)

    async def remove(self, made: Made) -> None:
        """A target that the server does not know counts as removed."""
        await self._ask("remove", made, fine=_GONE)

    async def _ask(self, action: str, made: Made, fine: tuple[int, ...] = ()) -> None:
        self._check(made.url)
        body = body_of(action, made)
        timeout = aiohttp.ClientTimeout(total=self._policy.answer_seconds)
        connector = aiohttp.TCPConnector(resolver=BoundedResolver(self._hosts))
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
            post = partial(self._post, session, made, body, fine)
            await self._policy.repeat(post, self._clock, after=(Unavailable, OutcomeUnknown))

    async def _post(self, session: aiohttp.ClientSession, made: Made, body: bytes, fine: tuple[int, ...]) -> None:
        headers = self._headers(made, body)
        tell = log.bind(target=made.target, policy=made.policy)
        try:
            async with session.post(made.url, data=body, headers=headers, allow_redirects=False) as answer:
                status = answer.status
        except TimeoutError:
            tell.warning("a webhook did not answer", seconds=self._policy.answer_seconds)
            raise OutcomeUnknown(NOT_ACCEPTED) from None
        except aiohttp.ClientConnectorError as error:
            tell.warning("a webhook cannot be reached", error=str(error))
            raise Unavailable(NOT_ACCEPTED) from None
        except (aiohttp.InvalidURL, ValueError) as error:
            # Such as a UnicodeError of a host that is no name; no request was sent.
            raise Refused(f"its url cannot be asked ({type(error).__name__})") from None
        except (aiohttp.ClientError, OSError) as error:
            tell.warning("the connection to a webhook broke", error=type(error).__name__)
            raise OutcomeUnknown(NOT_ACCEPTED) from None
        if status in fine or 200 <= status < 300:
            return
        tell.warning("a webhook did not accept a request", status=status)
        if status in _BUSY or status >= 500:
            raise Unavailable(NOT_ACCEPTED)
        raise Refused(NOT_ACCEPTED)

    def _check(self, url: str) -> None:
        """Refused for a URL that no request is sent to."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 0)
        except ValueError:
            raise Refused("its url cannot be asked (ValueError)") from None
        if parts.scheme != "https" and not is_loopback(host):
            raise Refused("its url must begin with https://, or name a loopback address")
        self._hosts.check(host, port)

    def _headers(self, made: Made, body: bytes) -> dict[str, str]:
        stamp = times.show(self._clock.wall())
        return {
            "Content-Type": "application/json",
            "Idempotency-Key": made.request,
            "Controlplane-Timestamp": stamp,
            "Controlplane-Signature": signature(key_of(self._secret, made.policy), made.url, stamp, body),
        }


def body_of(action: str, made: Made) -> bytes:
    template = made.template
    return msgspec.json.encode(
        {
            "action": action,
            "request": made.request,
            "policy": made.policy,
            "target": made.target,
            "driver": template.driver,
            "region": template.region,
            "labels": template.labels,
            "capacity": made.capacity,
        }
    )


def key_of(secret: bytes, policy: str) -> bytes:
    """The key of one policy: its hex form is what the receiver is given."""
    return hmac.digest(secret, f"webhook:{policy}".encode(), hashlib.sha256).hex().encode()


def signature(key: bytes, url: str, stamp: str, body: bytes) -> str:
    signed = f"{METHOD}\n{url}\n{stamp}\n".encode() + body
    return "v2=" + hmac.new(key, signed, hashlib.sha256).hexdigest()


class BoundedResolver(AbstractResolver):
    """Leaves out the addresses of a name that `hosts` does not allow."""

    def __init__(self, hosts: OutsideHosts) -> None:
        self._hosts = hosts
        self._resolver = aiohttp.ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        resolved = await self._resolver.resolve(host, port, family)
        allowed = [entry for entry in resolved if self._allows(entry["host"])]
        if not allowed:
            raise OSError(f"no address of {host} is allowed")
        return allowed

    def _allows(self, address: str) -> bool:
        try:
            self._hosts.check_address(address)
        except Refused:
            return False
        return True

    async def close(self) -> None:
        await self._resolver.close()
