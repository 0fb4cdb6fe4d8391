"""The leader deletes enrolments and credentials of joblets that ended a week ago, and nothing else."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from controlplane.aio.clock import SystemClock
from controlplane.controller_manager.controller_writer import ControllerWriter
from controlplane.controller_manager.token_clean_up import MOST_AT_ONCE, TokenCleanUp
from controlplane.model import times
from controlplane.model.access import Token
from controlplane.model.errors import Deposed
from controlplane.store import keys
from tests.component.leader_stage import Replica, following, lead
from tests.etcd import Etcd


def a_token(name: str, role: str, ended_days_ago: float | None, **more: str) -> Token:
    now = datetime.now(UTC)
    expires = "" if ended_days_ago is None else times.show(now - timedelta(days=ended_days_ago))
    return Token(id=name, subject=name, roles=(role,), digest=name, expires=expires, **more)  # type: ignore[arg-type]


def key_of(token: Token) -> str:
    return f"{keys.TOKENS.prefix}{token.id}"


async def test_only_what_came_of_an_enrolment_and_ended_long_ago_is_deleted(emptied: Etcd) -> None:
    enrolled = times.show(datetime.now(UTC))
    gone = [a_token("unused", "enrolment", 8), a_token("away", "joblet", 8, enrolled=enrolled)]
    kept = [
        a_token("person", "admin", 400),
        a_token("joan", "joblet", 400),
        a_token("endless", "joblet", None, enrolled=enrolled),
        a_token("good", "joblet", -1, enrolled=enrolled),
        a_token("lately", "joblet", 6, enrolled=enrolled),
        a_token("waiting", "enrolment", -0.01),
    ]
    async with following(emptied.endpoint, Replica) as replica:
        await replica.write({key_of(token): token for token in (*gone, *kept)})
        _, writer = await lead(replica)
        clean_up = TokenCleanUp(replica.ledgers, ControllerWriter(writer, replica.cache), SystemClock())
        for key in clean_up.every_key():
            assert await clean_up.reconcile(key) is None
        assert set(replica.cache.snapshot.names(keys.TOKENS)) == {token.id for token in kept}


async def test_many_are_deleted_some_at_a_time_and_never_by_a_deposed_leader(emptied: Etcd) -> None:
    tokens = [a_token(f"unused-{number}", "enrolment", 8) for number in range(MOST_AT_ONCE + 5)]
    async with following(emptied.endpoint, Replica) as replica:
        for at in range(0, len(tokens), 50):
            await replica.write({key_of(token): token for token in tokens[at : at + 50]})
        term, writer = await lead(replica)
        clean_up = TokenCleanUp(replica.ledgers, ControllerWriter(writer, replica.cache), SystemClock())
        assert await clean_up.reconcile("tokens") is not None
        assert replica.cache.snapshot.count(keys.TOKENS) == 5
        await term.end()
        with pytest.raises(Deposed):
            await clean_up.reconcile("tokens")
        assert replica.cache.snapshot.count(keys.TOKENS) == 5
