"""The provider `webhook` against a real server on loopback, which may act and not answer."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from msgspec.structs import replace

from controlplane.aio.backoff import doubling
from controlplane.aio.clock import SystemClock
from controlplane.controller_manager import controllers
from controlplane.controller_manager.made_targets import Providing
from controlplane.model.errors import OutcomeUnknown, Refused, Unavailable
from controlplane.model.outside_hosts import OutsideHosts
from controlplane.model.scalepolicy import Made, MadePhase, TargetTemplate
from controlplane.providers.retry_policy import RetryPolicy
from controlplane.providers.webhook import NOT_ACCEPTED, BoundedResolver, WebhookProvider
from controlplane.store import keys
from tests.builders import an_identity
from tests.component.leader_stage import Replica, following, lead, running
from tests.component.scaling_stage import Cloud, a_policy
from tests.etcd import Etcd

SECRET = b"between us"
QUICK = RetryPolicy(answer_seconds=0.25, tries=3, backoff=doubling(0.01, 100.0))
MADE = Made(
    id="A", target="farm-1", policy="farm", provider="webhook", epoch=1, request="01REQUEST", capacity={"cpu": 2},
    template=TargetTemplate(driver="kubernetes", region="eu", labels={"zone": "a"}),
)  # fmt: skip


class Hook:
    """Makes one cluster for each key it has not seen. `silent` times it acts and never answers."""

    def __init__(self) -> None:
        self.url = ""
        # The URL that the receiver believes to be its own, if another than its real one.
        self.audience = ""
        self.silent = 0
        self.answers: list[int] = []
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.clusters: list[str] = []
        self._done: set[str] = set()
        self.cloud: Cloud | None = None
        self.over = asyncio.Event()

    async def take(self, request: web.Request) -> web.Response:
        body = await request.read()
        stamp = request.headers["Controlplane-Timestamp"]
        signed = f"{request.method}\n{self.audience or self.url}\n{stamp}\n".encode() + body
        key = hmac.new(SECRET, b"webhook:farm", hashlib.sha256).hexdigest()
        expected = "v2=" + hmac.new(key.encode(), signed, hashlib.sha256).hexdigest()
        if not hmac.compare_digest(request.headers["Controlplane-Signature"], expected):
            return web.Response(status=401)
        key, told = request.headers["Idempotency-Key"], json.loads(body)
        self.keys.append(key)
        self.bodies.append(told)
        if self.answers:
            return web.Response(status=self.answers.pop(0))
        if key not in self._done:
            self._done.add(key)
            if told["action"] == "create":
                self.clusters.append(told["target"])
        if self.silent:
            self.silent -= 1
            await self.over.wait()
        await self._join(told)
        return web.json_response({})

    async def _join(self, told: dict[str, Any]) -> None:
        if self.cloud is not None:
            made = Made(
                id=told["target"], target=told["target"], policy=told["policy"], provider="webhook", epoch=1,
                request=told["request"], capacity=told["capacity"],
            )  # fmt: skip
            await getattr(self.cloud, told["action"])(made)


@asynccontextmanager
async def a_hook() -> AsyncIterator[Hook]:
    hook = Hook()
    app = web.Application()
    app.router.add_post("/hook", hook.take)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    hook.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
    try:
        yield hook
    finally:
        hook.over.set()
        await runner.cleanup()


@pytest.fixture
async def hook() -> AsyncIterator[Hook]:
    async with a_hook() as started:
        yield started


def asked(hook: Hook, *, secret: bytes = SECRET) -> tuple[WebhookProvider, Made]:
    made = {name: getattr(MADE, name) for name in MADE.__struct_fields__} | {"url": hook.url}
    return WebhookProvider(secret, SystemClock(), QUICK), Made(**made)


async def test_a_request_is_signed_and_says_everything(hook: Hook) -> None:
    provider, made = asked(hook)
    await provider.create(made)
    assert hook.keys == ["01REQUEST"]
    assert hook.bodies == [
        {
            "action": "create", "request": "01REQUEST", "policy": "farm", "target": "farm-1", "driver": "kubernetes",
            "region": "eu", "labels": {"zone": "a"}, "capacity": {"cpu": 2},
        }
    ]  # fmt: skip


async def test_one_that_times_out_after_having_acted_makes_no_second_cluster(hook: Hook) -> None:
    provider, made = asked(hook)
    hook.silent = 2
    await provider.create(made)
    assert hook.keys == ["01REQUEST"] * 3
    assert hook.clusters == ["farm-1"]


async def test_one_that_never_answers_is_given_up_as_unknown_and_may_be_asked_again(hook: Hook) -> None:
    provider, made = asked(hook)
    hook.silent = 3
    with pytest.raises(OutcomeUnknown):
        await provider.create(made)
    await provider.create(made)
    assert hook.clusters == ["farm-1"]


async def test_answers_say_whether_to_ask_again(hook: Hook) -> None:
    provider, made = asked(hook)
    hook.answers = [503, 429]
    await provider.resize(made)
    assert len(hook.keys) == 3
    hook.answers = [500, 500, 500]
    with pytest.raises(Unavailable):
        await provider.resize(made)
    hook.answers = [400]
    with pytest.raises(Refused, match=NOT_ACCEPTED):
        await provider.create(made)
    hook.answers = [404]
    await provider.remove(made)
    hook.answers = [302]
    with pytest.raises(Refused, match=NOT_ACCEPTED):
        await provider.remove(made)


async def test_a_wrong_secret_is_refused_and_nobody_there_is_unavailable(hook: Hook) -> None:
    provider, made = asked(hook, secret=b"else")
    with pytest.raises(Refused, match=NOT_ACCEPTED):
        await provider.create(made)
    assert hook.clusters == []
    nowhere = {name: getattr(made, name) for name in made.__struct_fields__} | {"url": "http://127.0.0.1:1/"}
    with pytest.raises(Unavailable, match=NOT_ACCEPTED):
        await provider.create(Made(**nowhere))


async def test_a_request_for_one_receiver_or_policy_is_no_request_for_another(hook: Hook) -> None:
    provider, made = asked(hook)
    hook.audience = "https://another.example/hook"
    with pytest.raises(Refused):
        await provider.create(made)
    hook.audience = ""
    with pytest.raises(Refused):
        await provider.create(replace(made, policy="another"))
    assert hook.clusters == []


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("http://10.1.2.3/hook", ""),
        ("https://169.254.169.254/latest/meta-data", ""),
        ("https://[fe80::1]/", ""),
        ("https://[::ffff:169.254.169.254]/", ""),
        ("https://hooks.example/", "other.example"),
        ("https://127.0.0.1:1/", "127.0.0.1:2"),
    ],
)
async def test_hosts_that_are_not_allowed_are_never_asked(url: str, allowed: str) -> None:
    provider = WebhookProvider(SECRET, SystemClock(), QUICK, OutsideHosts(allowed))
    with pytest.raises(Refused, match=r"its (host|url)"):
        await provider.create(replace(MADE, url=url))


async def test_a_name_of_a_link_local_address_is_never_asked() -> None:
    """A number is a name for a parser of URLs, and an address for the resolver."""
    resolver = BoundedResolver(OutsideHosts())
    assert [entry["host"] for entry in await resolver.resolve("0x7f000001", 443)] == ["127.0.0.1"]
    with pytest.raises(OSError, match="is allowed"):
        await resolver.resolve("0xa9fea9fe", 443)
    await resolver.close()


async def test_leaders_that_die_while_it_is_silent_make_one_cluster_and_remove_it_once(etcd: Etcd, hook: Hook) -> None:
    """Each leader's request acts, and none hears of it; the third one is answered."""
    async with following(etcd.endpoint, Replica) as replica:
        hook.cloud = Cloud(replica.store)
        hook.silent = 1_000_000
        policy = keys.config("scalepolicies", "farm")
        await replica.write({policy: a_policy(provider="webhook", url=hook.url, min=1)})
        providing = Providing({"webhook": WebhookProvider(SECRET, SystemClock(), QUICK)}, an_identity)

        def phases() -> list[str]:
            return [entry.read().phase for entry in replica.cache.snapshot.all(keys.MADE)]

        for leader in range(3):
            term, writer = await lead(replica)
            asked_before = len(hook.keys)
            async with running(controllers.run(replica.ledgers, writer, SystemClock(), providing=providing)):
                if leader == 2:
                    hook.silent = 0
                while len(hook.keys) == asked_before:
                    await asyncio.sleep(0.01)
                if leader == 2:
                    await replica.until(lambda: phases() == [MadePhase.UP])
                    await replica.write({policy: None})
                    await replica.until(lambda: phases() == [])
            await term.end()
        assert hook.clusters == ["farm-1"]
        created = {key for key, body in zip(hook.keys, hook.bodies, strict=True) if body["action"] == "create"}
        removed = {key for key, body in zip(hook.keys, hook.bodies, strict=True) if body["action"] == "remove"}
        assert (len(created), len(removed)) == (1, 1)
        assert hook.cloud.clusters == {}


@pytest.mark.parametrize(
    "url",
    [
        "http://scaler..example.com/", "http://.example.com/", f"http://{'a' * 64}.example.com/", "http://", "",
        "http://here:99999999/", "http://[::1/", "http://xn--a\x80/", "nothing", "http://\x00/", "http://\ud800/",
    ],
)  # fmt: skip
async def test_a_url_that_nobody_can_ask_is_the_targets_error_and_nobody_elses(url: str) -> None:
    with pytest.raises((Refused, Unavailable, OutcomeUnknown)):
        await WebhookProvider(SECRET, SystemClock(), QUICK).create(replace(MADE, url=url))
