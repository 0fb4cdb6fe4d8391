"""The device flow against an issuer on loopback, on a clock that skips all waiting."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from controlplane.client.device_login import DeviceLogin
from controlplane.client.login_records import DevicePage, LoginClient, LoginTokens
from controlplane.model import times
from controlplane.model.errors import Forbidden, Invalid, Unauthenticated, Unavailable
from tests.clock import ManualClock
from tests.issuer import CLIENT, DEVICE, DISCOVERY, TOKEN, Issuer, an_issuer, saying


class SkippingClock(ManualClock):
    """Time passes at once whenever somebody sleeps."""

    def __init__(self) -> None:
        super().__init__(datetime.now(UTC))
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.pass_seconds(seconds)


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    async with an_issuer() as started:
        yield started


def login(issuer: Issuer, clock: ManualClock, client: LoginClient | None = None) -> DeviceLogin:
    return DeviceLogin(client or LoginClient(issuer=issuer.url, client_id=CLIENT), clock)


def ignore(_page: DevicePage) -> None:
    pass


async def test_polls_keep_the_interval_and_become_slower_when_told(issuer: Issuer) -> None:
    clock, pages = SkippingClock(), list[DevicePage]()
    issuer.refusals = ["authorization_pending", "slow_down", "authorization_pending", "slow_down"]
    tokens = await login(issuer, clock).log_in(pages.append)
    assert clock.slept == [1, 1, 6, 6, 11]
    assert pages == [DevicePage(f"{issuer.url}/activate", "WDJB-MJHT", "")]
    assert tokens.token.count(".") == 2
    assert tokens.refresh in issuer.refresh_tokens
    end = times.parse(tokens.expires, "expires").timestamp()
    assert abs(end - time.time() - issuer.life_seconds) < 60


async def test_a_code_that_nobody_confirms_ends(issuer: Issuer) -> None:
    clock = SkippingClock()
    issuer.refusals = ["authorization_pending"] * 1000
    with pytest.raises(Forbidden, match="not confirmed in time"):
        await login(issuer, clock).log_in(ignore)
    assert sum(clock.slept) == 60


async def test_a_provider_that_is_away_for_a_while_is_asked_again_more_seldom(issuer: Issuer) -> None:
    clock, said = SkippingClock(), saying(b"oops", 502)

    async def twice_away(request: object) -> object:
        if issuer.asked[TOKEN] == 2:
            del issuer.answers[TOKEN]
        return await said(request)  # type: ignore[arg-type]

    issuer.answers[TOKEN] = twice_away  # type: ignore[assignment]
    assert (await login(issuer, clock).log_in(ignore)).token
    assert clock.slept == [1, 2, 4]


async def test_a_hostile_provider_neither_hurries_nor_holds_the_program(issuer: Issuer) -> None:
    clock = SkippingClock()
    page = {"device_code": "d", "user_code": "u\x1b[2J", "verification_uri": "https://issuer.example/"}
    issuer.answers[DEVICE] = saying({**page, "expires_in": 1e300, "interval": -5})
    issuer.answers[TOKEN] = saying({"error": "authorization_pending"}, 400)
    shown = list[DevicePage]()
    with pytest.raises(Forbidden, match="in time"):
        await login(issuer, clock).log_in(shown.append)
    assert set(clock.slept) == {1.0}
    assert sum(clock.slept) == 1800
    assert shown[0].code == "u\\x1b[2J"


@pytest.mark.parametrize("answer", [{"id_token": ""}, {"id_token": "a\nb"}, {"id_token": "x" * 20_000}, {}])
async def test_an_answer_without_a_token_that_can_be_sent_is_refused(issuer: Issuer, answer: dict[str, str]) -> None:
    issuer.answers[TOKEN] = saying(dict(answer))
    with pytest.raises(Forbidden, match="no token that can be sent"):
        await login(issuer, SkippingClock()).log_in(ignore)


async def test_the_access_token_is_taken_when_wished(issuer: Issuer) -> None:
    client = LoginClient(issuer=issuer.url, client_id=CLIENT, client_secret="between us", access_token=True)
    tokens = await login(issuer, SkippingClock(), client).log_in(ignore)
    assert tokens.token == "opaque"
    assert {form["client_secret"] for form in issuer.forms} == {"between us"}


async def test_a_renewal_keeps_the_refresh_token_where_the_provider_gives_no_new_one(issuer: Issuer) -> None:
    old = LoginTokens(token="old", refresh="again and again")
    issuer.answers[TOKEN] = saying({"id_token": issuer.sign()})
    renewed = await login(issuer, SkippingClock()).renew(old)
    assert (renewed.token != "old", renewed.refresh) == (True, "again and again")
    issuer.answers = {}
    with pytest.raises(Unauthenticated, match="invalid_grant"):
        await login(issuer, SkippingClock()).renew(old)
    with pytest.raises(Unauthenticated, match="no token for renewals"):
        await login(issuer, SkippingClock()).renew(replace(old, refresh=""))


async def test_an_issuer_without_the_device_flow_or_of_another_name_is_refused(issuer: Issuer) -> None:
    issuer.answers[DISCOVERY] = saying({"issuer": issuer.url, "token_endpoint": issuer.url + TOKEN})
    with pytest.raises(Invalid, match="offers no device flow"):
        await login(issuer, SkippingClock()).log_in(ignore)
    issuer.answers[DISCOVERY] = saying({"issuer": "https://evil.example"})
    with pytest.raises(Unavailable, match="another issuer"):
        await login(issuer, SkippingClock()).log_in(ignore)
    with pytest.raises(Invalid, match=r"^issuer: must be https"):
        login(issuer, SkippingClock(), LoginClient(issuer="http://issuer.example", client_id=CLIENT))
