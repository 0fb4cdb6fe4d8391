"""The provider `webhook`: a server behind a URL creates the targets, asked over HTTP.

A request is a POST of JSON: `action` (create, resize, remove), the target and its properties. `Idempotency-Key` names
the request: a server that gets the same key again answers as before and does nothing. So a request without an answer
is sent again, a few times with growing pauses. `Controlplane-Signature` is `sha256=` and the HMAC of
`<Controlplane-Timestamp>.<body>` with the secret, in hex.
"""

from __future__ import annotations

import hashlib
import hmac
from functools import partial

import aiohttp
import msgspec

from controlplane.aio.clock import Clock
from controlplane.model import times
from controlplane.model.errors import OutcomeUnknown, Refused, Unavailable
from controlplane.model.scalepolicy import Made
from controlplane.providers.retry_policy import RetryPolicy

_GONE = (404, 410)
_BUSY = (408, 409, 425, 429)


class WebhookProvider:
    def __init__(self, secret: bytes, clock: Clock, policy: RetryPolicy | None = None) -> None:
        self._secret = secret
        self._clock = clock
        self._policy = policy or RetryPolicy()

    async def create(self, made: Made) -> None:
        await self._ask("create", made)

    async def resize(self, made: Made) -> None:
        await self._ask("resize", made)

    async def remove(self, made: Made) -> None:
        """A target that the server does not know counts as removed."""
        await self._ask("remove", made, fine=_GONE)

    async def _ask(self, action: str, made: Made, fine: tuple[int, ...] = ()) -> None:
        body = body_of(action, made)
        timeout = aiohttp.ClientTimeout(total=self._policy.answer_seconds)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            post = partial(self._post, session, made, body, fine)
            await self._policy.repeat(post, self._clock, after=(Unavailable, OutcomeUnknown))

    async def _post(self, session: aiohttp.ClientSession, made: Made, body: bytes, fine: tuple[int, ...]) -> None:
        headers = self._headers(made, body)
        try:
            async with session.post(made.url, data=body, headers=headers, allow_redirects=False) as answer:
                status = answer.status
        except TimeoutError:
            raise OutcomeUnknown(f"no answer within {self._policy.answer_seconds:g} s") from None
        except aiohttp.ClientConnectorError:
            raise Unavailable("no server answers") from None
        except (aiohttp.InvalidURL, ValueError) as error:
            # Such as a UnicodeError of a host that is no name; no request was sent.
            raise Refused(f"its url cannot be asked ({type(error).__name__})") from None
        except (aiohttp.ClientError, OSError) as error:
            raise OutcomeUnknown(f"the connection broke ({type(error).__name__})") from None
        if status in fine or 200 <= status < 300:
            return
        if status in _BUSY or status >= 500:
            raise Unavailable(f"it answered {status}")
        raise Refused(f"it answered {status}")

    def _headers(self, made: Made, body: bytes) -> dict[str, str]:
        stamp = times.show(self._clock.wall())
        return {
            "Content-Type": "application/json",
            "Idempotency-Key": made.request,
            "Controlplane-Timestamp": stamp,
            "Controlplane-Signature": signature(self._secret, stamp, body),
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


def signature(secret: bytes, stamp: str, body: bytes) -> str:
    return "sha256=" + hmac.new(secret, f"{stamp}.".encode() + body, hashlib.sha256).hexdigest()
